"""A detector on one benchmark: read, predict (or take given predictions), score."""

from collections.abc import Mapping
from typing import Any

from data_modules.build import read_benchmark
from faithkit.evaluation.page import write_page
from faithkit.evaluation.reports.corpus import report_corpus
from faithkit.evaluation.reports.run import report_detection
from faithkit.evaluation.reports.suppression import report_suppression
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder, environment
from workflows.detectors import load_detector
from workflows.fitted_baselines import read_fitting
from workflows.write_answers import Judge, write_answers


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
    detector = None
    if given is None:
        detector = load_detector(
            config["checkpoint"], precision=config["precision"], batch_tokens=config["batch_tokens"]
        )
        written = write_answers(
            run.predictions / f"{benchmark.name}.jsonl",
            benchmark.examples,
            Judge(detector),
            at_a_time=config["save_every_num_rows"],
        )
        given = {prediction.id: prediction for prediction in written}
    if config["html"]:
        write_page(config["html"], benchmark.examples, given, title=f"{benchmark.name}: answers and their marks")
    predictions = list(given.values())
    if block["name"] == "suppression":
        report_suppression(
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
    report_detection(
        run,
        sets,
        meta=meta,
        fitting=read_fitting(run, config, benchmark, detector),
        num_resamples=num_resamples,
        num_examples=config["num_examples"],
    )
