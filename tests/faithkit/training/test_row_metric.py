"""Validation metrics: each row once, whatever the batches and processes, equal to our own functions."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from critic.sequence.module import validation_metrics as critic_metrics
from faithkit.training.module import RowMetric
from tests.process_groups import in_processes

RNG = np.random.default_rng(4)
LOGITS = RNG.normal(size=(40, 2)).round(1).astype(np.float32)  # rounded, so that scores tie
LABELS = RNG.integers(-1, 2, 40)
VALUES = np.column_stack([LOGITS, LABELS.astype(np.float32)])
COUNTED = VALUES[LABELS >= 0].astype(np.float64)


def filled(metric: RowMetric, values: np.ndarray, order: np.ndarray) -> RowMetric:
    """The metric, shown the rows in this order in batches of seven, with a row of padding in each."""
    for begin in range(0, len(order), 7):
        rows = order[begin : begin + 7]
        numbers = torch.from_numpy(np.append(rows, -1))
        metric.update(numbers, torch.from_numpy(values[np.append(rows, 0)]))
    return metric


def test_the_critics_figures_are_those_of_its_labelled_rows_in_any_order() -> None:
    wanted = critic_metrics(np.arange(len(COUNTED)), COUNTED)
    assert filled(RowMetric(critic_metrics), VALUES, RNG.permutation(40)).compute() == wanted


def test_a_row_that_comes_twice_counts_once() -> None:
    metric = filled(RowMetric(critic_metrics), VALUES, np.arange(40))
    once = metric.compute()
    assert filled(metric, VALUES, np.arange(5)).compute() == once
    metric.reset()
    assert filled(metric, VALUES, np.arange(20)).compute() != once, "a validation begins with no rows"


def figures(numbers: np.ndarray, values: np.ndarray) -> dict[str, float]:
    return {"rows": float(len(numbers)), "ordered": float((values[:, 0] == numbers * 3).all())}


def share_rows() -> None:
    for first, count in (([5, 3, 1], 6.0), ([-1], 3.0)):  # uneven shares, and one of padding alone
        metric = RowMetric(figures)
        for rows in ([4, 2], [0, -1]) if dist.get_rank() else (first,):
            numbers = torch.tensor(rows)
            metric.update(numbers, (numbers * 3).double()[:, None])
        assert metric.compute() == {"rows": count, "ordered": 1.0}


@pytest.mark.slow
def test_two_processes_see_each_row_once() -> None:
    in_processes(2, share_rows)
