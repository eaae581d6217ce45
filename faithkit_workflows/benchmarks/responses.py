"""Evaluates generated responses, from a predictions file or written by a generator first."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from data_modules.build import Benchmark, datasets_of, read_benchmark
from faithkit.detector import GENERATOR
from faithkit.environment import environment
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.model_folder import sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.inference.decoding import Decoding
from faithkit.metrics.responses.response_columns import PairedResponses
from faithkit.records import Prediction
from faithkit.reports.response_report import report_responses
from faithkit.reports.write_reports import EvaluationResult
from faithkit.weights.used_model import describe_model
from faithkit_workflows.answering.prediction_files import read_provenance, write_given, write_with_origin
from faithkit_workflows.answering.strategies import Answerer, OwnAnswer
from faithkit_workflows.benchmarks.metric_models import load_metric_models
from faithkit_workflows.detectors.judges import list_judge_models
from faithkit_workflows.detectors.loading import describe_helpers
from faithkit_workflows.settings.engines import RAY
from generation.generator import Generator


def run_response_benchmark(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the examples of each dataset and their responses, and writes the metrics of the responses.

    Examples and files are read, and missing responses are generated, before any metric loads its model.
    """
    answer = benchmark_answerer(run, config)
    sets, summaries, files = {}, {}, {}
    for name, block in datasets_of(config["benchmark"]).items():
        given = {key: read_predictions(block[key]) if block[key] else None for key in ("predictions", "against")}
        benchmark = read_benchmark(block, labelled=False)
        responses = given["predictions"] or answer(benchmark)
        sets[name] = PairedResponses.of(benchmark.examples, responses, given["against"], incomplete=block["incomplete"])
        if given["predictions"]:
            path, texts = run.predictions / f"{benchmark.name}.jsonl", config["save_texts"]
            write_given(path, sets[name].examples, responses, texts=texts, generated=True)
        summaries[name] = benchmark.summary
        files[name] = block["predictions"] or str(run.predictions / f"{benchmark.name}.jsonl")
    models, block = load_metric_models(config), config["benchmark"]
    judges = describe_helpers({**list_judge_models(block), "entailment model": block["nli"] if models.q2 else None})
    origins = {
        name: read_provenance(files[name], name, paired.examples, checkpoint=config["checkpoint"], others=judges)
        for name, paired in sets.items()
    }
    return report_responses(
        run,
        sets,
        models,
        meta={"config": config, "data": summaries, "environment": environment()},
        baselines=config["benchmark"]["baselines"],
        num_resamples=config["num_resamples"],
        num_examples=config["num_examples"],
        origins=origins,
    )


def benchmark_answerer(run: RunFolder, config: Mapping[str, Any]) -> Callable[[Benchmark], dict[str, Prediction]]:
    """Returns a function that answers every example of a benchmark and writes the predictions file.

    The generator is loaded for the first benchmark and reused for the others.
    """
    load = cache(lambda: _load_answerer(config))

    def answer(benchmark: Benchmark) -> dict[str, Prediction]:
        path, models = run.predictions / f"{benchmark.name}.jsonl", [describe_model(config["checkpoint"])]
        options = {"chunk_size": config["save_every_num_rows"], "texts": config["save_texts"]}
        answers = write_with_origin(path, benchmark.name, benchmark.examples, load(), models, **options)
        return {prediction.id: prediction for prediction in answers}

    return answer


def _load_answerer(config: Mapping[str, Any]) -> Answerer:
    checkpoint = config["checkpoint"]
    if not checkpoint:
        hint = "predictions=FILE with the responses, or checkpoint=PATH of a generator"
        raise UserError("nothing to score: neither predictions nor checkpoint is given", hint=hint)
    _check_kind(checkpoint)
    if (config.get("engine") or {}).get("name") == RAY:
        from faithkit_workflows.ray.chunks import answerer_on_cluster

        return answerer_on_cluster(config)
    generator = Generator.load(checkpoint, precision=config["precision"], max_length=config["max_length"])
    return OwnAnswer(generator, Decoding(**config["decoding"]))


def _check_kind(checkpoint: str) -> None:
    sidecar = sidecar_of(checkpoint)  # for a hub name, the generator's loader reports the error
    if sidecar is not None and sidecar.kind != GENERATOR:
        hint = (
            f"benchmark.critic={checkpoint} judges the responses of predictions=FILE with it; "
            "pairs with labels are in benchmark=faithcritic"
        )
        problem = f"this benchmark needs a generator, and the checkpoint is a {sidecar.kind}"
        raise UserError(problem, place=checkpoint, hint=hint)
