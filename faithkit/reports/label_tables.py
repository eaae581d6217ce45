"""Reports of labelled test sets: classification metrics with fitted baselines, and metrics by the rows' columns."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.baselines.simple_detectors import Baseline, BaselineData, predict_baselines
from faithkit.metrics.classification import Slice, classification_metrics, classification_statistic, measure_slices
from faithkit.metrics.outcomes import Outcomes, join_outcomes
from faithkit.pages.page_tables import (
    choose_examples,
    escape_terminal,
    format_p,
    format_percent,
    metrics_table,
    new_number_table,
    predictions_table,
)
from faithkit.records import Example, Prediction
from faithkit.reports.parts import flatten_parts, part_metrics, part_tables
from faithkit.reports.report import Report, build_sample
from faithkit.statistics.bootstrap import Difference, resample
from faithkit.statistics.metric import Metric

SHOWN = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "ece")  # all others are in metrics.json
SHOWN_OF_BASELINE = ("macro_f1", "f1", "accuracy", "auroc")
HEADLINE = "macro_f1"
IN_CAPTION = {"f1": "F1", "precision": "precision", "recall": "recall", "accuracy": "accuracy", "ece": "ECE"}
Compared = tuple[Baseline, dict[str, Metric], dict[str, Difference]]  # its metrics, and the model's minus its

MAX_VALUES = 20  # of a column; a column of free text has thousands
MAX_CHARACTERS = 60  # of a value in a table
EMPTY = "(empty)"
COLUMN_METRICS = ("macro_f1", "predicted_rate", "gold_rate", "accuracy")


def label_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    baseline_data: BaselineData | None = None,
    num_resamples: int = 1000,
    num_examples: int = 5,
) -> Report:
    """Computes classification metrics of the model and of baselines (`overlap_macro_f1`), and their differences.

    Differences are `difference/overlap_macro_f1` with the p-value `p_value/overlap_macro_f1`, on the same resamples of
    groups. Some datasets are also scored by part (`domain/task/macro_f1`).

    Args:
        dataset: The benchmark's name, to show its published figures.
    """
    outcomes = join_outcomes(examples, predictions)
    data = baseline_data or BaselineData()
    scored = classification_metrics(outcomes, num_resamples=num_resamples)
    baselines = predict_baselines(examples, data, predictions)
    compared = _compare_baselines(examples, outcomes, baselines, num_resamples)
    metrics = dict(scored.metrics)
    for baseline, found, differences in compared:
        metrics = {f"{baseline.key}_{name}": metric for name, metric in found.items()} | metrics
        for name, difference in differences.items():
            metrics |= difference.to_metrics(f"{baseline.key}_{name}")
    parts = part_metrics(examples, outcomes, predictions, baseline_data=data, num_resamples=num_resamples)
    metrics |= flatten_parts(parts, {baseline.name: baseline.key for baseline, _, _ in compared})
    # Three columns fit 80 characters: the model, the more frequent class and word overlap; the others are below.
    columns = {"model": {name: metric for name, metric in scored.metrics.items() if name in SHOWN}}
    columns |= {baseline.name: found for baseline, found, _ in compared[:2]}
    tables = [metrics_table(columns, title=title), _baselines_table(compared, title=title)]
    tables += part_tables(parts, whole=scored.metrics, title=title, dataset=dataset, source=examples[0].source)
    chosen = choose_examples(examples, predictions, num_examples) if num_examples else []
    if num_examples:
        tables.append(predictions_table(chosen, predictions, title="predictions to judge"))
    samples = [build_sample(e, gold=e.label, label=p.label, score=p.score) for e in chosen for p in [predictions[e.id]]]
    notes, facts = scored.notes, {}
    if refitted := next((baseline for baseline, _, _ in compared if baseline.threshold is not None), None):
        use = f"to use it: faithkit score ... threshold={refitted.threshold:.4f}"
        notes = (*notes, f"threshold fitted on {escape_terminal(refitted.fitted_on)}; {use}")
        facts = {"threshold": refitted.threshold}
    return Report(
        metrics=metrics,
        headline=(headline_table(scored.metrics, compared, title=title),),
        tables=tuple(tables),
        notes=notes,
        samples=tuple(samples),
        facts=facts,
        rescore=lambda rows: classification_metrics(outcomes.select(rows), num_resamples=num_resamples).metrics,
        shown=SHOWN,
    )


def _compare_baselines(
    examples: Sequence[Example], outcomes: Outcomes, baselines: Sequence[Baseline], num_resamples: int
) -> list[Compared]:
    """Scores baselines on the rows of the model, and subtracts their metrics from the model's."""
    model = resample(outcomes.groups, classification_statistic(outcomes), num_resamples=num_resamples)
    compared = []
    for baseline in baselines:
        other = outcomes.with_predictions(baseline.predictions[example.id] for example in examples)
        found = classification_metrics(other, num_resamples=num_resamples).metrics
        resampled = resample(other.groups, classification_statistic(other), num_resamples=num_resamples)
        differences = model.subtract(resampled)
        shown = {name: found[name] for name in SHOWN_OF_BASELINE if name in found}
        compared.append((baseline, shown, {name: differences[name] for name in shown if name in differences}))
    return compared


def headline_table(model: Mapping[str, Metric], compared: Sequence[Compared], *, title: str) -> Table:
    """Shows the macro-F1 of the model and its baselines, and the differences; five columns fit 80 characters."""
    heads = ("macro-F1", "AUROC", "model - baseline", "p")
    table = new_number_table(f"{title}, percent", "system", heads, no_wrap=["AUROC", "p"])
    table.add_row(Text("model", style="bold"), format_percent(model[HEADLINE]), _plain(model.get("auroc")), "", "")
    for baseline, found, differences in compared:
        difference = differences[HEADLINE]
        cells = [format_percent(found[HEADLINE]), _plain(found.get("auroc"))]
        table.add_row(baseline.name, *cells, format_percent(difference.metric), format_p(difference.p_value))
    others = [f"{head} {_plain(model[name])}" for name, head in IN_CAPTION.items() if name in model]
    lines = [f"model: {', '.join(others)}", f"n = {model[HEADLINE].n:,}; 95% intervals over groups, differences paired"]
    table.caption = Text("\n".join(lines))
    return table


def _plain(metric: Metric | None) -> str:
    return format_percent(metric, bounds=False)


def _baselines_table(compared: Sequence[Compared], *, title: str) -> Table:
    """Shows the macro-F1 of each baseline and the difference from it, and the rows that it was fitted on."""
    title = f"{title}: model - baseline, macro-F1 in percent"
    table = new_number_table(title, "baseline", ("macro-F1", "model - baseline", "p"), no_wrap=["p"])
    for baseline, found, differences in compared:
        difference = differences[HEADLINE]
        cells = format_percent(found[HEADLINE]), format_percent(difference.metric), format_p(difference.p_value)
        table.add_row(baseline.name, *cells)
    lines = [f"{baseline.name}: fitted on {escape_terminal(baseline.fitted_on)}" for baseline, _, _ in compared]
    table.caption = Text("\n".join([*lines, "paired, on the same resamples of groups; p two-sided, uncorrected"]))
    return table


def columns_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    columns: Sequence[str],
    *,
    title: str,
    num_resamples: int = 1000,
) -> Report:
    """Computes `by/COLUMN/VALUE/macro_f1` and so on, for the most frequent values and the others together.

    Args:
        columns: Fields of the examples' `meta`, such as a language, a customer or a version.
    """
    fields = {column: most_frequent([str(one.meta[column]) or EMPTY for one in examples]) for column in columns}
    outcomes = join_outcomes(examples, {example.id: predictions[example.id] for example in examples})
    found = measure_slices(outcomes, fields, COLUMN_METRICS, num_resamples=num_resamples)
    metrics = {
        f"by/{column}/{value}/{name}": metric
        for (column, value), scored in found.items()
        for name, metric in scored.items()
    }
    tables = [
        _column_table(f"{title} by {column}, percent", column, values, found) for column, values in fields.items()
    ]
    by = {
        column: {example.id: value for example, value in zip(examples, values, strict=True)}
        for column, values in fields.items()
    }
    return Report(metrics=metrics, headline=tuple(tables), by=by)


def most_frequent(values: Sequence[str]) -> list[str]:
    """Keeps the most frequent values and replaces the others by one, which names their number.

    >>> most_frequent([*"aab", *(str(n) for n in range(100, 150))])[:3]
    ['a', 'a', 'b']
    >>> most_frequent([*"aab", *(str(n) for n in range(100, 150))])[-1]
    'the other 32 values'
    """
    counts = Counter(values)
    if len(counts) <= MAX_VALUES + 1:  # a single other value keeps its name
        return list(values)
    kept = {value for value, _ in counts.most_common(MAX_VALUES)}
    rest = f"the other {len(counts) - len(kept):,} values"
    return [value if value in kept else rest for value in values]


def _column_table(title: str, column: str, values: Sequence[str], found: Mapping[Slice, Mapping[str, Metric]]) -> Table:
    heads, counts = ("rows", "macro-F1", "called", "labelled"), Counter(values)
    table = new_number_table(title, column, heads, no_wrap=["rows"], min_width=12)
    for value in sorted(counts, key=lambda value: (_is_rest(value), -counts[value], value)):
        metrics = found[column, value]
        shares = [format_percent(metrics.get("macro_f1")), format_percent(metrics.get("predicted_rate"))]
        labelled = format_percent(metrics.get("gold_rate"), bounds=False)
        table.add_row(Text(escape_terminal(value, MAX_CHARACTERS)), f"{counts[value]:,}", *shares, labelled)
    lines = ["called, labelled: the hallucinated share by the model and by the labels"]
    lines.append("95% intervals over groups; a value of one label alone has no macro-F1")
    table.caption = Text("\n".join(lines))
    return table


def _is_rest(value: str) -> bool:
    return value.startswith("the other ") and value.endswith(" values")
