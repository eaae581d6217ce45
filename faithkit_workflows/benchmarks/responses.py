"""Benchmarks of generated responses: from a predictions file, or written by a generator first."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from data_modules.build import Benchmark, datasets_of, read_benchmark
from faithkit.environment import environment
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.model_folder import GENERATOR, sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.inference.decoding import Decoding
from faithkit.metrics.responses.response_columns import PairedResponses
from faithkit.records import Prediction
from faithkit.reports.responses import report_responses
from faithkit.reports.write_reports import EvaluationResult
from faithkit.weights.used_model import describe_model
from faithkit_workflows.answering.answer_strategy import Answerer, OwnAnswer
from faithkit_workflows.benchmarks.metric_models import load_metric_models
from faithkit_workflows.detectors.judges import judge_models
from faithkit_workflows.detectors.origins import helpers_of, origin_of_file, write_given, write_with_origin
from faithkit_workflows.settings.sharded import RAY
from generation.generator import Generator


def run_response_benchmark(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Reads the examples of each dataset and a response to each, and writes the metrics of these responses.

    Examples and files are read, and missing responses written, before any metric loads its model.
    """
    answer = benchmark_answerer(run, config)
    sets, summaries, files = {}, {}, {}
    for name, block in datasets_of(config["benchmark"]).items():
        given = {key: read_predictions(block[key]) if block[key] else None for key in ("predictions", "against")}
        benchmark = read_benchmark(block, labelled=False)
        responses = given["predictions"] or answer(benchmark)
        sets[name] = PairedResponses.of(benchmark.examples, responses, given["against"], incomplete=block["incomplete"])
        if given["predictions"]:
            path, texts = run.predictions / f"{benchmark.name}.jsonl", config.get("save_texts", True)
            write_given(path, sets[name].examples, responses, texts=texts, generated=True)
        summaries[name] = benchmark.summary
        files[name] = block["predictions"] or str(run.predictions / f"{benchmark.name}.jsonl")
    models, block = load_metric_models(config), config["benchmark"]
    judges = helpers_of({**judge_models(block), "entailment model": block["nli"] if models.q2 else None})
    origins = {
        name: origin_of_file(files[name], name, paired.examples, checkpoint=config["checkpoint"], others=judges)
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
    """Makes a function that answers every example of a benchmark and writes the run's predictions file.

    The generator is loaded for the first benchmark and kept for the others.
    """
    load = cache(lambda: _load(config))

    def answer(benchmark: Benchmark) -> dict[str, Prediction]:
        path, portion = run.predictions / f"{benchmark.name}.jsonl", config["save_every_num_rows"]
        answerer, models = load(), [describe_model(config["checkpoint"])]
        how = {"at_a_time": portion, "texts": config.get("save_texts", True)}
        answers = write_with_origin(path, benchmark.name, benchmark.examples, answerer, models, **how)
        return {prediction.id: prediction for prediction in answers}

    return answer


def _load(config: Mapping[str, Any]) -> Answerer:
    checkpoint = config["checkpoint"]
    if not checkpoint:
        hint = "predictions=FILE with the responses, or checkpoint=PATH of a generator"
        raise UserError("nothing to score: neither predictions nor checkpoint is given", hint=hint)
    _check_kind(checkpoint)
    if (config.get("engine") or {}).get("name") == RAY:
        from faithkit_workflows.ray.portions import answerer_on_cluster

        return answerer_on_cluster(config)
    generator = Generator.load(checkpoint, precision=config["precision"], max_length=config["max_length"])
    return OwnAnswer(generator, Decoding(**config["decoding"]))


def _check_kind(checkpoint: str) -> None:
    sidecar = sidecar_of(checkpoint)  # of a hub name, loading the generator says what is wrong with it
    if sidecar is not None and sidecar.kind != GENERATOR:
        hint = (
            f"benchmark.critic={checkpoint} judges the responses of predictions=FILE with it; "
            "pairs with labels are in benchmark=faithcritic"
        )
        problem = f"this benchmark scores generated responses, and the checkpoint is a {sidecar.kind}"
        raise UserError(problem, place=checkpoint, hint=hint)
