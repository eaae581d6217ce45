"""Lets a generator answer benchmarks of responses, where no predictions file is given."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from data_modules.build import Benchmark
from faithkit.errors import UserError
from faithkit.files.jsonl import write_jsonl
from faithkit.files.model_folder import GENERATOR, find_folder, read_sidecar
from faithkit.files.run_folder import RunFolder
from faithkit.inference.decoding import Decoding
from faithkit.records import Prediction
from generation.generator import Generator


def benchmark_answerer(run: RunFolder, config: Mapping[str, Any]) -> Callable[[Benchmark], dict[str, Prediction]]:
    """Makes a function that answers every example of a benchmark and writes the run's predictions file.

    The generator is loaded for the first benchmark and kept for the others. A run of it cannot be resumed: for long
    ones let `generate.py` write the file, and score that.
    """
    load = cache(lambda: _load(config))

    def answer(benchmark: Benchmark) -> dict[str, Prediction]:
        decoding = Decoding(**config["decoding"])
        answers = list(load().predict_examples(benchmark.examples, decoding=decoding, progress=True))
        write_jsonl(run.predictions / f"{benchmark.name}.jsonl", (prediction.to_dict() for prediction in answers))
        return {prediction.id: prediction for prediction in answers}

    return answer


def _load(config: Mapping[str, Any]) -> Generator:
    checkpoint = config["checkpoint"]
    if not checkpoint:
        hint = "predictions=FILE with the responses, or checkpoint=PATH of a generator"
        raise UserError("nothing to score: neither predictions nor checkpoint is given", hint=hint)
    _check_kind(checkpoint)
    return Generator.load(checkpoint, precision=config["precision"], max_length=config["max_length"])


def _check_kind(checkpoint: str) -> None:
    if not Path(checkpoint).expanduser().exists():
        return  # a hub name: loading the generator says what is wrong with it
    sidecar = read_sidecar(find_folder(checkpoint))
    if sidecar is not None and sidecar.kind != GENERATOR:
        hint = (
            f"benchmark.critic={checkpoint} judges the responses of predictions=FILE with it; "
            "pairs with labels are in benchmark=faithcritic"
        )
        problem = f"this benchmark scores generated responses, and the checkpoint is a {sidecar.kind}"
        raise UserError(problem, place=checkpoint, hint=hint)
