"""The report of generated responses: metrics with baselines and another system, judges, and a sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.responses.measure_responses import MetricModels, gold_response, measure_part, measure_responses
from faithkit.metrics.responses.response_columns import MetricColumns, PairedResponses
from faithkit.records import Example, Prediction
from faithkit.reports.provenance import Provenance, add_provenance
from faithkit.reports.report import Report, Row
from faithkit.reports.response_tables import (
    datasets_table,
    differences_table,
    examples_table,
    judge_report,
    sample_rows,
    systems_table,
)
from faithkit.reports.write_reports import EvaluationResult, collect_samples, write_run_results
from faithkit.statistics.bootstrap import Difference, paired_difference
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import Values

GOLD, COPY = "gold", "copy"
ACROSS = "across datasets"  # names no test set
RESPONSE_BASELINES = (GOLD, COPY)


def response_report(
    paired: PairedResponses,
    models: MetricModels,
    *,
    title: str,
    scores_path: Path | None = None,
    baselines: Sequence[str] = RESPONSE_BASELINES,
    num_resamples: int = 1000,
    num_examples: int = 5,
    progress: bool = False,
    origin: Provenance | None = None,
) -> Report:
    """Measures responses, and writes the values of each example as JSON lines to `scores_path`.

    Metrics of baselines are `gold/...` and `copy/...`, without Q2. Those of another system are `against/...`, the
    differences from it `difference/...`, and their p-values `p_value/...`.

    Args:
        baselines: Any of `gold`, the dataset's response, and `copy`, the knowledge as the response.
        origin: Where the responses are from, and what their judges have seen; None leaves it out.
    """
    if unknown := [name for name in baselines if name not in RESPONSE_BASELINES]:
        raise UserError(f"unknown baseline {unknown[0]!r}", hint=f"use {', '.join(RESPONSE_BASELINES)}, or []")
    columns = measure_responses(paired.examples, paired.texts, models, progress=progress)
    scored = columns.scored(num_resamples=num_resamples)
    if scores_path is not None:
        write_scores(scores_path, paired, columns)
    measured = _measure_baselines(paired.examples, models.without_q2(), baselines, num_resamples)
    metrics = dict(scored.metrics)
    for name, (_, found) in measured.items():
        metrics |= {f"{name}/{metric}": value for metric, value in found.items()}
    shown = {"predictions": scored.metrics} | {name: found for name, (_, found) in measured.items()}
    tables = [systems_table(shown, title=title)]
    judged = {"predictions": (columns.columns, scored.metrics)} | measured
    if paired.against is not None:
        theirs = measure_responses(paired.examples, paired.against, models, progress=progress)
        compared = compare_systems(columns, theirs, num_resamples=num_resamples)
        metrics |= compared.metrics
        judged["against"] = (theirs.columns, compared.theirs)
        sides = scored.metrics, compared.theirs, compared.differences
        tables.insert(0, differences_table(*sides, title=f"{title}, paired", judges=models.others))
    judges = judge_report(models.judges, paired.examples, judged, title=title, num_resamples=num_resamples)
    metrics |= judges.metrics
    # Corrected rates are the ones to cite.
    corrected = judges.tables[:1] if any(judge.error for judge in models.judges) else ()
    headline = (tables.pop(0), *corrected)
    tables += judges.tables[len(corrected) :]
    samples: list[Row] = []
    if num_examples:
        tables.append(examples_table(paired.examples, paired.texts, columns, num_examples))
        samples = sample_rows(paired.examples, paired.texts, columns, num_examples)
    notes = (*models.missing, *paired.notes, *scored.notes, *judges.notes)
    answers = [(e, Prediction(id=e.id, text=text)) for e, text in zip(paired.examples, paired.texts, strict=True)]
    report = Report(
        metrics=metrics,
        headline=headline,
        tables=tuple(tables),
        notes=notes,
        samples=tuple(samples),
        answers=answers,
        rescore=lambda rows: measure_part(columns, paired, rows).scored(num_resamples=num_resamples).metrics,
    )
    return add_provenance(report, origin, title=title, build_table=systems_table)


def _measure_baselines(
    examples: Sequence[Example], models: MetricModels, names: Sequence[str], num_resamples: int
) -> dict[str, tuple[Mapping[str, Values], Mapping[str, Metric]]]:
    responses = {
        GOLD: [gold_response(example) for example in examples],
        COPY: [example.knowledge for example in examples],
    }
    measured = {name: measure_responses(examples, responses[name], models) for name in names}
    return {name: (m.columns, m.scored(num_resamples=num_resamples).metrics) for name, m in measured.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A paired bootstrap of two systems: the other's metrics, the differences, and all of it by name."""

    theirs: dict[str, Metric]
    differences: dict[str, Difference]
    metrics: dict[str, Metric]


def compare_systems(first: MetricColumns, second: MetricColumns, *, num_resamples: int = 1000) -> Compared:
    """Subtracts the second system's metrics from the first's, both on the same resampled groups (Koehn 2004)."""
    theirs = second.scored(num_resamples=num_resamples).metrics
    found = paired_difference(first.groups, first.statistic, second.statistic, num_resamples=num_resamples)
    found = {name: difference for name, difference in found.items() if name in theirs}
    metrics = {f"against/{name}": metric for name, metric in theirs.items()}
    for name, one in found.items():
        metrics |= one.to_metrics(name)
    return Compared(theirs=theirs, differences=found, metrics=metrics)


def write_scores(path: Path, paired: PairedResponses, columns: MetricColumns) -> None:
    """Writes one JSON line for each example: its id, the response, every value, and Q2's questions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    every = zip(paired.examples, paired.texts, columns.rows(), strict=True)
    write_jsonl(path, ({"id": example.id, "response": text, **values} for example, text, values in every))


def report_responses(
    run: RunFolder,
    datasets: Mapping[str, PairedResponses],
    models: MetricModels,
    *,
    meta: Mapping[str, Any],
    baselines: Sequence[str],
    num_resamples: int = 1000,
    num_examples: int = 5,
    origins: Mapping[str, Provenance] | None = None,
) -> EvaluationResult:
    """Scores the responses to each dataset, writes metrics.json and `scores/<dataset>.jsonl`, and prints it all."""
    reports = {
        name: [
            response_report(
                paired,
                models,
                title=f"test/{name}",
                scores_path=run.path / "scores" / f"{name}.jsonl",
                baselines=baselines,
                num_resamples=num_resamples,
                num_examples=num_examples,
                progress=True,
                origin=origins[name] if origins else None,
            )
        ]
        for name, paired in datasets.items()
    }
    samples = collect_samples(reports)
    if len(reports) > 1:
        across = datasets_table({name: report.metrics for name, [report] in reports.items()})
        reports = {ACROSS: [Report(metrics={}, headline=(across,))], **reports}
    return EvaluationResult(write_run_results(run, reports, meta=meta), samples)
