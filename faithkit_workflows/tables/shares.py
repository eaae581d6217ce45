"""Counts the hallucinated share of many verdicts, also by the values of columns, in a few bytes per row."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from data_modules.datasets.pair_columns import field_of
from data_modules.reading.conversations import describe_left_out
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.metrics.classification import CLASSES, Outcomes, classification_metrics
from faithkit.pages.page import AgentTurn
from faithkit.pages.page_tables import escape_terminal, format_percent, new_number_table
from faithkit.provenance.row_keys import group_hash
from faithkit.records import CALLS, HALLUCINATED, UNPARSED, Example, Prediction, parse_calls
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import count_group_kinds, proportion_from_counts

MAX_SHOWN_VALUES = 20  # of a column in the table; a column of free text has thousands
MAX_VALUES = 100_000  # of a column that are distinguished; later ones are counted together
MAX_SHARD_VALUES = 1_000  # of a column in the summary of a shard


class Share(NamedTuple):
    """The hallucinated share of some rows.

    Args:
        key: Begins the names of its metrics; None for the rows of rare values.
    """

    name: str
    key: str | None
    num_rows: int
    num_hallucinated: int
    metric: Metric | None


class ShareCounter:
    """Counts verdicts by group and by the values of columns, and compares them with labels, where rows have some.

    Args:
        by: Columns of the rows whose values are counted separately.
        label: The column of the labels; a value that is none of theirs counts in `num_unknown`.
        unsure_from: The probability from which a faithful row counts as unsure.
    """

    def __init__(self, by: Sequence[str] = (), label: str | None = None, *, unsure_from: float | None = None):
        self._groups, self._labels = array("Q"), array("b")
        self._numbers: dict[str, dict[str, int]] = {column: {} for column in by}
        self._values = {column: array("i") for column in by}
        self._label = label
        self._gold_groups, self._gold, self._called, self._scores = array("Q"), array("b"), array("b"), array("d")
        self._unsure_from, self._num_doubtful = unsure_from, 0
        self.num_rows = self.num_unsure = self.num_unknown = self._num_unparsed = 0

    def add(self, values: Mapping[str, Any], example: Example | None, prediction: Prediction | None) -> None:
        """Counts a row, with or without a verdict."""
        self.num_rows += 1
        if prediction is not None and prediction.label is None:
            self.num_unsure += 1
        if example is not None and prediction is not None and self._label is not None:
            if example.label is None:
                self.num_unknown += field_of(values, self._label) not in (None, "")
            elif prediction.label is not None:
                self._gold_groups.append(group_hash(example.group))
                self._gold.append(example.label == HALLUCINATED)
                self._called.append(CLASSES.index(prediction.label))
                self._scores.append(np.nan if prediction.score is None else prediction.score)
        if example is None or prediction is None or prediction.label in (None, UNPARSED):
            self._num_unparsed += prediction is not None and prediction.label == UNPARSED
            return
        self._groups.append(group_hash(example.group))
        self._labels.append(prediction.label == HALLUCINATED)
        if prediction.label != HALLUCINATED and self._unsure_from is not None and prediction.score is not None:
            self._num_doubtful += prediction.score >= self._unsure_from
        for column, numbers in self._numbers.items():
            value = str(field_of(values, column))
            number = numbers.get(value, len(numbers) if len(numbers) < MAX_VALUES else -1)
            if number == len(numbers):
                numbers[value] = number
            self._values[column].append(number)

    def metrics(self, shares: Iterable[Share], *, num_resamples: int) -> dict[str, Metric]:
        """Returns the shares as `predicted_rate`, those of values as `by/COLUMN/VALUE/predicted_rate`.

        If rows have labels, the metrics of classification on these rows are added.
        """
        found: dict[str, Metric] = {}
        if self._gold:
            names, index = np.unique(np.frombuffer(self._gold_groups, np.uint64), return_inverse=True)
            gold, called = np.frombuffer(self._gold, np.int8), np.frombuffer(self._called, np.int8)
            outcomes = Outcomes(gold, called, np.frombuffer(self._scores, np.float64), Groups(index, len(names)))
            found |= classification_metrics(outcomes, num_resamples=num_resamples).metrics
        return found | {f"{one.key}predicted_rate": one.metric for one in shares if one.metric and one.key is not None}

    @property
    def calls(self) -> tuple[Any, Any]:
        """1 for each row that is called hallucinated, and the hash of its group."""
        return np.frombuffer(self._labels, np.int8), np.frombuffer(self._groups, np.uint64)

    def describe_verdicts(self) -> str:
        """States the shares of the verdicts; empty for a detector that is never unsure."""
        total, called = len(self._labels), sum(self._labels)
        if self._unsure_from is None or not total:
            return ""
        shares = {"hallucinated": called, "unsure": self._num_doubtful, "faithful": total - called - self._num_doubtful}
        shown = ", ".join(f"{name} {100 * number / total:.1f}%" for name, number in shares.items())
        return f"Verdicts: {shown} (unsure: from {self._unsure_from:.2f} to the threshold, with the label faithful)"

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

    def shares(self, *, num_resamples: int) -> list[Share]:
        """Computes the shares of all rows and of each value of each column, the most frequent value first.

        Raises:
            UserError: Every reply was unreadable, so that there is no share, and no error rate either.
        """
        if self._num_unparsed and not self._labels and not self.num_unsure:
            problem = f"none of {self._num_unparsed:,} replies could be read as a verdict, so there is no rate"
            raise UserError(
                problem, hint="the rows with the replies are in the run's folder; use another model or judge.ask"
            )
        groups, labels = np.frombuffer(self._groups, np.uint64), np.frombuffer(self._labels, np.int8)
        found = []
        for name, key, rows in self._parts():
            counts = count_group_kinds(groups[rows], labels[rows])
            metric = proportion_from_counts(counts, num_resamples=num_resamples)
            found.append(Share(name, key, len(labels[rows]), int(labels[rows].sum()), metric))
        return found

    def _parts(self) -> Iterator[tuple[str, str | None, Any]]:
        """Yields name, key and rows of each share: a mask takes a byte for each row."""
        yield "all", "", slice(None)
        for column, numbers in self._numbers.items():
            before = f"{column}: " if len(self._numbers) > 1 else ""
            values, names = np.frombuffer(self._values[column], np.intc), list(numbers)
            counts = np.bincount(values[values >= 0], minlength=len(names))
            ordered = sorted(range(len(names)), key=lambda number: (-counts[number], names[number]))
            shown = ordered[:MAX_SHOWN_VALUES]
            for number in shown:
                yield before + names[number], f"by/{column}/{names[number]}/", values == number
            if len(names) > MAX_SHOWN_VALUES:
                more = "" if len(names) < MAX_VALUES else " or more"
                name = f"{before}the other {len(names) - MAX_SHOWN_VALUES:,}{more} values"
                yield name, None, ~np.isin(values, shown)

    def table(self, shares: Iterable[Share], *, grouped_by: str) -> Table:
        """Makes the table of shares.

        Args:
            grouped_by: The column that groups the rows.
        """
        return shares_table(
            list(self._numbers),
            ((one.name, one.num_rows, one.metric) for one in shares),
            grouped_by,
            num_unsure=self.num_unsure,
            num_without=self.num_rows - len(self._labels) - self.num_unsure,
        )


def shares_table(
    columns: Sequence[str],
    shares: Iterable[tuple[str, int, Metric | None]],
    grouped_by: str | None,
    *,
    num_unsure: int = 0,
    num_without: int,
) -> Table:
    """Makes the table of names, numbers of rows, and shares.

    Its caption describes what the intervals resample, and which rows do not count.
    """
    heads = ("rows", "hallucinated")
    table = new_number_table(
        "Hallucinated responses, percent", ", ".join(columns), heads, no_wrap=heads, show_edge=True
    )
    for name, number, share in shares:
        table.add_row(Text(escape_terminal(name, 60)), f"{number:,}", format_percent(share))
    grouping = f" grouped by {escape_terminal(grouped_by, 60)}" if grouped_by else ""
    captions = [f"95% intervals over rows{grouping}, by the detector's labels"]
    if num_unsure:
        captions.append(f"{num_unsure:,} rows on which it abstains do not count (abstain_at)")
    if num_without:
        captions.append(f"{num_without:,} rows have no verdict and do not count")
    table.caption = Text("\n".join(captions))
    return table


def read_turn(row: Mapping[str, Any]) -> AgentTurn | None:
    """Returns the place of a row of `expand_conversations` in its conversation; None for a row of another table."""
    calls, texts = parse_calls(row.get(CALLS)), [row.get("sources"), row.get("context")]
    has_texts = all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in texts)
    if calls is None or not has_texts or not isinstance(row.get("turn"), int):
        return None
    return AgentTurn(conversation=str(row.get("conversation")), number=row["turn"], sources=row["sources"], calls=calls)


class ConversationCounter:
    """Collects a line for each conversation; rows of other tables are not counted."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, row: Mapping[str, Any], example: Example | None, prediction: Prediction | None) -> None:
        """Counts the verdict on a turn."""
        turn = None if prediction is None else read_turn(row)
        if prediction is None or turn is None:
            return
        name = turn.conversation
        new = {"conversation": name, "turns": 0, "unsupported": 0, "share": 0.0, "first_unsupported": None}
        line = self.found.setdefault(name, new)
        line["turns"] += 1
        if prediction.label == HALLUCINATED:
            line["unsupported"] += 1
            line["first_unsupported"] = line["first_unsupported"] or turn.number
        line["share"] = line["unsupported"] / line["turns"]

    def describe(self, report: ReadReport) -> list[str]:
        """Describes the conversations, and what of them was not judged."""
        if not self.found:
            return []
        wrong = [line for line in self.found.values() if line["unsupported"]]
        lines = [f"{len(wrong):,} of {len(self.found):,} conversations have a turn called hallucinated"]
        if wrong:
            worst = max(wrong, key=lambda line: line["unsupported"])
            lines[0] += f"; most in {worst['conversation']}: {worst['unsupported']} of {worst['turns']} turns"
            lines[0] += f", the first is turn {worst['first_unsupported']}"
        lines[0] += " (conversations.jsonl)"
        return lines + describe_left_out(report)
