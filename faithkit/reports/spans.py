"""The report of a test set with marked spans: beside trivial baselines and published figures, answers to look at."""

from collections.abc import Mapping, Sequence

from faithkit.baselines.simple_detectors import BaselineData
from faithkit.baselines.word_overlap import empty_predictions, mismatch_predictions, whole_predictions
from faithkit.detector import CRITIC
from faithkit.metrics.span_metrics import NOTHING_FOUND, score_span_outcomes, span_metrics
from faithkit.metrics.span_outcomes import join_spans
from faithkit.pages.span_tables import (
    LEVEL_TITLES,
    bracketed,
    choose_marked,
    headline_table,
    level_table,
    marked_table,
    parts_table,
    types_table,
)
from faithkit.published.figures import TASKS, V1, PublishedDetector, are_comparable, published_detectors
from faithkit.records import Example, Prediction
from faithkit.reports.provenance import Provenance, Rows, add_provenance, select_rows
from faithkit.reports.report import Report, Row, build_sample
from faithkit.statistics.metric import Metric

WHOLE, EMPTY, MISMATCH = "all characters", "no spans", "words not in context"
# The baselines' metrics stand beside the tagger's, under names of their own.
PREFIXES = {WHOLE: "all_characters_", EMPTY: "no_spans_", MISMATCH: "mismatch_"}
ANY_SPAN = "model, any span"  # a response is hallucinated when a span is predicted in it
SHOWN = ("response_f1", "response_precision", "response_recall", "char_f1", "char_precision", "char_recall")
BY_TASK = ("Llama-2-13B, fine-tuned", "GPT-4-turbo, prompted")  # of the published systems, beside each task


def has_spans(examples: Sequence[Example]) -> bool:
    """Tells whether people looked for spans in every response; a response may have none."""
    return bool(examples) and all(example.spans is not None for example in examples)


def span_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    fitting: BaselineData | None = None,
    num_resamples: int = 1000,
    num_examples: int = 5,
    origin: Provenance | None = None,
) -> Report:
    """Span metrics, with those of the baselines under prefixes such as `mismatch_char_f1`, `task/qa/mismatch_char_f1`.

    Predictions that mark nothing have their overall metrics alone, without baselines and tables; those of a critic,
    which could not mark anything, have the metrics of their labels (`response_f1`).

    Args:
        dataset: The benchmark's name, where its published figures are to stand beside ours.
        fitting: What the mismatch baseline chooses its threshold on.
        origin: Where the predictions are from; None leaves it out.
    """
    outcomes = join_spans(examples, predictions)
    scored = score_span_outcomes(outcomes, num_resamples=num_resamples)

    marks_nothing = origin is not None and bool(origin.models) and all(m.kind == CRITIC for m in origin.models)

    def score(rows: Rows) -> dict[str, Metric]:
        found = span_metrics(*select_rows(examples, predictions, rows), num_resamples=num_resamples).metrics
        return found if outcomes.found.any() else _of_labels(found) if marks_nothing else _overall(found)

    def finish(report: Report) -> Report:
        return report if origin is None else add_provenance(report, origin, score, title=title, shown=SHOWN)

    if not outcomes.found.any() and marks_nothing:
        return finish(Report(metrics=_of_labels(scored.metrics)))
    if not outcomes.found.any():
        return finish(Report(metrics=_overall(scored.metrics), notes=(NOTHING_FOUND,)))
    baselines = {
        MISMATCH: mismatch_predictions(examples, threshold=(fitting or BaselineData()).overlap("f1")),
        WHOLE: whole_predictions(examples),
        EMPTY: empty_predictions(examples),
    }
    systems = {"model": scored.metrics}
    for name, said in baselines.items():
        systems[name] = span_metrics(examples, said, num_resamples=num_resamples).metrics
    beside = dataset if are_comparable(examples) else ""
    both_rules = {"model": systems["model"], ANY_SPAN: by_any_span(systems["model"])}
    shown = {level: systems if level == "char" else both_rules | systems for level in LEVEL_TITLES}
    tables = [
        level_table(level, shown[level], published_detectors(beside, level), title=title) for level in LEVEL_TITLES
    ]
    two = {name: systems[name] for name in ("model", MISMATCH)}
    if outcomes.tasks.any():
        by_task = both_rules | two
        tables.append(parts_table("task/", by_task, _by_task(beside), title=f"{title} by task, percent"))
    if outcomes.types:
        tables.append(types_table(two, title=f"{title}, character recall by type, percent"))
    if outcomes.models.any():
        tables.append(parts_table("model/", two, title=f"{title} by generator model, percent"))
    headline = headline_table({name: m for name, m in systems.items() if name != EMPTY}, title=title)
    chosen = choose_marked(examples, outcomes, num_examples) if num_examples else []
    if num_examples:
        tables.append(marked_table(chosen, predictions, title="predictions to judge, spans in [[ ]]"))
    metrics = dict(scored.metrics)
    for name in baselines:
        metrics |= prefix_metrics(PREFIXES[name], systems[name])
    samples = tuple(_sample(example, predictions[example.id]) for example in chosen)
    report = Report(metrics=metrics, headline=(headline,), tables=tuple(tables), notes=scored.notes, samples=samples)
    return finish(report)


def _of_labels(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    inside = ("response_by_spans_", "/")
    return {n: m for n, m in metrics.items() if n.startswith("response_") and not any(one in n for one in inside)}


def _overall(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    return {name: metric for name, metric in metrics.items() if "/" not in name}


def by_any_span(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Gives the response's metrics by the spans alone, under the names of those by its label.

    RAGTruth's release and the peers call a response hallucinated when any span is predicted in it.
    """
    inside = "response_by_spans_"
    return {name.replace(inside, "response_"): metric for name, metric in metrics.items() if inside in name}


def _sample(example: Example, prediction: Prediction) -> Row:
    marks = {"gold_spans": example.spans or (), "spans": prediction.spans}
    shown = {name: bracketed(example.response, spans) for name, spans in marks.items()}
    return build_sample(example, gold=example.label, label=prediction.label, score=prediction.score, **shown)


def prefix_metrics(prefix: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """`task/qa/char_f1` as `task/qa/mismatch_char_f1`."""
    return {"/".join([*name.split("/")[:-1], prefix + name.split("/")[-1]]): m for name, m in metrics.items()}


def _by_task(dataset: str) -> dict[str, list[PublishedDetector]]:
    """The paper's figures of the systems that have both levels, from its first version: the one that gives tasks."""
    return {
        task: [
            row
            for level in LEVEL_TITLES
            for row in published_detectors(dataset, level, task)
            if row.system in BY_TASK and row.source == V1
        ]
        for task in TASKS
    }
