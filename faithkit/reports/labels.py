"""The report of a test set with labels: classification metrics beside fitted baselines, predictions to judge by eye."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.baselines.simple_detectors import Baseline, BaselineData, predict_baselines
from faithkit.metrics.classification import Slice, classification_metrics, compare_predictions, measure_slices
from faithkit.metrics.outcomes import join_outcomes
from faithkit.pages.tables import (
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
from faithkit.reports.provenance import Provenance, Rows, add_provenance, select_rows
from faithkit.reports.report import Report, build_sample
from faithkit.statistics.bootstrap import Difference
from faithkit.statistics.metric import Metric

SHOWN = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "ece")  # the others stand in metrics.json
SHOWN_OF_BASELINE = ("macro_f1", "f1", "accuracy", "auroc")
HEADLINE = "macro_f1"
BESIDE = {"f1": "F1", "precision": "precision", "recall": "recall", "accuracy": "accuracy", "ece": "ECE"}


def label_report(
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
    """Computes classification metrics, with those of each baseline (`overlap_macro_f1`) and what the model has over it.

    Some datasets are also scored by part (`domain/task/macro_f1`).

    The differences are `difference/overlap_macro_f1` with their p-values `p_value/overlap_macro_f1`, both on the same
    resamples of groups.

    Args:
        dataset: The benchmark's name, where its published figures are to stand beside ours.
        origin: Where the predictions are from; None leaves it out.
    """
    scored = classification_metrics(examples, predictions, num_resamples=num_resamples)
    metrics = dict(scored.metrics)
    columns = {"model": {n: m for n, m in scored.metrics.items() if n in SHOWN}}
    rows: list[tuple[Baseline, Metric, Difference]] = []
    for baseline in predict_baselines(examples, predictions, fitting or BaselineData()):
        found = classification_metrics(examples, baseline.predictions, num_resamples=num_resamples).metrics
        columns[baseline.name] = shown = {n: found[n] for n in SHOWN_OF_BASELINE if n in found}
        differences = compare_predictions(examples, predictions, baseline.predictions, num_resamples=num_resamples)
        own = {f"{baseline.key}_{n}": m for n, m in shown.items()}
        metrics = (
            own | metrics | _difference_metrics(baseline.key, differences)
        )  # the majority class has some of its own already
        rows.append((baseline, found[HEADLINE], differences[HEADLINE]))
    # Three columns fit 80 characters: the model, the commoner class and word overlap; the others stand below.
    tables = [metrics_table(dict(list(columns.items())[:3]), title=title), _baselines_table(rows, title=title)]
    headline = headline_table(scored.metrics, columns, rows, title=title)
    parts = part_metrics(examples, predictions, fitting=fitting, num_resamples=num_resamples)
    metrics |= flatten_parts(parts, {baseline.name: baseline.key for baseline, _, _ in rows})
    source = examples[0].source
    tables += part_tables(parts, whole=scored.metrics, title=title, dataset=dataset, source=source)
    chosen = choose_examples(examples, predictions, num_examples) if num_examples else []
    if num_examples:
        tables.append(predictions_table(chosen, predictions, title="predictions to judge"))
    samples = [build_sample(e, gold=e.label, label=p.label, score=p.score) for e in chosen for p in [predictions[e.id]]]
    fitted = next((one for one, _, _ in rows if one.threshold is not None), None)
    notes, facts = scored.notes, {}
    if fitted is not None:
        use = f"to use it: faithkit score ... threshold={fitted.threshold:.4f}"
        notes, facts = (
            (*notes, f"threshold fitted on {escape_terminal(fitted.fitted_on)}; {use}"),
            {"threshold": fitted.threshold},
        )
    report = Report(
        metrics=metrics,
        headline=(headline,),
        tables=tuple(tables),
        notes=notes,
        samples=tuple(samples),
        facts=facts,
    )
    if origin is None:
        return report

    def score(rows: Rows) -> Mapping[str, Metric]:
        return classification_metrics(*select_rows(examples, predictions, rows), num_resamples=num_resamples).metrics

    return add_provenance(report, origin, score, title=title, shown=SHOWN)


def headline_table(
    model: Mapping[str, Metric],
    columns: Mapping[str, Mapping[str, Metric]],
    rows: Sequence[tuple[Baseline, Metric, Difference]],
    *,
    title: str,
) -> Table:
    """Shows the model above its baselines by macro-F1, and what it has over each; five columns fit 80 characters."""
    heads = ("macro-F1", "AUROC", "model less it", "p")
    table = new_number_table(f"{title}, percent", "system", heads, no_wrap=["AUROC", "p"])
    table.add_row(Text("model", style="bold"), format_percent(model[HEADLINE]), _plain(model.get("auroc")), "", "")
    for baseline, value, difference in rows:
        cells = [format_percent(value), _plain(columns[baseline.name].get("auroc"))]
        table.add_row(baseline.name, *cells, format_percent(difference.metric), format_p(difference.p_value))
    others = [f"{head} {_plain(model[name])}" for name, head in BESIDE.items() if name in model]
    lines = [f"model: {', '.join(others)}", f"n = {model[HEADLINE].n:,}; 95% intervals over groups, differences paired"]
    table.caption = Text("\n".join(lines))
    return table


def _plain(metric: Metric | None) -> str:
    return format_percent(metric, bounds=False)


def _difference_metrics(key: str, differences: Mapping[str, Difference]) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for name, one in differences.items():
        if name in SHOWN_OF_BASELINE:
            found |= one.named(f"{key}_{name}")
    return found


def _baselines_table(rows: Sequence[tuple[Baseline, Metric, Difference]], *, title: str) -> Table:
    """Shows each baseline's macro-F1, and the model's less it."""
    heads = ("its own", "model less it", "p")
    title = f"{title}: the model less each baseline, macro-F1 in percent"
    table = new_number_table(title, "baseline", heads, no_wrap=["p"])
    for baseline, value, difference in rows:
        table.add_row(
            baseline.name, format_percent(value), format_percent(difference.metric), format_p(difference.p_value)
        )
    lines = [f"{one.name}: fitted on {escape_terminal(one.fitted_on)}" for one, _, _ in rows]
    table.caption = Text("\n".join([*lines, "paired, on the same resamples of groups; p two-sided, each by itself"]))
    return table


MAX_VALUES = 20  # of a column; a column of free text has thousands
MAX_CHARACTERS = 60  # of a value in a table
EMPTY = "(empty)"
COLUMN_METRICS = ("macro_f1", "predicted_rate", "gold_rate", "accuracy")


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
        columns: Fields of the examples' `meta`.
    """
    fields = {column: most_frequent([str(one.meta[column]) or EMPTY for one in examples]) for column in columns}
    said = {example.id: predictions[example.id] for example in examples}
    found = measure_slices(join_outcomes(examples, said), fields, COLUMN_METRICS, num_resamples=num_resamples)
    metrics = {
        f"by/{column}/{value}/{name}": metric for (column, value), own in found.items() for name, metric in own.items()
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
    """Keeps the most frequent values; the others become one, which tells how many they are.

    >>> most_frequent([*"aab", *(str(n) for n in range(100, 150))])[:3]
    ['a', 'a', 'b']
    >>> most_frequent([*"aab", *(str(n) for n in range(100, 150))])[-1]
    'the other 32 values'
    """
    counts = Counter(values)
    if len(counts) <= MAX_VALUES + 1:  # one alone needs no other name
        return list(values)
    kept = {value for value, _ in counts.most_common(MAX_VALUES)}
    rest = f"the other {len(counts) - len(kept):,} values"
    return [value if value in kept else rest for value in values]


def _column_table(title: str, column: str, values: Sequence[str], found: Mapping[Slice, Mapping[str, Metric]]) -> Table:
    heads, counts = ("rows", "macro-F1", "called", "labelled"), Counter(values)
    table = new_number_table(title, column, heads, no_wrap=["rows"], min_width=12)
    for value in order_values(counts):
        own = found[column, value]
        shares = [format_percent(own.get("macro_f1")), format_percent(own.get("predicted_rate"))]
        labelled = format_percent(own.get("gold_rate"), bounds=False)
        table.add_row(Text(escape_terminal(value, MAX_CHARACTERS)), f"{counts[value]:,}", *shares, labelled)
    lines = ["called, labelled: the hallucinated share by the model and by the labels"]
    lines.append("95% intervals over groups; a value of one label alone has no macro-F1")
    table.caption = Text("\n".join(lines))
    return table


def order_values(counts: Mapping[str, int]) -> list[str]:
    """Orders values by how many rows have them; what stands for the rest comes last."""
    return sorted(counts, key=lambda value: (_is_rest(value), -counts[value], value))


def _is_rest(value: str) -> bool:
    return value.startswith("the other ") and value.endswith(" values")
