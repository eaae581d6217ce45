"""A generator's responses to a benchmark, where no file gives them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.jsonl import write_jsonl
from common.model_folder import GENERATOR, find_folder, read_sidecar
from common.records import Prediction
from common.run_folder import RunFolder
from data_modules.build import Benchmark
from generation.generator import Generator
from inference.decoding import Decoding


def answer_benchmark(run: RunFolder, config: Mapping[str, Any], benchmark: Benchmark) -> dict[str, Prediction]:
    """Answers every example and writes the run's predictions file; `generate.py` does it so that it can be resumed.

    Raises:
        UserError: No checkpoint is given, or that of a detector.
    """
    checkpoint = config["checkpoint"]
    if not checkpoint:
        mend = "predictions=FILE with the responses, or checkpoint=PATH of a generator"
        raise UserError("nothing to score: neither predictions nor checkpoint is given", mend=mend)
    _check_kind(checkpoint)
    generator = Generator.load(checkpoint, precision=config["precision"])
    decoding = Decoding(**config["decoding"])
    said = list(generator.predict_examples(benchmark.examples, decoding=decoding, progress=True))
    write_jsonl(run.predictions / f"{benchmark.name}.jsonl", (prediction.to_dict() for prediction in said))
    return {prediction.id: prediction for prediction in said}


def _check_kind(checkpoint: str) -> None:
    if not Path(checkpoint).expanduser().exists():
        return  # a hub's name: the generator itself says what is wrong with it
    sidecar = read_sidecar(find_folder(checkpoint))
    if sidecar is not None and sidecar.kind != GENERATOR:
        mend = (
            f"benchmark.critic={checkpoint} judges the responses of predictions=FILE with it; "
            "pairs with labels are in benchmark=faithcritic"
        )
        problem = f"this benchmark scores generated responses, and the checkpoint is a {sidecar.kind}"
        raise UserError(problem, place=checkpoint, mend=mend)
