"""Validation metrics over the rows of all processes: torchmetrics gathers the rows, our own functions compute."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

Figures = Callable[[NDArray[np.int64], NDArray[np.float64]], Mapping[str, float]]


class RowMetric(Metric):
    """Collects rows over a validation and computes figures of all of them together.

    torchmetrics' own metrics add up in fp32, give a class without rows another F1, and have no F1 at its best
    threshold; a training would then choose other checkpoints. So the rows themselves are its state, which it gathers
    from all processes, and the figures are those that the test has.

    Args:
        figures: Takes the numbers of the rows [rows], ascending, and their values [rows, columns] in fp64.
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
        """Takes rows of a batch.

        Args:
            numbers: A number for each row of the validation [rows]; below 0 for padding, which does not count.
            values: [rows, columns].
        """
        real = numbers >= 0
        self.numbers.append(numbers[real].to(self.device))
        self.values.append(values[real].to(self.device))

    def compute(self) -> dict[str, float]:
        """The figures of the rows of all processes."""
        # torchmetrics gives lists in one process, and tensors once it has gathered from several.
        numbers, values = (torch.cat(s) if isinstance(s, list) else s for s in (self.numbers, self.values))
        ascending, first = np.unique(numbers.cpu().numpy(), return_index=True)
        return dict(self.figures(ascending, values.cpu().double().numpy()[first]))
