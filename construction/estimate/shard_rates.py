"""Rates over shards of scored rows: adds up what the readings of shards give, whose rows nobody holds.

Sums are added exactly, so the order in which shards come changes nothing. The rates are those of `estimate_report` on
all rows together; a group that lies in several shards counts as one in each.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from construction.estimate.estimate_report import ALL, DETECTOR, LABELS, MAX_PARTS, RATE, others_name
from construction.estimate.estimate_report import Part as Rates
from construction.estimate.shard_steps import LABEL, SCORE, Counting, LeavingOut, Part, Weighed
from construction.estimate.shard_sums import ExactSums, PartSums
from construction.estimate.verdict_tables import Labels, check_chances, check_finished
from faithkit.errors import UserError, shorten
from faithkit.statistics.group_counts import proportion_from_counts
from faithkit.statistics.label_sampling import RANDOM, Wave, check_scores, inclusion_probabilities
from faithkit.statistics.metric import Metric
from faithkit.statistics.prediction_powered import Estimate, LabelSums, estimate_sums, jackknife_error, weighted_terms
from faithkit.statistics.spread import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A labelled row of a shard."""

    id: str
    shard: str
    place: int
    group: str
    part: str | None
    score: float | None
    label: float | None


class ShardRates:
    """The rates of all shards.

    Args:
        counting: The first reading.
        power: Weight of the detector; None tunes it.
    """

    def __init__(self, counting: Counting, *, power: float | None, num_resamples: int):
        self.counting, self.power, self.num_resamples = counting, power, num_resamples
        self._parts: dict[str | None, PartSums] = {None: PartSums()}
        self._spread = {SCORE: ExactSums(1), LABEL: ExactSums(1)}
        self._rows: dict[str, int] = {}  # of each shard
        self.found: dict[str, Found] = {}
        self.drawn: list[tuple[int, str, int]] = []  # lot, shard and place

    @property
    def num_rows(self) -> int:
        """Counts the responses."""
        return self._parts[None].rows

    @property
    def detector(self) -> str:
        """Tells what stands for the detector: its score where it is named, or every row has one."""
        columns, known = self.counting.columns, self._parts[None].detectors[SCORE].values()[0]
        return SCORE if columns.score and (columns.is_named or known == self.num_rows) else LABEL

    @property
    def num_unread(self) -> int:
        """Counts the rows of which the detector says nothing."""
        return self.num_rows - round(self._parts[None].detectors[self.detector].values()[0])

    def add(self, shard: str, counted: Mapping[str, Any]) -> None:
        """Adds what the first reading of a shard gave.

        Raises:
            UserError: An id that people labelled is given twice.
        """
        for one in counted["sums"]:
            self._parts.setdefault(one["name"], PartSums()).add(one)
        for key, sums in self._spread.items():
            sums.add([counted["spread"][key]])
        self._rows[shard] = sum(one["rows"] for one in counted["sums"] if one["name"] is None)
        drawn = [(lot, shard, place) for lot, place in counted["drawn"]]
        self.drawn = heapq.nsmallest(self.counting.draw, [*self.drawn, *drawn])
        for row in counted["found"]:
            if (before := self.found.get(row["id"])) is not None:
                places = " and ".join(sorted({before.shard, shard}))
                hint = "give one row for each response: pipeline.columns.id=NAME of a column that tells them apart"
                raise UserError(f"id {shorten(row['id'])} is given twice", place=places, hint=hint)
            self.found[row["id"]] = Found(shard=shard, **row)

    def weigh(self, labels: Labels) -> dict[str, tuple[float, float]]:
        """Gives the labels with their weights: one over the probability with which each was drawn.

        Probabilities are those that the labels tell, as in `estimate_labels.joined`.

        Raises:
            UserError: Some labels tell how they were drawn and others do not, the last wave is labelled in part, no
                verdict can be used, or more are to be drawn beside labels that were drawn by other scores.
        """
        waves, scores = self.waves(labels), self.scores([self.found[name] for name in labels.values])
        if labels.waves or labels.chances:
            check_chances(labels)
            check_finished(labels, to_draw=False)
            chances = np.array([labels.chances[name] for name in labels.values])
        else:
            chances = inclusion_probabilities(waves, scores, self.mean_spread)
        if not np.all((chances > 0) & (chances <= 1)):
            hint = "leave the column out where every response had the same chance"
            raise UserError("a labelled response needs a probability above 0 and at most 1", hint=hint)
        if self.counting.draw and waves:
            check_scores(chances, inclusion_probabilities(waves, scores, self.mean_spread))
        pairs = zip(labels.values.items(), 1 / chances, strict=True)
        return {name: (value, float(weight)) for (name, value), weight in pairs}

    def waves(self, labels: Labels) -> list[Wave]:
        """Tells the draws of the labels: one at random where the file does not tell; none where it tells chances.

        Raises:
            UserError: More are to be drawn, and the last draw is labelled in part.
        """
        check_finished(labels, to_draw=self.counting.draw > 0)
        if labels.waves or labels.chances or not labels.values:
            return list(labels.waves)
        return [Wave(RANDOM, len(labels.values) / self.num_rows)]

    @property
    def mean_spread(self) -> float:
        """The mean of sqrt(p (1 - p)) of the detector, by which the uncertain rows are drawn."""
        (spread,) = self._spread[self.detector].values()
        return float(spread + self.num_unread * np.sqrt(self.mean * (1 - self.mean))) / self.num_rows

    @property
    def mean(self) -> float:
        """The mean of the detector, which stands for it where it says nothing."""
        count, total, _ = self._parts[None].detectors[self.detector].values()
        if not count:
            raise UserError("no verdict can be used", hint="pipeline.columns.label=NAME or pipeline.columns.score=NAME")
        return total / count

    def shown(self) -> list[str | None]:
        """Names the parts that are told: all rows, then the most frequent values."""
        return [None, *self._values()[:MAX_PARTS]]

    def _values(self) -> list[str]:
        """Names the values of the column to count by, the most frequent first."""
        return sorted((name for name in self._parts if name is not None), key=lambda n: (-self._parts[n].rows, n))

    def leaving_out(self, labels: Weighed, *powers: float | None) -> LeavingOut:
        """The second reading, of the parts that have a label."""
        parts = tuple(
            Part(name=name, total=tuple(self._total(name, labels)))
            for name in self.shown()
            if any(name in (None, self.found[one].part) for one in labels)
        )
        chosen = tuple(dict.fromkeys([self.power, 0.0, *powers]))
        return LeavingOut(
            columns=self.counting.columns,
            labels=labels,
            detector=self.detector,
            mean=self.mean,
            parts=parts,
            powers=chosen,
        )

    def add_up(
        self, step: LeavingOut, labels: Weighed, given: Iterable[tuple[str, Any]]
    ) -> dict[str | None, LabelSums]:
        """Adds up what the second reading gave, by part.

        Args:
            given: The name of each shard with its result.

        Raises:
            UserError: A shard has other rows now.
        """
        left_out = [[ExactSums(3) for _ in step.powers] for _ in step.parts]
        for shard, one in given:
            if one["rows"] != self._rows[shard]:
                hint = "run the same command again when nobody writes"
                raise UserError("the shard was written while it was read", place=shard, hint=hint)
            for sums, found in zip(left_out, one["left_out"], strict=True):
                for own, values in zip(sums, found, strict=True):
                    own.add(values)
        made = {}
        for part, sums in zip(step.parts, left_out, strict=True):
            errors = {
                power: jackknife_error(np.array(own.values())) for power, own in zip(step.powers, sums, strict=True)
            }
            mine = [one for one in labels if part.name in (None, self.found[one].part)]
            made[part.name] = LabelSums(
                total=np.array(part.total),
                num_labels=len(mine),
                num_hallucinated=round(sum(labels[one][0] for one in mine)),
                num_groups=len({(self.found[one].shard, self.found[one].group) for one in mine}),
                error=errors.__getitem__,
            )
        return made

    def rates(self, sums: Mapping[str | None, LabelSums]) -> list[Rates]:
        """The rates of all, then of each value, the most frequent first, then of those beyond `MAX_PARTS`.

        The last have the detector's share alone: the second reading leaves groups out of single values.

        Args:
            sums: Of the parts that have labels.
        """
        told = []
        for name in self.shown():
            metrics, estimate = dict[str, Metric](), None
            if name in sums:
                estimate = estimate_sums(sums[name], power=self.power)
                metrics |= {RATE: estimate.metric, LABELS: estimate_sums(sums[name], power=0.0).metric}
            told.append(self._rates(ALL if name is None else name, [name], metrics, estimate))
        if others := self._values()[MAX_PARTS:]:
            told.append(self._rates(others_name(len(others)), others, {}, None))
        return told

    def _rates(
        self, called: str, names: Sequence[str | None], metrics: dict[str, Metric], estimate: Estimate | None
    ) -> Rates:
        """The rates of some values together, or of all rows."""
        kinds = sum((self._parts[name].kinds for name in names), Counter[tuple[int, int]]())
        listed = [[rows, called, count] for (rows, called), count in sorted(kinds.items())]
        if (share := proportion_from_counts(listed, num_resamples=self.num_resamples)) is not None:
            metrics = {DETECTOR: share, **metrics}
        parts = set(names)
        return Rates(
            name=called,
            num_responses=sum(self._parts[name].rows for name in names),
            num_labels=sum(None in parts or one.part in parts for one in self.found.values()),
            metrics=metrics,
            estimate=estimate,
        )

    def _total(self, name: str | None, labels: Weighed) -> list[float]:
        part, mine = self._parts[name], [one for one in labels if name in (None, self.found[one].part)]
        known, total, squares = part.detectors[self.detector].values()
        unread, sums = part.rows - known, ExactSums(6)
        values, weights = np.array([labels[one] for one in mine]).T
        for terms in np.stack(weighted_terms(values, self.scores([self.found[one] for one in mine]), weights), axis=1):
            sums.add(terms.tolist())
        return [part.rows, total + unread * self.mean, squares + unread * self.mean**2, *sums.values()]

    def scores(self, rows: Sequence[Found]) -> Values:
        """Gives what the detector says of labelled rows."""
        known = (row.score if self.detector == SCORE else row.label for row in rows)
        return np.array([self.mean if value is None else value for value in known])
