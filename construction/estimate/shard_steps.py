"""The two readings of each shard behind rates over shards: sums of all rows, then the jackknife's without each group.

What they give is plain values, small however many rows a shard has. A group that lies in several shards counts as one
in each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from construction.estimate.shard_verdicts import ShardColumns, ShardVerdicts, read_shard
from data_modules.encoding.cache import group_hash
from faithkit.statistics.group_counts import count_group_kinds
from faithkit.statistics.prediction_powered import leave_out_sums, weighted_terms
from faithkit.statistics.spread import Values

SCORE, LABEL = "score", "label"  # what stands for the detector: its score where every row has one, else its verdict
CHUNK = 65_536  # groups that are left out at a time
Weighed = Mapping[str, tuple[float, float]]  # by id: the label, and 1 / the probability that it was drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """Sums up a shard.

    Args:
        ids: Of the rows that people labelled; None where ids are not asked for.
        draw: How many rows of all shards are drawn by chance to be labelled, among those that are not.
        seed: Of the draw.
    """

    columns: ShardColumns
    ids: frozenset[str] | None = None
    draw: int = 0
    seed: int = 0

    def __call__(self, file: Path, shard: str) -> dict[str, Any]:
        """Gives the sums of all rows and of each value, and the labelled rows."""
        rows = read_shard(file, self.columns, self.ids, shard)
        detectors = {SCORE: rows.scores, LABEL: rows.called}
        sums = []
        for name, places in rows.by_part():
            called = rows.called[places]
            judged = np.isfinite(called)
            one: dict[str, Any] = {"name": name, "rows": len(places)}
            one["kinds"] = count_group_kinds(rows.groups[places][judged], called[judged])
            one |= {key: _moments(values[places]) for key, values in detectors.items()}
            sums.append(one)
        return {
            "sums": sums,
            "spread": {key: _spread(values) for key, values in detectors.items()},
            "found": [_found(rows, place, id_) for place, id_ in rows.found],
            "drawn": self._drawn(rows, shard),
        }

    def _drawn(self, rows: ShardVerdicts, shard: str) -> list[list[int]]:
        """Gives the rows with the lowest numbers of a lottery, and these: the lowest of all shards are the sample."""
        if not self.draw:
            return []
        lots = np.random.default_rng([self.seed, group_hash(shard)]).integers(2**63, size=len(rows.called))
        left = np.ones(len(lots), bool)
        left[[place for place, _ in rows.found]] = False
        places = np.flatnonzero(left)
        lowest = places[np.argsort(lots[places], kind="stable")[: self.draw]]
        return [[int(lots[place]), int(place)] for place in lowest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The sums of a part, as a shard's are left out of them.

    Args:
        name: Value of the column to count by; None for all rows.
        total: As `prediction_powered.Sums` has them [9].
    """

    name: str | None
    total: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingOut:
    """Leaves each group of a shard out of the estimate once.

    Args:
        detector: SCORE or LABEL.
        mean: Of the detector, for rows of which it says nothing.
        powers: Weights of the detector; None tunes it.
    """

    columns: ShardColumns
    labels: Weighed
    detector: str
    mean: float
    parts: tuple[Part, ...]
    powers: tuple[float | None, ...]

    def __call__(self, file: Path, shard: str) -> dict[str, Any]:
        """Gives what `leave_out` does for each part and power, and the number of rows."""
        rows = read_shard(file, self.columns, frozenset(self.labels), shard)
        places = dict(rows.by_part())
        scores = rows.scores if self.detector == SCORE else rows.called
        scores = np.where(np.isfinite(scores), scores, self.mean)
        labelled = np.zeros((len(scores), 2))  # label and weight
        for place, id_ in rows.found:
            labelled[place] = self.labels[id_]
        left_out = []
        for part in self.parts:
            here = places.get(part.name, np.empty(0, np.intp))
            left_out.append(self._leave_out(rows.groups[here], scores[here], labelled[here], part))
        return {"rows": len(scores), "left_out": left_out}

    def _leave_out(self, groups: NDArray[Any], scores: Values, labelled: Values, part: Part) -> list[list[float]]:
        names, index = np.unique(groups, return_inverse=True)
        own = [np.bincount(index), np.bincount(index, scores), np.bincount(index, scores * scores)]
        known = np.flatnonzero(labelled[:, 1])
        added = np.stack(weighted_terms(labelled[known, 0], scores[known], labelled[known, 1]), axis=1)  # [labelled, 6]
        total, found = np.array(part.total), np.zeros((len(self.powers), 3))
        for start in range(0, len(names), CHUNK):
            table = np.zeros((min(CHUNK, len(names) - start), 9))
            table[:, :3] = np.stack([values[start : start + CHUNK] for values in own], axis=1)
            here = (index[known] >= start) & (index[known] < start + CHUNK)
            np.add.at(table[:, 3:], index[known][here] - start, added[here])
            found += [leave_out_sums(total, table, power) for power in self.powers]
        return found.tolist()


def _moments(values: Values) -> list[float]:
    """How many are known, and the sums of them and of their squares."""
    known = values[np.isfinite(values)]
    return [len(known), float(known.sum()), float((known * known).sum())]


def _spread(values: Values) -> float:
    known = values[np.isfinite(values)]
    return float(np.sqrt(known * (1 - known)).sum())


def _found(rows: ShardVerdicts, place: int, id_: str) -> dict[str, Any]:
    group = format(int(rows.groups[place]), "x")
    part = rows.names[rows.parts[place]] if rows.names else None
    detectors = {SCORE: rows.scores[place], LABEL: rows.called[place]}
    return {"id": id_, "place": place, "group": group, "part": part} | {
        key: float(value) if np.isfinite(value) else None for key, value in detectors.items()
    }
