"""The report of a test set by its rows' own columns: how a model does on each language, customer or version."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.metrics.outcomes import join
from faithkit.pages.tables import figures_table, harmless, percent
from faithkit.records import Example, Prediction
from faithkit.reports.report import Report
from faithkit.statistics.intervals import Metric
from faithkit.statistics.slicing import Slice, sliced_metrics

MAX_VALUES = 20  # of a column; a column of free text has thousands
MAX_CHARACTERS = 60  # of a value in a table
EMPTY = "(empty)"
METRICS = ("macro_f1", "predicted_rate", "gold_rate", "accuracy")


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
    found = sliced_metrics(join(examples, said), fields, METRICS, num_resamples=num_resamples)
    metrics = {
        f"by/{column}/{value}/{name}": metric for (column, value), own in found.items() for name, metric in own.items()
    }
    tables = [_table(f"{title} by {column}, percent", column, values, found) for column, values in fields.items()]
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


def _table(title: str, column: str, values: Sequence[str], found: Mapping[Slice, Mapping[str, Metric]]) -> Table:
    heads, counts = ("rows", "macro-F1", "called", "labelled"), Counter(values)
    table = figures_table(title, column, heads, no_wrap=["rows"], min_width=12)
    for value in in_order(counts):
        own = found[column, value]
        shares = [percent(own.get("macro_f1")), percent(own.get("predicted_rate"))]
        labelled = percent(own.get("gold_rate"), bounds=False)
        table.add_row(Text(harmless(value, MAX_CHARACTERS)), f"{counts[value]:,}", *shares, labelled)
    lines = ["called, labelled: the hallucinated share by the model and by the labels"]
    lines.append("95% intervals over groups; a value of one label alone has no macro-F1")
    table.caption = Text("\n".join(lines))
    return table


def in_order(counts: Mapping[str, int]) -> list[str]:
    """Orders values by how many rows have them; what stands for the rest comes last."""
    return sorted(counts, key=lambda value: (_is_rest(value), -counts[value], value))


def _is_rest(value: str) -> bool:
    return value.startswith("the other ") and value.endswith(" values")
