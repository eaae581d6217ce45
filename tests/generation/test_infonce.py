"""The contrastive objective on four rows is what numpy says, in one process and in several."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch

from generation.objectives.infonce import Contrast, InfoNce
from tests.generation.contrast import objective_of
from tests.generation.steps import step_of

COUNTS = [3, 2, 1, 4]  # candidates of four rows, the gold response counted


def by_hand(objective: InfoNce, query: Any, candidates: Any, rows: Any = range(4)) -> float:
    """The mean over the rows that have a negative, in numpy."""
    found = []
    for place in rows:
        begin = sum(COUNTS[:place])
        own = candidates[begin : begin + COUNTS[place]]
        if len(own) > 1:
            scores = own @ (objective.projection.weight.detach().numpy() @ query[place])
            scores = scores / np.sqrt(query.shape[1]) / objective.options.temperature
            found.append(np.log(np.exp(scores).sum()) - scores[0])
    return float(np.mean(found))


def hand_made(size: int = 6, **options: Any) -> tuple[InfoNce, Any, Any]:
    generator = np.random.default_rng(0)
    objective = objective_of(**options)
    objective.projection = torch.nn.Linear(size, size, bias=False)
    return objective, generator.normal(size=(4, size)), generator.normal(size=(sum(COUNTS), size))


def contrast_step(query: Any, candidates: Any, **values: Any) -> Any:
    row = torch.repeat_interleave(torch.arange(4), torch.tensor(COUNTS))
    output = Contrast(torch.zeros(1), torch.tensor(query).float(), torch.tensor(candidates).float())
    return replace(step_of([[1.0], [2.0], [3.0], [6.0]], candidate_row=row, **values), output=output)


def test_the_value_on_four_rows_is_numpys() -> None:
    objective, query, candidates = hand_made()
    logged: dict[str, torch.Tensor] = {}
    loss = objective(replace(contrast_step(query, candidates), log=logged.__setitem__))
    wanted = by_hand(objective, query, candidates)
    assert logged["contrast"].item() == pytest.approx(wanted, abs=1e-6)
    assert loss.item() == pytest.approx(3.0 + 0.1 * wanted, abs=1e-6)


def test_rows_without_negatives_alone_leave_the_likelihood() -> None:
    objective, query, candidates = hand_made()
    step = contrast_step(query, candidates)
    only = {"candidate_row": torch.arange(4)}
    step = replace(
        step, batch={**step.batch, **only}, output=replace(step.output, candidates=step.output.candidates[:4])
    )
    loss = objective(step)
    loss.backward()
    assert loss.item() == 3.0 and objective.projection.weight.grad.abs().max() == 0


class Exchange:
    """Processes as threads: each waits for what the others give."""

    def __init__(self, world_size: int, rank: int = 0, shared: tuple[Barrier, dict[int, torch.Tensor]] | None = None):
        self.world_size, self.rank = world_size, rank
        self.barrier, self.given = shared or (Barrier(world_size), {})

    def __getitem__(self, rank: int) -> "Exchange":
        return Exchange(self.world_size, rank, (self.barrier, self.given))

    def gather(self, values: torch.Tensor, *, with_gradients: bool = False) -> torch.Tensor:
        self.given[self.rank] = values if with_gradients else values.detach()
        self.barrier.wait(60)
        found = torch.stack([self.given[rank] for rank in range(self.world_size)])
        self.barrier.wait(60)
        return found

    def total(self, count: torch.Tensor) -> torch.Tensor:
        return self.gather(count).sum(0).clamp(min=1)


@pytest.mark.parametrize("in_batch", [False, True, "all"])
def test_processes_see_each_others_candidates(in_batch: bool | str) -> None:
    objective, query, candidates = hand_made(in_batch=in_batch)
    step = contrast_step(query, candidates)
    leaves = [
        objective.projection.weight,
        *(side.requires_grad_() for side in (step.output.query, step.output.candidates)),
    ]
    rows = torch.tensor([0, 1, 3])  # an odd number: the second process has a row less

    def loss_of_rows(own: torch.Tensor, processes: Any) -> torch.Tensor:
        kept = torch.isin(step.batch["candidate_row"], own)
        row = torch.searchsorted(own, step.batch["candidate_row"][kept])
        output = Contrast(torch.zeros(1), step.output.query[own], step.output.candidates[kept])
        values = {"processes": processes, "candidate_row": row, "num_rows": torch.tensor(len(rows))}
        share = step_of([[float(number)] for number in own], **values)
        return objective(replace(share, output=output))

    whole = loss_of_rows(rows, None)
    crowd = Exchange(2)
    with ThreadPoolExecutor(2) as pool:
        shares = list(pool.map(lambda rank: loss_of_rows(rows[rank::2], crowd[rank]), range(2)))
    mean = torch.stack(shares).mean()
    assert mean.item() == pytest.approx(whole.item(), abs=1e-6)
    wanted = torch.autograd.grad(whole, leaves)
    for found, one in zip(torch.autograd.grad(mean, leaves), wanted, strict=True):
        torch.testing.assert_close(found, one, rtol=0, atol=1e-6)
