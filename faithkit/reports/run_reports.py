"""The reports of a run's test sets: made of examples and predictions, and written with what is shown of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from faithkit.baselines.fitted import Fitting
from faithkit.embedded_name import EMBEDDED, source_of
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.results import full_names, write_results
from faithkit.records import Example, Prediction
from faithkit.reports.labels import label_report
from faithkit.reports.provenance import Provenance
from faithkit.reports.report import Report, Row
from faithkit.reports.spans import has_spans, span_report
from faithkit.reports.write_reports import Telling, tell_reports
from faithkit.statistics.intervals import Metric

TestSets = Mapping[str, tuple[Sequence[Example], Sequence[Prediction]]]
Reports = dict[str, list[Report]]  # of each test set; none where nothing of it is labelled
Origins = Mapping[str, Provenance]


@dataclass(frozen=True, slots=True)
class Scored:
    """The end of an evaluation as its loggers get it: metrics by their full names, and of each test set a sample."""

    metrics: Mapping[str, Metric]
    samples: Mapping[str, Sequence[Row]] = field(default_factory=dict)


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
    """Scores each test set: by label, and where people marked spans by these too.

    Args:
        sets: For each dataset its labelled examples and their predictions.
        fitting: What the baselines are fitted on.
        split: The first part of the metrics' names.
        origins: Of each test set where its predictions are from; None where nothing is to be said of it.
    """
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
        found = [label_report(examples, by_id, dataset=dataset, origin=origin, **options)]
        if has_spans(examples):
            found.append(span_report(examples, by_id, dataset=dataset, origin=origin, **options))
        answers = [(example, by_id[example.id]) for example in examples]
        reports[name] = [replace(report, answers=answers) for report in found]
    return reports


def write_reports(run: RunFolder, found: Reports, *, meta: Mapping[str, Any], split: str = "test") -> dict[str, Metric]:
    """Writes metrics.json, report.md and the page of answers, and shows each test set's headline.

    Args:
        meta: What metrics.json says of itself; its `config` also says how results are told (`Telling`).
        split: The first part of the metrics' names.
    """
    metrics: dict[str, Metric] = {}
    facts: dict[str, Any] = {}
    for name, reports in found.items():
        for report in reports:
            metrics |= full_names(split, name, report.metrics)
            facts |= {name: report.facts} if report.facts else {}
    write_results(run.metrics, metrics, {**meta, "test_sets": facts} if facts else meta)
    tell_reports(run, found, Telling.of(meta.get("config") or {}))
    return metrics


def samples_of(found: Reports) -> dict[str, tuple[Row, ...]]:
    """Gives the sample of predictions of each test set: that of the report which is shown."""
    return {name: reports[-1].samples or reports[0].samples for name, reports in found.items() if reports}


def _embedded(meta: Mapping[str, Any]) -> bool:
    """Tells whether our own corpus stood in for the dataset's files, so that published figures do not apply."""
    config = meta.get("config") or {}
    blocks = [meta.get("data"), config.get("benchmark"), config.get("data")]
    return any(isinstance(block, Mapping) and source_of(block) == EMBEDDED for block in blocks)
