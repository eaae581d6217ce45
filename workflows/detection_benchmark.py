"""A detector on one benchmark: read, predict (or take given predictions), score."""

from collections.abc import Callable, Mapping
from typing import Any

from data_modules.build import read_benchmark
from data_modules.reading.files import EMBEDDED
from faithkit.detector import Detector
from faithkit.evaluation.page import write_page
from faithkit.evaluation.published.detection import comparable
from faithkit.evaluation.reports.corpus import report_corpus
from faithkit.evaluation.reports.provenance import Provenance
from faithkit.evaluation.reports.run import Scored, report_detection
from faithkit.evaluation.reports.suppression import report_suppression
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder, environment
from faithkit.weights.used_model import UsedModel
from workflows.detectors import load_detector
from workflows.fitted_baselines import read_fitting
from workflows.origins import describe_model, origin_of_file, write_origin
from workflows.rationales import score_rationales
from workflows.write_answers import DetectorAnswerer, write_answers


def _load(config: Mapping[str, Any]) -> tuple[Detector, list[UsedModel], Callable[[], None]]:
    """The detector that a configuration names, how origins describe it, and what it tells at the end."""
    # Runs of older versions have neither `engine` nor `labels`.
    if (config.get("engine") or {}).get("name"):
        from workflows.judging import describe_judge, load_judge, tell_usage

        judge = load_judge(config)
        return judge, [describe_judge(config)], lambda: tell_usage(judge)
    detector = load_detector(
        config["checkpoint"],
        precision=config["precision"],
        batch_tokens=config["batch_tokens"],
        labels=config.get("labels"),
    )
    return detector, [describe_model(config["checkpoint"])], lambda: None


def run_benchmark(run: RunFolder, config: Mapping[str, Any]) -> Scored:
    """Examples, predictions, metrics; the run's path comes last."""
    block, num_resamples = config["benchmark"], config["num_resamples"]
    given = read_predictions(config["predictions"]) if config["predictions"] else None
    benchmark = read_benchmark(block)
    meta = {"config": config, "data": benchmark.summary, "environment": environment()}
    if block["name"] == "analysis":
        # The paper's figures are about its own models' answers: neither the embedded corpus's nor one's own.
        published = block["dataset"] == "ragtruth" and block["path"] != EMBEDDED and comparable(benchmark.examples)
        options: dict[str, Any] = {"title": block["dataset"], "plots": block["plots"], "published": published}
        report_corpus(benchmark.examples, run.path, **options)
        print(run.path)
        return Scored({})
    detector = None
    if given is not None:
        origin = origin_of_file(
            config["predictions"], benchmark.name, benchmark.examples, checkpoint=config["checkpoint"]
        )
    else:
        detector, models, tell = _load(config)
        path, portion = run.predictions / f"{benchmark.name}.jsonl", config["save_every_num_rows"]
        written = write_answers(path, benchmark.examples, DetectorAnswerer(detector), at_a_time=portion)
        tell()
        given = {prediction.id: prediction for prediction in written}
        write_origin(path, benchmark.name, benchmark.examples, models)
        origin = Provenance.of(benchmark.name, benchmark.examples, models)
    if config["html"]:
        write_page(config["html"], benchmark.examples, given, title=f"{benchmark.name}: answers and their marks")
    predictions = list(given.values())
    if block["name"] == "suppression":
        metrics = report_suppression(
            run,
            benchmark.examples,
            predictions,
            groups=block["groups"],
            strategies=block["strategies"],
            meta=meta,
            num_resamples=num_resamples,
            origin=origin,
        )
        return Scored(metrics)
    sets, origins = {benchmark.name: (benchmark.examples, predictions)}, {benchmark.name: origin}
    fitting = read_fitting(run, config, benchmark, detector, origin.models)
    dataset = "" if block["path"] == EMBEDDED else benchmark.name
    said = score_rationales(benchmark.examples, given, block, dataset=dataset, num_resamples=num_resamples)
    rationales = {benchmark.name: said} if said else {}
    options = {"num_resamples": num_resamples, "num_examples": config["num_examples"]}
    return report_detection(run, sets, meta=meta, fitting=fitting, origins=origins, rationales=rationales, **options)
