"""The end of every run: metrics with intervals beside their baselines, predictions to judge by eye, and the folder."""

from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.evaluation.cheap_baselines import CountedFeatures
from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.reports.labels import label_report
from faithkit.evaluation.reports.report import Report, Row
from faithkit.evaluation.reports.spans import has_spans, span_report
from faithkit.evaluation.results import full_names, write_results
from faithkit.evaluation.tables import show
from faithkit.files.run_folder import RunFolder
from faithkit.records import Example, Prediction

TestSets = Mapping[str, tuple[Sequence[Example], Sequence[Prediction]]]
Reports = dict[str, list[Report]]  # of each test set; none where nothing of it is labelled
EMBEDDED = "embedded"


def report_detection(
    run: RunFolder,
    sets: TestSets,
    *,
    meta: Mapping[str, Any],
    fitted_on: Sequence[Example] = (),
    split: str = "test",
    num_resamples: int = 1000,
    num_examples: int = 5,
) -> dict[str, Metric]:
    """Scores each test set, writes metrics.json and prints it all; the run's path comes last.

    A set whose spans are marked is scored by label and by span. What is shown is the span report where the predictions
    mark anything, else the classification report.

    Args:
        sets: For each dataset its labelled examples and their predictions.
        fitted_on: Labelled examples that the baselines choose their threshold on.
        split: The first part of the metrics' names.
    """
    options: dict[str, Any] = {"num_resamples": num_resamples, "num_examples": num_examples}
    reports = detection_reports(sets, meta=meta, fitted_on=fitted_on, split=split, **options)
    return write_reports(run, reports, meta=meta, split=split)


def detection_reports(
    sets: TestSets,
    *,
    meta: Mapping[str, Any],
    fitted_on: Sequence[Example] = (),
    counted: CountedFeatures | None = None,
    split: str = "test",
    num_resamples: int = 1000,
    num_examples: int = 5,
) -> Reports:
    """The reports of each test set; arguments as those of `report_detection`, and `counted` as of `label_report`."""
    reports: Reports = {}
    for name, (examples, predictions) in sets.items():
        reports[name] = []
        if not examples:
            continue
        by_id = {prediction.id: prediction for prediction in predictions}
        options: dict[str, Any] = {
            "title": f"{split}/{name}",
            "fitted_on": fitted_on,
            "num_resamples": num_resamples,
            "num_examples": num_examples,
        }
        reports[name].append(label_report(examples, by_id, counted=counted, **options))
        if has_spans(examples):
            reports[name].append(span_report(examples, by_id, dataset="" if _embedded(meta) else name, **options))
    return reports


def write_reports(run: RunFolder, found: Reports, *, meta: Mapping[str, Any], split: str = "test") -> dict[str, Metric]:
    """Writes metrics.json and prints the reports of each test set; the run's path comes last."""
    metrics: dict[str, Metric] = {}
    for name, reports in found.items():
        if not reports:
            print(f"{name}: there is no test example, or none with a label: nothing to score")
            continue
        for report in reports:
            metrics |= full_names(split, name, report.metrics)
        shown = reports[-1:] if reports[-1].tables else reports
        first, *others = (table for report in shown for table in report.tables)
        show(first)
        for note in (note for report in shown for note in report.notes):
            print(f"note: {note}")
        if others:
            show(*others)
    write_results(run.metrics, metrics, meta)
    print(run.path)
    return metrics


def samples_of(found: Reports) -> dict[str, tuple[Row, ...]]:
    """Gives the sample of predictions of each test set: that of the report which is shown."""
    return {name: reports[-1].samples or reports[0].samples for name, reports in found.items() if reports}


def _embedded(meta: Mapping[str, Any]) -> bool:
    """Tells whether our own corpus stood in for the dataset's files, so that published figures do not apply."""
    config = meta.get("config") or {}
    blocks = [meta.get("data"), config.get("benchmark"), config.get("data")]
    return any(isinstance(block, Mapping) and block.get("path") == EMBEDDED for block in blocks)
