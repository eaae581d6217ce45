"""Validation metrics over the rows of all processes: torchmetrics gathers the rows, our functions compute."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

Figures = Callable[[NDArray[np.int64], NDArray[np.float64]], Mapping[str, float]]


class RowMetric(Metric):
    """Collects the rows of a validation and computes metrics of all of them together.

    The metrics of torchmetrics add up in fp32, define the F1 of a class without rows differently, and have no F1 at the
    best threshold; a training would choose other checkpoints with them. So the state is the rows themselves, which are
    gathered from all processes, and the metrics are those of the test.

    Args:
        figures: Takes the keys of the rows in ascending order, and their values [rows, columns] in fp64.
    """

    full_state_update = False
    numbers: list[Tensor]
    values: list[Tensor]

    def __init__(self, figures: Figures, **options: Any):
        super().__init__(**options)
        self.figures = figures
        self.add_state("numbers", default=[], dist_reduce_fx="cat")
        self.add_state("values", default=[], dist_reduce_fx="cat")

    def update(self, numbers: Tensor, values: Tensor) -> None:
        """Adds rows of a batch.

        Args:
            numbers: A unique key for each row of the validation, a number [rows] or several [rows, keys]; rows with a
                number below 0 are padding and ignored.
            values: [rows, columns].
        """
        real = numbers >= 0 if numbers.ndim == 1 else (numbers >= 0).all(1)
        self.numbers.append(numbers[real].to(self.device))
        self.values.append(values[real].to(self.device))

    def compute(self) -> dict[str, float]:
        """Computes the metrics of the rows of all processes."""
        # The states are lists in one process, and tensors after gathering from several.
        numbers, values = (torch.cat(s) if isinstance(s, list) else s for s in (self.numbers, self.values))
        keys = numbers.cpu().numpy()
        columns = keys[:, None] if keys.ndim == 1 else keys
        order = np.lexsort(columns.T[::-1])  # many times as fast as np.unique with an axis
        is_first = np.ones(len(keys), bool)
        is_first[1:] = (columns[order[1:]] != columns[order[:-1]]).any(1)
        rows = order[is_first]
        return dict(self.figures(keys[rows], values.cpu().double().numpy()[rows]))
