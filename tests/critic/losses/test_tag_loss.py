"""The loss of tokens, worked out by hand, and what its sharing among processes must keep."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from critic.losses.tag_loss import token_loss
from critic.tagger.module import validation_metrics
from critic.tagger.windows import best_windows, log_odds
from faithkit.records import SPAN_LABELS, UNTYPED

UNTYPED_TAG = SPAN_LABELS.index(UNTYPED) + 1
BINARY = torch.tensor([[0.0, 0.0], [0.0, math.log(3)], [math.log(3), 0.0], [5.0, 5.0]])
TAGS = torch.tensor([0, UNTYPED_TAG, 2, -1])  # under a head without types every type counts as one
BY_ROW = [math.log(2), math.log(4 / 3), math.log(4)]  # the fourth token has no tag
# Probabilities 4/8 outside, then 1/8 for each type.
TYPED = torch.tensor([[math.log(4), 0.0, 0.0, 0.0, 0.0]]).repeat(4, 1)


def loss_of(logits: Tensor, tags: Tensor, **options: float) -> float:
    return float(token_loss(logits, tags, num_tokens=int((tags >= 0).sum()), world_size=1, **options))


def test_four_tokens_by_hand() -> None:
    assert loss_of(BINARY, TAGS) == pytest.approx(sum(BY_ROW) / 3)


def test_a_type_asks_for_itself_and_an_untyped_mark_for_any_type() -> None:
    rows = [math.log(2), math.log(8), math.log(8), math.log(2)]
    assert loss_of(TYPED, torch.tensor([0, 1, 4, UNTYPED_TAG])) == pytest.approx(sum(rows) / 4)
    logits = TYPED[:1].clone().requires_grad_()
    token_loss(logits, torch.tensor([UNTYPED_TAG]), num_tokens=1, world_size=1).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor([[0.5, -0.125, -0.125, -0.125, -0.125]]))


def test_the_weight_is_of_hallucinated_tokens_alone() -> None:
    assert loss_of(BINARY, TAGS, positive_weight=3.0) == pytest.approx((BY_ROW[0] + 3 * BY_ROW[1] + 3 * BY_ROW[2]) / 3)


def test_focal_loss_counts_what_is_sure_less() -> None:
    own = [0.5, 0.75, 0.25]
    wanted = sum((1 - p) ** 2 * row for p, row in zip(own, BY_ROW, strict=True)) / 3
    assert loss_of(BINARY, TAGS, focal_gamma=2.0) == pytest.approx(wanted)
    sure = torch.tensor([[100.0, -100.0]], requires_grad=True)
    token_loss(sure, torch.tensor([0]), num_tokens=1, world_size=1, focal_gamma=0.5).backward()
    assert sure.grad is not None and bool(torch.isfinite(sure.grad).all())


@pytest.mark.parametrize("options", [{}, {"positive_weight": 2.0, "focal_gamma": 1.0}])
def test_the_mean_over_processes_is_the_loss_of_one(options: dict[str, float]) -> None:
    whole = loss_of(BINARY, TAGS, **options)
    shares = [token_loss(BINARY[r::3], TAGS[r::3], num_tokens=3, world_size=3, **options) for r in range(3)]
    assert sum(share.item() for share in shares) / 3 == pytest.approx(whole)


@pytest.mark.parametrize("tags", [[-1, -1], []])
def test_a_share_without_tags_has_no_loss_and_no_gradient(tags: list[int]) -> None:
    logits = torch.zeros(len(tags), 2, requires_grad=True)
    loss = token_loss(logits, torch.tensor(tags, dtype=torch.long), num_tokens=7, world_size=2, focal_gamma=1.0)
    loss.backward()
    assert loss.item() == 0 and logits.grad is not None and not logits.grad.any()


def test_the_odds_are_those_of_all_types_together() -> None:
    torch.testing.assert_close(log_odds(TYPED[:1]), torch.zeros(1))
    torch.testing.assert_close(log_odds(BINARY[1:2]), torch.tensor([math.log(3)]))


def test_a_token_is_read_where_it_is_supported_best() -> None:
    odds = torch.tensor([2.0, 1.0, 0.0, 5.0, 1.0, -1.0])
    token = torch.tensor([0, 1, 2, 2, 1, 0])
    assert best_windows(odds, token, 3).tolist() == [5, 1, 2], "of equal ones the first"
    assert best_windows(odds[:3], torch.tensor([2, 0, 1]), 3).tolist() == [1, 2, 0], "one window each"
    assert best_windows(odds[:0], token[:0], 0).tolist() == []


def test_odds_that_are_no_number_reach_the_loss() -> None:
    odds = torch.tensor([math.nan, math.nan, 1.0])
    best = best_windows(odds, torch.tensor([0, 0, 1]), 2)
    assert best.tolist()[1] == 2 and math.isnan(odds[best[0]])


def test_validation_metrics_of_two_answers_by_hand() -> None:
    answer, odds = np.array([7, 7, 7, 9, 9]), np.array([3.0, -1.0, 2.0, -2.0, 1.0])
    tags, characters = np.array([1, 0, 1, 0, -1]), np.array([4, 3, 2, 5, 9])
    metrics = validation_metrics(answer, odds, tags, characters)
    assert metrics["char_f1"] == metrics["response_f1"] == metrics["token_auroc"] == metrics["response_auroc"] == 1
    harder = validation_metrics(answer, np.array([3.0, 2.5, 2.0, 4.0, 9.0]), tags, characters)
    assert harder["char_f1"] == pytest.approx(2 * 6 / (6 + 14)), "called: all 14 characters, or 4 + 5"
    assert harder["response_f1"] == pytest.approx(2 / 3) and harder["response_auroc"] == 0


def test_a_validation_without_tags_still_has_its_metrics() -> None:
    nothing = validation_metrics(np.zeros(2, int), np.zeros(2), np.array([-1, -1]), np.ones(2))
    assert nothing == {"char_f1": 0.0, "response_f1": 0.0, "loss": 0.0}
    faithful = validation_metrics(np.zeros(2, int), np.zeros(2), np.array([0, 0]), np.ones(2))
    assert faithful["char_f1"] == 0 and "token_auroc" not in faithful
