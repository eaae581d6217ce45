"""The end of every run: metrics with intervals beside their baselines, predictions to judge by eye, and the folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faithkit.evaluation.fitted_baselines import Fitting
from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.reports.labels import label_report
from faithkit.evaluation.reports.provenance import Provenance
from faithkit.evaluation.reports.report import Report, Row
from faithkit.evaluation.reports.spans import has_spans, span_report
from faithkit.evaluation.results import full_names, write_results
from faithkit.evaluation.tables import show
from faithkit.files.run_folder import RunFolder
from faithkit.records import Example, Prediction
from faithkit.stand_in import EMBEDDED, source_of

TestSets = Mapping[str, tuple[Sequence[Example], Sequence[Prediction]]]
Reports = dict[str, list[Report]]  # of each test set; none where nothing of it is labelled
Origins = Mapping[str, Provenance]


@dataclass(frozen=True, slots=True)
class Scored:
    """The end of an evaluation as its loggers get it: metrics by their full names, and of each test set a sample."""

    metrics: Mapping[str, Metric]
    samples: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def report_detection(
    run: RunFolder,
    sets: TestSets,
    *,
    meta: Mapping[str, Any],
    fitting: Fitting | None = None,
    split: str = "test",
    num_resamples: int = 1000,
    num_examples: int = 5,
    origins: Origins | None = None,
) -> Scored:
    """Scores each test set, writes metrics.json and prints it all; the run's path comes last.

    A set whose spans are marked is scored by label and by span. What is shown is the span report where the predictions
    mark anything, else the classification report.

    Args:
        sets: For each dataset its labelled examples and their predictions.
        fitting: What the baselines are fitted on.
        split: The first part of the metrics' names.
        origins: Of each test set where its predictions are from; None where nothing is to be said of it.
    """
    options: dict[str, Any] = {"num_resamples": num_resamples, "num_examples": num_examples, "origins": origins}
    reports = detection_reports(sets, meta=meta, fitting=fitting, split=split, **options)
    return Scored(write_reports(run, reports, meta=meta, split=split), samples_of(reports))


def detection_reports(
    sets: TestSets,
    *,
    meta: Mapping[str, Any],
    fitting: Fitting | None = None,
    split: str = "test",
    num_resamples: int = 1000,
    num_examples: int = 5,
    origins: Origins | None = None,
) -> Reports:
    """The reports of each test set; arguments as those of `report_detection`."""
    reports: Reports = {}
    for name, (examples, predictions) in sets.items():
        reports[name] = []
        if not examples:
            continue
        by_id = {prediction.id: prediction for prediction in predictions}
        options: dict[str, Any] = {
            "title": f"{split}/{name}",
            "fitting": fitting,
            "num_resamples": num_resamples,
            "num_examples": num_examples,
        }
        origin = origins[name] if origins else None
        dataset = "" if _embedded(meta) else name
        reports[name].append(label_report(examples, by_id, dataset=dataset, origin=origin, **options))
        if has_spans(examples):
            reports[name].append(span_report(examples, by_id, dataset=dataset, origin=origin, **options))
    return reports


def write_reports(run: RunFolder, found: Reports, *, meta: Mapping[str, Any], split: str = "test") -> dict[str, Metric]:
    """Writes metrics.json and prints the reports of each test set; the run's path comes last."""
    metrics: dict[str, Metric] = {}
    facts: dict[str, Any] = {}
    for name, reports in found.items():
        if not reports:
            print(f"{name}: there is no test example, or none with a label: nothing to score")
            continue
        for report in reports:
            metrics |= full_names(split, name, report.metrics)
            facts |= {name: report.facts} if report.facts else {}
        shown = reports[-1:] if reports[-1].tables else reports
        first, *others = (table for report in shown for table in report.tables)
        show(first)
        for line in (line for report in shown for line in report.lines):
            print(line)
        for note in (note for report in shown for note in report.notes):
            print(f"note: {note}")
        if others:
            show(*others)
    write_results(run.metrics, metrics, {**meta, "test_sets": facts} if facts else meta)
    print(run.path)
    return metrics


def samples_of(found: Reports) -> dict[str, tuple[Row, ...]]:
    """Gives the sample of predictions of each test set: that of the report which is shown."""
    return {name: reports[-1].samples or reports[0].samples for name, reports in found.items() if reports}


def _embedded(meta: Mapping[str, Any]) -> bool:
    """Tells whether our own corpus stood in for the dataset's files, so that published figures do not apply."""
    config = meta.get("config") or {}
    blocks = [meta.get("data"), config.get("benchmark"), config.get("data")]
    return any(isinstance(block, Mapping) and source_of(block) == EMBEDDED for block in blocks)
