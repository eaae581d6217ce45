"""Sums the accounts of shards: rows and the hallucinated share by column, in memory that does not grow with the rows.

A group that lies in several shards counts as one in each.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table

from faithkit.statistics.group_counts import proportion_from_counts
from faithkit.statistics.metric import Metric
from faithkit_workflows.ray.out_folder import Entry
from faithkit_workflows.tables.shares import MAX_SHOWN_VALUES, make_caption, shares_table

ALL = ""  # the column of all rows
Kinds = Counter[tuple[int, int]]  # rows of a group and hallucinated ones, how often


class Summary:
    """The sum of accounts."""

    def __init__(self) -> None:
        self.num_shards = self.num_rows = self.num_rejected = self.num_unsure = 0
        self.grouped_by = "group"
        self._kinds: dict[str, dict[str, Kinds]] = {}

    def add(self, entry: Entry) -> None:
        """Adds the account of a shard."""
        self.num_shards += 1
        self.num_rows += entry.rows
        self.num_rejected += entry.rejected
        self.num_unsure += entry.unsure
        self.grouped_by = entry.grouped_by
        for column, values in entry.kinds.items():
            known = self._kinds.setdefault(column, {})
            for value, kinds in values.items():
                found = known.setdefault(value, Counter())
                for rows, called, count in kinds:
                    found[rows, called] += count

    def table(self, *, num_resamples: int) -> Table:
        """Shows the share of all rows, and of each value of each column, with their intervals."""
        columns = [column for column in self._kinds if column != ALL]
        parts = list(self._parts(columns))
        shares = ((name, number, _share(kinds, num_resamples)) for name, number, kinds in parts)
        table = shares_table(columns, shares)
        without = self.num_rows - self.num_unsure - (parts[0][1] if parts else 0)
        table.caption = make_caption(self.grouped_by, num_unsure=self.num_unsure, num_without=without)
        return table

    def _parts(self, columns: Sequence[str]) -> Iterator[tuple[str, int, Kinds]]:
        for column, values in self._kinds.items():
            before = f"{column}: " if len(columns) > 1 and column != ALL else ""
            sizes = {value: sum(rows * count for (rows, _), count in kinds.items()) for value, kinds in values.items()}
            ordered = sorted(values, key=lambda value: (-sizes[value], value))
            for value in ordered[:MAX_SHOWN_VALUES]:
                yield before + value, sizes[value], values[value]
            if rest := ordered[MAX_SHOWN_VALUES:]:
                together: Kinds = Counter()
                for value in rest:
                    together.update(values[value])
                yield f"{before}the other {len(rest):,} values", sum(sizes[value] for value in rest), together


def _share(kinds: Kinds, num_resamples: int) -> Metric | None:
    counted = [[rows, called, count] for (rows, called), count in sorted(kinds.items())]
    return proportion_from_counts(counted, num_resamples=num_resamples)
