"""Loss truncation (Kang & Hashimoto 2020, "Improved Natural Language Generation via Loss Truncation").

The responses that the model finds least likely are often those that the knowledge does not support: they are left out.
"""

import torch
from torch import Tensor

from faithkit.errors import UserError
from generation.forward import sums_by_row
from generation.objectives.objective import Objective, Step, token_mean


class LossTruncation(Objective):
    """Likelihood of the responses whose loss is not among the highest.

    A response's loss is the mean over its tokens. The cutoff is a quantile of the losses seen last; window and cutoff
    are part of the checkpoint, and the same on all processes.

    Args:
        drop_fraction: Share of the responses to leave out: c of the paper.
        window: Losses that the cutoff is made of, at most; the newest.
        hot_start: Responses from which on any are left out: before, the model cannot tell.
        recompute_every: Responses after which the cutoff is made anew.
    """

    recent: Tensor
    seen: Tensor
    computed_at: Tensor
    cutoff: Tensor

    def __init__(self, *, drop_fraction: float, window: int, hot_start: int, recompute_every: int):
        super().__init__()
        if not 0 < drop_fraction < 1:
            raise UserError(f"objective.drop_fraction is {drop_fraction}", hint="use a share above 0 and below 1")
        for name, value in (("window", window), ("hot_start", hot_start), ("recompute_every", recompute_every)):
            if value < 1:
                raise UserError(f"objective.{name} is {value}", hint="use 1 or more")
        self.drop_fraction, self.hot_start, self.recompute_every = drop_fraction, hot_start, recompute_every
        self.register_buffer("recent", torch.zeros(window))
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("computed_at", torch.tensor(0))
        self.register_buffer("cutoff", torch.tensor(torch.inf))

    def forward(self, step: Step) -> Tensor:
        row, real = step.batch["target_row"], step.real
        lengths = sums_by_row(torch.ones_like(step.losses), row, len(real))
        losses = sums_by_row(step.losses.detach(), row, len(real)) / lengths
        self.note(_everyones(losses[real], step))
        kept = real & (losses <= self.cutoff)
        step.log("dropped", 1 - step.processes.total(kept.sum()) / step.batch["num_rows"])
        return token_mean(step.losses, kept[row], step.processes)

    @torch.no_grad()
    def note(self, losses: Tensor) -> None:
        """Takes the losses of a whole batch into the window, and makes the cutoff anew where it is due."""
        window = len(self.recent)
        newest = losses[-window:]
        first = int(self.seen) + len(losses) - len(newest)
        self.recent[(first + torch.arange(len(newest), device=losses.device)) % window] = newest.float()
        self.seen += len(losses)
        seen = int(self.seen)
        if seen >= self.hot_start and (self.cutoff.isinf() or seen - int(self.computed_at) >= self.recompute_every):
            self.cutoff.copy_(torch.quantile(self.recent[: min(seen, window)], 1 - self.drop_fraction))
            self.computed_at.copy_(self.seen)


def _everyones(losses: Tensor, step: Step) -> Tensor:
    """The losses of the whole batch in its order, of which process r has every `world_size`-th from r on."""
    share = -(-int(step.batch["num_rows"]) // step.processes.world_size)
    padded = losses.new_full((share,), torch.nan)
    padded[: len(losses)] = losses
    everyones = step.processes.gather(padded).T.flatten()
    return everyones[~everyones.isnan()]
