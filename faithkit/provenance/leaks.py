"""Counts the test rows that a model has seen: trained on, chosen on (best checkpoint), or calibrated on.

Three things leak: a row (its knowledge with its response), a knowledge text, and a group (a dialogue or document, of
which a model may have seen other rows). A row is leaked where any of the three was seen in any use: what is left is
new to the model. `faithkit.provenance.row_keys` says when two texts are the same. Only our own trainings are known:
not what
weights from elsewhere were pretrained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.provenance.row_keys import NO_KEY, RowKeys, row_keys
from faithkit.provenance.seen_rows import USES, SeenRows
from faithkit.records import Example

WITHOUT = "without_leaked/"  # before the names of metrics of the rows that are left


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Numbers of rows, knowledge texts and groups."""

    rows: int
    knowledge: int
    groups: int

    def to_dict(self) -> dict[str, int]:
        """Gives the three numbers by name."""
        return {"rows": self.rows, "knowledge": self.knowledge, "groups": self.groups}


@dataclass(frozen=True, slots=True, eq=False)
class Leaks:
    """The rows of a test set that a model has seen.

    Args:
        sizes: Its rows, different knowledge texts and groups.
        counts: For each use the same three numbers, of what was seen in that use.
        rows: Marks the leaked rows [N].
    """

    sizes: RowCounts
    counts: dict[str, RowCounts]
    rows: NDArray[np.bool_]

    def to_dict(self) -> dict[str, Any]:
        """Gives the counts as metrics.json has them."""
        return {"of": self.sizes.to_dict(), **{use: n.to_dict() for use, n in self.counts.items()}}


def find_leaks(examples: Sequence[Example], seen: SeenRows) -> Leaks:
    """Finds what was seen of some examples.

    A group was seen where its name was, within its dataset and split, or one of its rows.
    """
    keys = row_keys(examples)
    _, group = np.unique(keys.group, return_inverse=True)
    leaked, counts = np.zeros(len(examples), bool), {}
    for use in USES:
        in_row, in_knowledge, in_group = (
            seen.contains(use, kind, own) for kind, own in zip(RowKeys._fields, keys, strict=True)
        )
        touched = np.bincount(group, in_row | in_group) > 0  # [groups]
        counts[use] = RowCounts(int(in_row.sum()), _distinct(keys.knowledge[in_knowledge]), int(touched.sum()))
        leaked |= in_row | in_knowledge | touched[group]
    sizes = RowCounts(len(examples), _distinct(keys.knowledge), int(group.max(initial=-1)) + 1)
    return Leaks(sizes, counts, leaked)


def _distinct(keys: NDArray[np.uint64]) -> int:
    return len(set(keys.tolist()) - {NO_KEY})
