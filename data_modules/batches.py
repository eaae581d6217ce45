"""Batches of encoded examples from several subsets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from data_modules.encoding.pairs import Encoder
from data_modules.encoding.ragged import Ragged, stack_rows
from data_modules.splits import Subset


class Batches(Dataset):
    """Builds whole batches: an item is asked for by all of its rows at once."""

    def __init__(self, subsets: Sequence[Subset], encoder: Encoder):
        self.subsets, self.encoder = list(subsets), encoder
        self.starts = np.cumsum([0] + [len(subset) for subset in self.subsets])

    def lengths(self, column: str = "length") -> NDArray[np.int32]:
        return np.concatenate([np.asarray(s.encoded.columns[column])[s.indices] for s in self.subsets])

    def second_lengths(self) -> NDArray[np.int32] | None:
        """The lengths of the second sequences, where every example has one; else None."""
        every = all("second_length" in s.encoded.columns for s in self.subsets)
        return self.lengths("second_length") if every else None

    def families(self) -> NDArray[np.uint64] | None:
        """The families of the examples, where the encoder reads what they begin with once; else None."""
        if not self.encoder.shares_beginnings:
            return None
        return np.concatenate([np.asarray(s.encoded.columns["family"])[s.indices] for s in self.subsets])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, request: tuple[NDArray[np.int64], int]) -> dict[str, torch.Tensor]:
        rows, num_rows = request
        present = np.maximum(rows, 0)  # a padding row repeats the first example; its index tells it apart
        owners = np.searchsorted(self.starts, present, side="right") - 1
        merged = merge_rows([self._take(int(o), present[owners == o]) for o in np.unique(owners)])
        # Rows arrive grouped by owner: the indices are put in that same order.
        order = np.argsort(owners, kind="stable")
        batch = {name: torch.from_numpy(array) for name, array in self.encoder.collate(merged).items()}
        batch["index"] = torch.from_numpy(rows[order])
        batch["num_rows"] = torch.tensor(num_rows)
        return batch

    def columns(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Returns the cached columns of some rows, which must ascend."""
        owners = np.searchsorted(self.starts, rows, side="right") - 1
        return merge_rows([self._take(int(o), rows[owners == o]) for o in np.unique(owners)])

    def _take(self, owner: int, rows: NDArray[np.int64]) -> dict[str, Any]:
        subset = self.subsets[owner]
        indices = subset.indices[rows - self.starts[owner]]
        columns = subset.encoded.columns
        return {n: c.take(indices) if isinstance(c, Ragged) else c[indices] for n, c in columns.items()}


def merge_rows(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Puts the rows of several columns of the same names behind one another."""
    if len(parts) == 1:
        return parts[0]
    merged: dict[str, Any] = {}
    for name, first in parts[0].items():
        columns = [part[name] for part in parts]
        if isinstance(first, Ragged):
            merged[name] = stack_rows(columns)
        else:
            merged[name] = np.concatenate(columns)
    return merged
