"""Divides rows into splits by the dialogue or source that they are of: what is of one group stays together."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data_modules.encoding.cache import group_hash
from data_modules.splits import divide_groups


@dataclass(frozen=True, slots=True)
class Division:
    """Shares of the groups by split; what they leave is `train`. A group's split depends on its name and seed alone."""

    fractions: Mapping[str, float]
    seed: int = 0

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", *(name for name, share in self.fractions.items() if share > 0))

    def split_of(self, group: str) -> str:
        """Gives the split of a group."""
        # Training divides groups by their own hashes: by the same ones nothing would be left to validate on.
        salted = group_hash(f"construction:{group}")
        found = divide_groups(np.array([salted], np.uint64), self.fractions, self.seed)
        return next(name for name, rows in found.items() if len(rows))
