"""Estimates rates over shards of scored rows from the sums of their groups, with the estimator for rows in memory.

Memory holds six numbers for each group and value of the column to count by, and no row. A group in several shards is
one group. The shards are added in the order of their names, so the order in which they were read changes nothing.
"""

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from construction.estimate.estimate_report import (
    ALL,
    DETECTOR,
    MAX_PARTS,
    PartRates,
    combine_labels,
    name_of_others,
    next_row,
)
from construction.estimate.shard_verdicts import (
    HALLUCINATED,
    JUDGED,
    ROWS,
    SCORED,
    SCORES,
    SQUARES,
    GroupSums,
    ShardColumns,
    ShardRow,
    ShardSums,
    sum_groups,
)
from construction.estimate.verdict_tables import NO_VERDICTS_HINT, Labels
from faithkit.errors import UserError, shorten
from faithkit.statistics.group_counts import proportion_from_counts
from faithkit.statistics.label_sampling import RANDOM, Wave, check_scores, inclusion_probabilities, write_waves
from faithkit.statistics.prediction_powered import LabelSums, weighted_terms


class ShardRates:
    """The rates of all shards.

    Args:
        shards: The sums of each shard, by name.
        num_drawn: Rows to draw for labelling.

    Raises:
        UserError: A labelled id occurs twice, no verdict can be used, or too few rows are left to draw.
    """

    def __init__(self, columns: ShardColumns, shards: Mapping[str, ShardSums], num_drawn: int = 0):
        ordered = [shards[name] for name in sorted(shards)]
        self.columns = columns
        self.num_rows = sum(shard.num_rows for shard in ordered)
        self.sums = _add_shards([shard.sums for shard in ordered])
        self._totals = self.sums.sums.sum(axis=0)
        # The scores are used if they are named, or every row has one; otherwise the labels, which are 0 or 1.
        self.uses_scores = columns.score is not None and (columns.is_named or self._totals[SCORED] == self.num_rows)
        count, total = (SCORED, SCORES) if self.uses_scores else (JUDGED, HALLUCINATED)
        if not self._totals[count]:
            raise UserError("no verdict can be used", hint=NO_VERDICTS_HINT)
        self.num_unread = self.num_rows - round(self._totals[count])
        self.mean = float(self._totals[total] / self._totals[count])  # replaces missing verdicts
        spread = sum(shard.spreads[0 if self.uses_scores else 1] for shard in ordered)
        self.mean_spread = (spread + self.num_unread * np.sqrt(self.mean * (1 - self.mean))) / self.num_rows
        self.labelled: dict[str, ShardRow] = {}
        for shard in ordered:
            for row in shard.labelled:
                if (other := self.labelled.setdefault(str(row.id), row)) is not row:
                    places = " and ".join(sorted({other.shard, row.shard}))
                    hint = "give one row for each response: pipeline.columns.id=NAME of a column with unique values"
                    raise UserError(f"id {shorten(str(row.id))} is given twice", place=places, hint=hint)
        lots = ((lot, row.shard, row.place, row) for shard in ordered for lot, row in shard.drawn)
        self.drawn = [row for *_, row in heapq.nsmallest(num_drawn, lots, key=lambda one: one[:3])]
        if len(self.drawn) < num_drawn:
            left = len(self.drawn)
            problem = f"{num_drawn:,} responses are to be labelled, and {left:,} are left without a label"
            raise UserError(problem, hint=f"ask for fewer: {left} at most")

    def inclusion(self, labels: Labels) -> tuple[dict[str, float], list[Wave]]:
        """Gives the probability that each label was drawn, and the waves.

        Raises:
            UserError: As `Labels.inclusion`, or more rows are to be drawn and that cannot be done without bias.
        """
        labels.check_finished(to_draw=bool(self.drawn))
        probabilities, waves = labels.inclusion(self.num_rows)
        if self.drawn and labels.values:
            if not waves:
                hint = "draws of faithkit record it: their label_next.csv has a column `waves`"
                raise UserError("how the labels were drawn is not known of the other responses", hint=hint)
            scores = np.array([self._score(self.labelled[name]) for name in labels.values])
            stored = np.array([probabilities[name] for name in labels.values])
            check_scores(stored, inclusion_probabilities(waves, scores, self.mean_spread))
        return probabilities, waves

    def estimate_parts(
        self, labels: Labels, probabilities: Mapping[str, float], *, power: float | None, num_resamples: int
    ) -> list[PartRates]:
        """Estimates the rates of all rows, of each value, the most frequent first, and of the other values."""
        sizes = np.bincount(self.sums.parts, weights=self.sums.sums[:, ROWS], minlength=len(self.sums.names))
        names = self.sums.names if self.columns.by is not None else []
        order = sorted(range(len(names)), key=lambda number: (-sizes[number], names[number]))
        parts: list[tuple[str, list[int] | None]] = [(ALL, None), *((names[n], [n]) for n in order[:MAX_PARTS])]
        if others := order[MAX_PARTS:]:
            parts.append((name_of_others(len(others)), others))
        found = []
        for name, numbers in parts:
            sums = self._sums_of(numbers)
            judged = sums.sums[sums.sums[:, JUDGED] > 0][:, [JUDGED, HALLUCINATED]].astype(np.int64)
            share = proportion_from_counts(_count_kinds(judged), num_resamples=num_resamples)
            metrics = {} if share is None else {DETECTOR: share}
            found.append(combine_labels(name, self._label_sums(sums, numbers, labels, probabilities), metrics, power))
        return found

    def label_sums(self, labels: Labels, probabilities: Mapping[str, float]) -> LabelSums:
        """Gives the sums of all rows, for a plan of labels."""
        return self._label_sums(self._sums_of(None), None, labels, probabilities)

    def _sums_of(self, parts: list[int] | None) -> GroupSums:
        """Sums the groups of some parts; None means all."""
        here = slice(None) if parts is None else np.isin(self.sums.parts, parts)
        groups, sums = self.sums.groups[here], self.sums.sums[here]
        return sum_groups([""], groups, np.zeros(len(groups), np.int32), sums)

    def _label_sums(
        self, sums: GroupSums, parts: list[int] | None, labels: Labels, probabilities: Mapping[str, float]
    ) -> LabelSums:
        names = None if parts is None else {self.sums.names[number] for number in parts}
        ids = [one for one in labels.values if names is None or self.labelled[one].part in names]
        count, total, squares = (SCORED, SCORES, SQUARES) if self.uses_scores else (JUDGED, HALLUCINATED, HALLUCINATED)
        rows = sums.sums[:, ROWS]
        missing = rows - sums.sums[:, count]
        table = np.zeros((len(rows), 9))
        table[:, 0] = rows
        table[:, 1] = sums.sums[:, total] + missing * self.mean
        table[:, 2] = sums.sums[:, squares] + missing * self.mean**2
        values = np.array([labels.values[one] for one in ids])
        scores = np.array([self._score(self.labelled[one]) for one in ids])
        weights = 1 / np.array([probabilities[one] for one in ids])
        groups = np.searchsorted(sums.groups, np.array([self.labelled[one].group for one in ids], np.uint64))
        if ids:
            np.add.at(table[:, 3:], groups, np.stack(weighted_terms(values, scores, weights), axis=1))
        return LabelSums.of_groups(
            table,
            num_labels=len(ids),
            num_hallucinated=round(values.sum()),
            num_groups=len(np.unique(groups)),
        )

    def _score(self, row: ShardRow) -> float:
        score = row.score if self.uses_scores else row.label
        return score if np.isfinite(score) else self.mean

    def next_rows(
        self, labels: Labels, waves: list[Wave], texts: Mapping[str, Mapping[int, Mapping[str, str]]]
    ) -> list[dict[str, object]]:
        """Makes the rows of label_next.csv: those that were drawn, then those that are labelled already.

        Args:
            texts: The id and texts of each of them, by shard and place.
        """
        all_waves = [*waves, Wave(RANDOM, len(self.drawn) / (self.num_rows - len(self.labelled)))]
        rows = [*self.drawn, *self.labelled.values()]  # the first of the drawn rows are a random sample too
        scores = np.array([self._score(row) for row in rows])
        probabilities, text = inclusion_probabilities(all_waves, scores, self.mean_spread), write_waves(all_waves)
        found = []
        for row, score, probability in zip(rows, scores, probabilities, strict=True):
            shown = dict(texts[row.shard][row.place])
            id_ = shown.pop("id")
            found.append(next_row(id_, labels.values.get(id_), float(score), float(probability), text) | shown)
        return found

    def places(self) -> dict[str, list[int]]:
        """Gives the places of the rows of label_next.csv, by shard."""
        places: dict[str, list[int]] = {}
        for row in (*self.drawn, *self.labelled.values()):
            places.setdefault(row.shard, []).append(row.place)
        return places


def _add_shards(shards: Sequence[GroupSums]) -> GroupSums:
    numbers: dict[str, int] = {}
    parts = [np.array([numbers.setdefault(name, len(numbers)) for name in s.names], np.int32)[s.parts] for s in shards]
    groups, sums = (np.concatenate([getattr(shard, name) for shard in shards]) for name in ("groups", "sums"))
    return sum_groups(list(numbers), groups, np.concatenate(parts), sums)


def _count_kinds(judged: NDArray[np.int64]) -> list[list[int]]:
    """Counts the groups with so many judged and so many hallucinated rows [G, 2]."""
    base = int(judged[:, 1].max(initial=0)) + 1
    pairs, counts = np.unique(judged[:, 0] * base + judged[:, 1], return_counts=True)
    return np.column_stack([pairs // base, pairs % base, counts]).tolist()
