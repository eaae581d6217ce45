"""A detector on one benchmark: read, predict (or take given predictions), score."""

from collections.abc import Mapping
from typing import Any

from common.jsonl import read_predictions, write_jsonl
from common.run_folder import RunFolder, environment
from critic.detectors import load_detector
from data_modules.build import read_benchmark
from evaluation.conclude import conclude
from evaluation.conclude_suppression import conclude_suppression
from evaluation.corpus_report import report_corpus
from evaluation.page import write_page


def run_benchmark(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Examples, predictions, metrics; the run's path comes last."""
    block, num_resamples = config["benchmark"], config["num_resamples"]
    given = read_predictions(config["predictions"]) if config["predictions"] else None
    benchmark = read_benchmark(block)
    meta = {"config": config, "data": benchmark.summary, "environment": environment()}
    if block["name"] == "analysis":
        report_corpus(benchmark.examples, run.path, title=block["dataset"], plots=block["plots"])
        print(run.path)
        return
    if given is None:
        detector = load_detector(
            config["checkpoint"], precision=config["precision"], batch_tokens=config["batch_tokens"]
        )
        given = {
            prediction.id: prediction for prediction in detector.predict_examples(benchmark.examples, progress=True)
        }
        write_jsonl(run.predictions / f"{benchmark.name}.jsonl", (p.to_dict() for p in given.values()))
    if config["html"]:
        write_page(config["html"], benchmark.examples, given, title=f"{benchmark.name}: answers and their marks")
    predictions = list(given.values())
    if block["name"] == "suppression":
        conclude_suppression(
            run,
            benchmark.examples,
            predictions,
            groups=block["groups"],
            strategies=block["strategies"],
            meta=meta,
            num_resamples=num_resamples,
        )
        return
    sets = {benchmark.name: (benchmark.examples, predictions)}
    conclude(run, sets, meta=meta, num_resamples=num_resamples, num_examples=config["num_examples"])
