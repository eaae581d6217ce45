"""Sums of what the readings of shards give, the same in whichever order shards come."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from construction.estimate.shard_steps import LABEL, SCORE


class ExactSums:
    """Sums of floats that do not depend on their order."""

    def __init__(self, count: int):
        self._sums = [Fraction(0)] * count
        self._undefined = [False] * count

    def add(self, values: Sequence[float]) -> None:
        """Adds one to each; of what is not finite the sum is NaN."""
        for place, value in enumerate(values):
            if np.isfinite(value):
                self._sums[place] += Fraction(value)
            else:
                self._undefined[place] = True

    def values(self) -> list[float]:
        """Gives the sums as floats."""
        pairs = zip(self._sums, self._undefined, strict=True)
        return [float("nan") if undefined else float(total) for total, undefined in pairs]


@dataclass(slots=True)
class PartSums:
    """The sums over all rows, or over one value of the column to count by."""

    rows: int = 0
    kinds: Counter[tuple[int, int]] = field(default_factory=Counter)
    detectors: dict[str, ExactSums] = field(default_factory=lambda: {SCORE: ExactSums(3), LABEL: ExactSums(3)})

    def add(self, one: Mapping[str, Any]) -> None:
        """Adds those of a shard."""
        self.rows += one["rows"]
        for rows, called, count in one["kinds"]:
            self.kinds[rows, called] += count
        for key, sums in self.detectors.items():
            sums.add(one[key])
