"""Objectives on losses written by hand: which tokens count, how much, and the same for any number of processes."""

import numpy as np
import pytest
import torch

from generation.control import Ctrl
from generation.objectives.infonce import InfoNce
from generation.objectives.loss_truncation import LossTruncation
from generation.objectives.mle import Mle
from tests.generation.docstrings import run_examples
from tests.generation.steps import Share, gradient, step_of


def truncation(**values: float) -> LossTruncation:
    options = {"drop_fraction": 0.5, "window": 4, "hot_start": 4, "recompute_every": 4, **values}
    return LossTruncation(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("documented", [Mle, LossTruncation, InfoNce, Ctrl])
def test_the_example_of_the_docstring_runs(documented: type) -> None:
    assert 2 <= run_examples(documented) <= 6


def test_likelihood_is_the_mean_over_tokens_and_two_processes_make_the_gradient_of_one() -> None:
    whole = step_of([[1.0, 2.0, 3.0], [10.0], [4.0, 5.0]])
    loss = Mle()(whole)
    assert loss.item() == pytest.approx(25 / 6) and gradient(loss, whole) == pytest.approx([1 / 6] * 6)
    shares = [step_of(rows, processes=Share([torch.tensor(6)])) for rows in ([[1.0, 2.0, 3.0], [4.0, 5.0]], [[10.0]])]
    first, second = (gradient(Mle()(share), share) for share in shares)
    assert [value / 2 for value in first + second] == pytest.approx([1 / 6] * 6)


def test_nothing_is_dropped_before_the_hot_start_and_the_worst_half_behind_it() -> None:
    objective = truncation(hot_start=6)
    for rows, kept in [
        ([[1.0], [9.0]], [True, True]),
        ([[2.0], [8.0]], [True, True]),
        # The window is now [5, 4, 2, 8]: losses above their median, 4.5, are left out.
        ([[5.0], [4.0]], [False, True]),
        ([[4.5], [4.6]], [True, False]),
        ([[100.0], [4.4]], [False, True]),  # the cutoff stays until four more have been seen
    ]:
        step = step_of(rows)
        loss = objective(step)
        assert [share > 0 for share in gradient(loss, step)] == kept, rows
        counted = [row[0] for row, stays in zip(rows, kept, strict=True) if stays]
        assert loss.item() == pytest.approx(sum(counted) / len(counted))
    # Four were seen since: the window is [4.5, 4.6, 100, 4.4].
    assert float(objective.cutoff) == pytest.approx(np.median([4.5, 4.6, 100.0, 4.4]))


def test_dropped_responses_may_count_as_zero() -> None:
    rows = [[1.0, 1.0], [8.0, 8.0, 8.0], [2.0], [9.0]]  # the last and the second are above the median
    own, released = step_of(rows), step_of(rows)
    loss, zero = truncation()(own), truncation(dropped_as_zero=True)(released)
    assert (loss.item(), zero.item()) == (pytest.approx(4 / 3), pytest.approx(4 / 7))
    assert gradient(zero, released) == pytest.approx([one * 3 / 7 for one in gradient(loss, own)])


def test_a_response_is_judged_by_its_mean_over_real_tokens() -> None:
    objective = truncation(window=2, hot_start=2, recompute_every=2)
    step = step_of([[1.0] * 8, [2.0]])  # a sum, or a mean over padding, would call the first one the worse
    loss = objective(step)
    assert gradient(loss, step) == pytest.approx([1 / 8] * 8 + [0.0])
    assert objective.recent.tolist() == [1.0, 2.0]


def test_every_process_has_the_window_of_one() -> None:
    whole = truncation(hot_start=3)
    step = step_of([[1.0, 3.0], [9.0], [4.0, 4.0]])
    wanted = gradient(whole(step), step)
    gathered = [torch.tensor([2.0, 4.0]), torch.tensor([9.0, torch.nan])]
    found = []
    for rows in ([[1.0, 3.0], [4.0, 4.0]], [[9.0]]):
        objective = truncation(hot_start=3)
        processes = Share([torch.tensor(2), torch.tensor(4)], gathered)
        share = step_of(rows, processes=processes, num_rows=torch.tensor(3))
        found.append(gradient(objective(share), share))
        for name, buffer in whole.named_buffers():
            assert torch.equal(buffer, objective.get_buffer(name)), name
    assert [value / 2 for value in found[0][:2] + found[1] + found[0][2:]] == pytest.approx(wanted)


def test_window_and_cutoff_are_in_the_checkpoint() -> None:
    objective = truncation()
    objective(step_of([[1.0], [5.0], [3.0], [2.0], [7.0]]))
    again = truncation()
    again.load_state_dict(objective.state_dict())
    for rows in ([[2.4], [2.6]], [[1.0], [1.5]], [[1.2], [1.3]]):
        steps = step_of(rows), step_of(rows)
        assert gradient(objective(steps[0]), steps[0]) == gradient(again(steps[1]), steps[1])


def test_a_model_in_half_precision_keeps_losses_and_cutoff_whole() -> None:
    objective = truncation(drop_fraction=0.5, window=4, hot_start=4, recompute_every=1)
    losses = torch.tensor([1.001, 1.002, 1.003, 1.004])  # all 1.0 in bfloat16
    for number in range(2):
        objective.to(torch.bfloat16)  # as trainer.precision=bf16-true does
        if number == 0:
            objective.update_cutoff(losses)
        assert torch.equal(objective.recent, losses) and float(objective.cutoff) == pytest.approx(1.0025)
