"""Counts the hallucinated share of many verdicts, also by the values of columns, in a few bytes per row."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from data_modules.datasets.pair_columns import field_of
from data_modules.encoding.encoding_cache import group_hash
from faithkit.errors import UserError
from faithkit.pages.page_tables import escape_terminal, format_percent, new_number_table
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import count_group_kinds, proportion_from_counts

MAX_SHOWN_VALUES = 20  # of a column in the table; a column of free text has thousands
MAX_VALUES = 100_000  # of a column that are distinguished; later ones are counted together
MAX_SHARD_VALUES = 1_000  # of a column in the summary of a shard


class ShareCounter:
    """Counts verdicts by group and by the values of columns.

    Args:
        by: Columns of the rows whose values are counted separately.
    """

    def __init__(self, by: Sequence[str] = ()):
        self._groups, self._labels = array("Q"), array("b")
        self._numbers: dict[str, dict[str, int]] = {column: {} for column in by}
        self._values = {column: array("i") for column in by}
        self.num_rows = self.num_unsure = 0

    def add(self, values: Mapping[str, Any], example: Example | None, prediction: Prediction | None) -> None:
        """Counts a row, with or without a verdict."""
        self.num_rows += 1
        if prediction is not None and prediction.label is None:
            self.num_unsure += 1
        if example is None or prediction is None or prediction.label in (None, UNPARSED):
            return
        self._groups.append(group_hash(example.group))
        self._labels.append(prediction.label == HALLUCINATED)
        for column, numbers in self._numbers.items():
            value = str(field_of(values, column))
            number = numbers.get(value, len(numbers) if len(numbers) < MAX_VALUES else -1)
            if number == len(numbers):
                numbers[value] = number
            self._values[column].append(number)

    def kinds(self) -> dict[str, dict[str, list[list[int]]]]:
        """Counts the groups of each size and number of hallucinated rows, for each value of each column.

        A share and its interval follow from these counts, which do not grow with the rows. The column "" has all rows.

        Raises:
            UserError: A column has too many values.
        """
        groups, labels = np.frombuffer(self._groups, np.uint64), np.frombuffer(self._labels, np.int8)
        found = {"": {"all": count_group_kinds(groups, labels)}}
        for column, numbers in self._numbers.items():
            if len(numbers) > MAX_SHARD_VALUES:
                problem = f"by={column} has more than {MAX_SHARD_VALUES:,} values in one shard"
                raise UserError(problem, hint="count by a column of few values")
            values = np.frombuffer(self._values[column], np.intc)
            found[column] = {
                name: count_group_kinds(groups[values == n], labels[values == n]) for name, n in numbers.items()
            }
        return found

    def table(self, *, grouped_by: str, num_resamples: int) -> Table:
        """Makes the table of the shares of all rows and of each value of each column, with intervals.

        Args:
            grouped_by: The column that groups the rows.
        """
        groups, labels = np.frombuffer(self._groups, np.uint64), np.frombuffer(self._labels, np.int8)
        shares = (
            (
                name,
                len(labels[rows]),
                proportion_from_counts(count_group_kinds(groups[rows], labels[rows]), num_resamples=num_resamples),
            )
            for name, rows in self._parts()
        )
        table = shares_table(list(self._numbers), shares)
        without = self.num_rows - len(labels) - self.num_unsure
        table.caption = make_caption(grouped_by, num_unsure=self.num_unsure, num_without=without)
        return table

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """Yields all rows, then the rows of each value of each column, the most frequent value first."""
        yield "all", slice(None)
        for column, numbers in self._numbers.items():
            before = f"{column}: " if len(self._numbers) > 1 else ""
            values, names = np.frombuffer(self._values[column], np.intc), list(numbers)
            counts = np.bincount(values[values >= 0], minlength=len(names))
            ordered = sorted(range(len(names)), key=lambda number: (-counts[number], names[number]))
            shown = ordered[:MAX_SHOWN_VALUES]
            for number in shown:
                yield before + names[number], values == number
            if len(names) > MAX_SHOWN_VALUES:
                more = "" if len(names) < MAX_VALUES else " or more"
                yield f"{before}the other {len(names) - MAX_SHOWN_VALUES:,}{more} values", ~np.isin(values, shown)


def shares_table(columns: Sequence[str], shares: Iterable[tuple[str, int, Metric | None]]) -> Table:
    """Makes the table of names, numbers of rows, and shares."""
    heads = ("rows", "hallucinated")
    table = new_number_table(
        "Hallucinated responses, percent", ", ".join(columns), heads, no_wrap=heads, show_edge=True
    )
    for name, number, share in shares:
        table.add_row(Text(escape_terminal(name, 60)), f"{number:,}", format_percent(share))
    return table


def make_caption(grouped_by: str | None, *, num_unsure: int, num_without: int) -> Text:
    """Describes what the intervals resample, and which rows do not count."""
    grouping = f" grouped by {escape_terminal(grouped_by, 60)}" if grouped_by else ""
    captions = [f"95% intervals over rows{grouping}, by the detector's labels"]
    if num_unsure:
        captions.append(f"{num_unsure:,} rows on which it abstains do not count (abstain_at)")
    if num_without:
        captions.append(f"{num_without:,} rows have no verdict and do not count")
    return Text("\n".join(captions))
