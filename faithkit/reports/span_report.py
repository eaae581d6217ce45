"""The report of a test set with marked spans: metrics with simple baselines and published figures, marked responses."""

from collections.abc import Mapping, Sequence

from faithkit.baselines.simple_detectors import BaselineData
from faithkit.baselines.word_overlap import empty_predictions, mismatch_predictions, whole_predictions
from faithkit.metrics.span_metrics import NOTHING_FOUND, score_span_outcomes, span_metrics
from faithkit.metrics.span_outcomes import join_spans
from faithkit.pages.span_tables import (
    LEVEL_TITLES,
    choose_marked,
    headline_table,
    level_table,
    mark_spans,
    marked_table,
    parts_table,
    types_table,
)
from faithkit.published.figures import TASKS, V1, PublishedDetector, are_comparable, published_detectors
from faithkit.records import Example, Prediction
from faithkit.reports.provenance import select_rows
from faithkit.reports.report import Report, Row, Rows, build_sample
from faithkit.statistics.metric import Metric

WHOLE, EMPTY, MISMATCH = "all characters", "no spans", "words not in context"
PREFIXES = {WHOLE: "all_characters_", EMPTY: "no_spans_", MISMATCH: "mismatch_"}  # of the baselines' metrics
ANY_SPAN = "model, any span"  # a response is hallucinated when a span is predicted in it
SHOWN = ("response_f1", "response_precision", "response_recall", "char_f1", "char_precision", "char_recall")
PUBLISHED_BY_TASK = ("Llama-2-13B, fine-tuned", "GPT-4-turbo, prompted")


def has_spans(examples: Sequence[Example]) -> bool:
    """Checks whether spans are marked in the dataset; a response may have none."""
    return bool(examples) and all(example.spans is not None for example in examples)


def span_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    baseline_data: BaselineData | None = None,
    num_resamples: int = 1000,
    num_examples: int = 5,
    is_critic: bool = False,
) -> Report:
    """Computes span metrics, and those of baselines with prefixes (`mismatch_char_f1`, `task/qa/mismatch_char_f1`).

    Predictions without spans get their overall metrics alone, without baselines and tables; those of a critic, which
    cannot mark spans, get the metrics of their labels (`response_f1`).

    Args:
        dataset: The benchmark's name, to show its published figures.
        baseline_data: Rows or thresholds for the mismatch baseline.
        is_critic: The predictions are a critic's.
    """
    outcomes = join_spans(examples, predictions)
    marks_any = bool(outcomes.found.any())

    def select_metrics(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
        if marks_any:
            return dict(metrics)
        return {
            name: metric
            for name, metric in metrics.items()
            if "/" not in name and (not is_critic or (name.startswith("response_") and "by_spans" not in name))
        }

    def rescore(rows: Rows) -> dict[str, Metric]:
        chosen = select_rows(examples, predictions, rows)
        return select_metrics(span_metrics(*chosen, num_resamples=num_resamples).metrics)

    scored = score_span_outcomes(outcomes, num_resamples=num_resamples)
    metrics = select_metrics(scored.metrics)
    if not marks_any:
        return Report(metrics=metrics, notes=() if is_critic else (NOTHING_FOUND,), rescore=rescore, shown=SHOWN)
    threshold = (baseline_data or BaselineData()).fit_overlap("f1")
    baselines = {
        MISMATCH: mismatch_predictions(examples, threshold=threshold),
        WHOLE: whole_predictions(examples),
        EMPTY: empty_predictions(examples),
    }
    systems = {"model": scored.metrics}
    for name, found in baselines.items():
        systems[name] = span_metrics(examples, found, num_resamples=num_resamples).metrics
        metrics |= prefix_metrics(PREFIXES[name], systems[name])
    published = dataset if are_comparable(examples) else ""
    both_rules = {"model": systems["model"], ANY_SPAN: by_any_span(systems["model"])}
    tables = [
        level_table(
            level,
            systems if level == "char" else both_rules | systems,
            published_detectors(published, level),
            title=title,
        )
        for level in LEVEL_TITLES
    ]
    two = {name: systems[name] for name in ("model", MISMATCH)}
    if outcomes.tasks.any():
        by_task = _published_by_task(published)
        tables.append(parts_table("task/", both_rules | two, by_task, title=f"{title} by task, percent"))
    if outcomes.types:
        tables.append(types_table(two, title=f"{title}, character recall by type, percent"))
    if outcomes.models.any():
        tables.append(parts_table("model/", two, title=f"{title} by generator model, percent"))
    chosen = choose_marked(examples, outcomes, num_examples) if num_examples else []
    if num_examples:
        tables.append(marked_table(chosen, predictions, title="predictions to judge, spans in [[ ]]"))
    shown = {name: found for name, found in systems.items() if name != EMPTY}
    return Report(
        metrics=metrics,
        headline=(headline_table(shown, title=title),),
        tables=tuple(tables),
        notes=scored.notes,
        samples=tuple(_sample(example, predictions[example.id]) for example in chosen),
        rescore=rescore,
        shown=SHOWN,
    )


def by_any_span(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Renames the response metrics by spans to those by label.

    RAGTruth's release and other detectors call a response hallucinated when any span is predicted in it.
    """
    inside = "response_by_spans_"
    return {name.replace(inside, "response_"): metric for name, metric in metrics.items() if inside in name}


def _sample(example: Example, prediction: Prediction) -> Row:
    marks = {"gold_spans": example.spans or (), "spans": prediction.spans}
    shown = {name: mark_spans(example.response, spans) for name, spans in marks.items()}
    return build_sample(example, gold=example.label, label=prediction.label, score=prediction.score, **shown)


def prefix_metrics(prefix: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Renames `task/qa/char_f1` to `task/qa/mismatch_char_f1`."""
    return {"/".join([*name.split("/")[:-1], prefix + name.split("/")[-1]]): m for name, m in metrics.items()}


def _published_by_task(dataset: str) -> dict[str, list[PublishedDetector]]:
    """Selects the systems that the paper's first version, the one with tasks, measures on both levels."""
    rows = {
        task: [row for level in LEVEL_TITLES for row in published_detectors(dataset, level, task)] for task in TASKS
    }
    return {
        task: [row for row in found if row.system in PUBLISHED_BY_TASK and row.source == V1]
        for task, found in rows.items()
    }
