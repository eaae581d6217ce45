"""The loss, worked out by hand, and what its sharing among processes must keep."""

import math

import numpy as np
import pytest
import torch

from critic.losses.sequence_loss import batch_loss
from critic.sequence.module import validation_metrics

LOGITS = torch.tensor([[0.0, 0.0], [0.0, math.log(3)], [math.log(3), 0.0], [5.0, 5.0]])
LABELS = torch.tensor([0, 1, 1, -1])
BY_ROW = [math.log(2), math.log(4 / 3), math.log(4)]  # the fourth row has no label


def test_four_rows_by_hand() -> None:
    loss = batch_loss(LOGITS, LABELS, num_rows=4, world_size=1, label_smoothing=0.0)
    assert float(loss) == pytest.approx(sum(BY_ROW) / 4)


def test_the_mean_over_processes_is_the_loss_of_one() -> None:
    whole = batch_loss(LOGITS, LABELS, num_rows=4, world_size=1, label_smoothing=0.1)
    shares = [
        batch_loss(LOGITS[rank::3], LABELS[rank::3], num_rows=4, world_size=3, label_smoothing=0.1) for rank in range(3)
    ]
    assert float(sum(shares)) / 3 == pytest.approx(float(whole))


def test_smoothing_moves_the_target_towards_both_classes() -> None:
    logits = torch.tensor([[0.0, math.log(3)]])
    loss = batch_loss(logits, torch.tensor([1]), num_rows=1, world_size=1, label_smoothing=0.2)
    assert float(loss) == pytest.approx(0.9 * math.log(4 / 3) + 0.1 * math.log(4))


def test_a_share_of_padding_alone_has_no_loss_and_no_gradient() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    loss = batch_loss(logits, torch.tensor([-1]), num_rows=4, world_size=2, label_smoothing=0.0)
    loss.backward()
    assert float(loss) == 0 and logits.grad is not None and not logits.grad.any()


def test_validation_metrics_are_those_of_the_predictions() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 2.0], [0.0, 2.0], [2.0, 0.0]])
    metrics = validation_metrics(logits, np.array([0, 1, 0, 0], np.int8))
    assert metrics["accuracy"] == pytest.approx(0.75)
    assert metrics["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
