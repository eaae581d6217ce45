"""Counts the hallucinated share of many verdicts, also by the values of columns, in some bytes a row."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from data_modules.datasets.pair_columns import field_of
from data_modules.encoding.cache import group_hash
from faithkit.errors import UserError
from faithkit.pages.tables import escape_terminal, format_percent, new_number_table
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.group_counts import count_group_kinds, proportion_from_counts
from faithkit.statistics.metric import Metric

MAX_PARTS = 20  # values of a column that the table shows; a column of free text has thousands
MAX_VALUES = 100_000  # of a column that are told apart: those that come later count as the rest
MAX_COUNTED = 1_000  # of these in the account of one shard
MANY_GROUPS = 10_000  # above, groups of one kind are drawn together


class Shares:
    """Verdicts by group and by the values of columns.

    Args:
        by: Columns of the rows, whose values are counted apart.
    """

    def __init__(self, by: Sequence[str] = ()):
        self._groups, self._called = array("Q"), array("b")
        self._numbers: dict[str, dict[str, int]] = {column: {} for column in by}
        self._values = {column: array("i") for column in by}
        self.num_rows = self.num_unsure = 0

    def add(self, values: Mapping[str, Any], example: Example | None, prediction: Prediction | None) -> None:
        """Counts a row; one without a verdict is counted as such alone."""
        self.num_rows += 1
        if prediction is not None and prediction.label is None:
            self.num_unsure += 1
        if example is None or prediction is None or prediction.label in (None, UNPARSED):
            return
        self._groups.append(group_hash(example.group))
        self._called.append(prediction.label == HALLUCINATED)
        for column, numbers in self._numbers.items():
            value = str(field_of(values, column))
            number = numbers.get(value, len(numbers) if len(numbers) < MAX_VALUES else -1)
            if number == len(numbers):
                numbers[value] = number
            self._values[column].append(number)

    def kinds(self) -> dict[str, dict[str, list[list[int]]]]:
        """Counts, of each value of each column, the groups with so many rows, so many of them hallucinated.

        It is all that a share and its interval need, and does not grow with the rows. All rows have the column "".

        Raises:
            UserError: A column has too many values for that.
        """
        groups, called = np.frombuffer(self._groups, np.uint64), np.frombuffer(self._called, np.int8)
        found = {"": {"all": count_group_kinds(groups, called)}}
        for column, numbers in self._numbers.items():
            if len(numbers) > MAX_COUNTED:
                problem = f"by={column} has more than {MAX_COUNTED:,} values in one shard"
                raise UserError(problem, hint="count by a column of few values")
            values = np.frombuffer(self._values[column], np.intc)
            found[column] = {
                name: count_group_kinds(groups[values == n], called[values == n]) for name, n in numbers.items()
            }
        return found

    def table(self, *, grouped_by: str, num_resamples: int) -> Table:
        """Shows the share of all rows, and of each value of each column, with their intervals.

        Args:
            grouped_by: What the rows of a group have in common.
        """
        groups, called = np.frombuffer(self._groups, np.uint64), np.frombuffer(self._called, np.int8)
        shares = (
            (name, len(called[rows]), hallucinated_share(groups[rows], called[rows], num_resamples=num_resamples))
            for name, rows in self._parts()
        )
        table = shares_table(list(self._numbers), shares)
        without = self.num_rows - len(called) - self.num_unsure
        table.caption = caption_of(grouped_by, num_unsure=self.num_unsure, num_without=without)
        return table

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """Gives all rows, then those of each value of each column, the most frequent first."""
        yield "all", slice(None)
        for column, numbers in self._numbers.items():
            before = f"{column}: " if len(self._numbers) > 1 else ""
            values, names = np.frombuffer(self._values[column], np.intc), list(numbers)
            counts = np.bincount(values[values >= 0], minlength=len(names))
            ordered = sorted(range(len(names)), key=lambda number: (-counts[number], names[number]))
            shown = ordered[:MAX_PARTS]
            for number in shown:
                yield before + names[number], values == number
            if len(names) > MAX_PARTS:
                more = "" if len(names) < MAX_VALUES else " or more"
                yield f"{before}the other {len(names) - MAX_PARTS:,}{more} values", ~np.isin(values, shown)


def shares_table(columns: Sequence[str], shares: Iterable[tuple[str, int, Metric | None]]) -> Table:
    """Makes the table of names, numbers of rows, and shares."""
    heads = ("rows", "hallucinated")
    table = new_number_table(
        "Hallucinated responses, percent", ", ".join(columns), heads, no_wrap=heads, show_edge=True
    )
    for name, number, share in shares:
        table.add_row(Text(escape_terminal(name, 60)), f"{number:,}", format_percent(share))
    return table


def caption_of(grouped_by: str | None, *, num_unsure: int, num_without: int) -> Text:
    """Says what the intervals resample (rows alone where nothing groups them), and which rows do not count."""
    of_one = f" of one {escape_terminal(grouped_by, 60)}" if grouped_by else ""
    captions = [f"95% intervals over rows{of_one}, as the detector calls them"]
    if num_unsure:
        captions.append(f"{num_unsure:,} rows that it cannot tell do not count (abstain_at)")
    if num_without:
        captions.append(f"{num_without:,} rows have no verdict and do not count")
    return Text("\n".join(captions))


def hallucinated_share(
    groups: NDArray[np.uint64], called: NDArray[np.int8], *, num_resamples: int, seed: int = 0
) -> Metric | None:
    """Computes a share with its bootstrap interval over groups; None of no rows, no interval of a single group.

    Of very many groups it draws how many of each kind there are (so many rows, so many of them hallucinated), which has
    the same distribution as drawing them one by one.

    Args:
        groups: Hashes of the rows' groups [N].
        called: 1 for hallucinated [N].
    """
    if not len(called):
        return None
    names, index = np.unique(groups, return_inverse=True)
    if len(names) == 1:
        return Metric(value=float(called.mean()), n=len(called))
    if len(names) <= MANY_GROUPS:
        found = Groups(index, len(names))
        statistic = mean_statistic(found, {"share": called})
        return bootstrap(found, statistic, shares=True, num_resamples=num_resamples, seed=seed).metrics["share"]
    return proportion_from_counts(count_group_kinds(groups, called), num_resamples=num_resamples, seed=seed)
