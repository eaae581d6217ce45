"""Loss truncation: leaves out the responses that the model finds least likely."""

from typing import Any, Self

import torch
from torch import Tensor

from faithkit.settings.check import options
from faithkit.settings.types import Count, OpenShare, Switch
from faithkit.training.language_model import sums_by_row, token_mean
from generation.objectives.objective import Objective, ObjectiveOptions, Step


@options("objective")
class LossTruncationOptions(ObjectiveOptions):
    """Options of `objective=loss_truncation`.

    Args:
        drop_fraction: Share of the responses to leave out: c of the paper.
        window: Newest losses that the cutoff is a quantile of.
        hot_start: Responses before any is left out: an untrained model cannot rank them.
        recompute_every: Responses between two cutoffs.
        dropped_as_zero: Divides by the tokens of the dropped responses too, as FaithDial's release does.
    """

    drop_fraction: OpenShare
    window: Count
    hot_start: Count
    recompute_every: Count
    dropped_as_zero: Switch = False


class LossTruncation(Objective):
    """Averages the cross-entropy over the responses with a loss below a running quantile.

    Kang & Hashimoto 2020, "Improved Natural Language Generation via Loss Truncation". Use it when an unknown part of
    the responses is not supported by the knowledge: the model finds these least likely, for nothing it reads foretells
    them. It needs no marks and no further pass. It also drops rare but faithful responses, so keep `drop_fraction` near
    the share that is really unsupported.

        l_i = mean_t -log p(y_it | y_i<t, x_i)        q = quantile_{1-c} of the newest losses l
        L = mean of the token losses of all responses i with l_i <= q

    The window of losses and the cutoff q are part of the checkpoint, and equal on all processes. A mean of the kept
    responses alone has the same size whatever their number. With `dropped_as_zero`, as in FaithDial's release, dropped
    responses count as 0: a batch that loses 40% of its tokens takes a step that is 40% smaller.

    | related | differs in | use it when |
    | --- | --- | --- |
    | `Mle` | keeps every response | the responses are clean |
    | `InfoNce` | also contrasts responses with negatives | there are unfaithful responses |
    | `control=ctrl` | keeps every response, tagged by what it is like | unfaithful responses may still teach style |

    Example:
        >>> from generation.objectives.loss_truncation import LossTruncation
        >>> from generation.objectives.objective import Step
        >>> objective = LossTruncation(drop_fraction=0.5, window=4, hot_start=4, recompute_every=4)
        >>> objective(Step.of_losses([[1.0], [9.0], [8.0], [2.0]])).item()  # the losses of four responses
        1.5

    On the command line: `faithkit train model=gpt2 objective=loss_truncation`.

    Args:
        options: Those of `LossTruncationOptions`, by name.
    """

    options: LossTruncationOptions
    recent: Tensor
    seen: Tensor
    computed_at: Tensor
    cutoff: Tensor

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.register_buffer("recent", torch.zeros(self.options.window))
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("computed_at", torch.tensor(0))
        self.register_buffer("cutoff", torch.tensor(torch.inf))

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Follows the model to its device, not to its precision: in half precision losses would hardly differ."""
        whole = {name: self._buffers[name] for name in ("recent", "cutoff")}
        super()._apply(fn, recurse)
        for name, values in whole.items():
            if values is not None and not values.is_meta:
                self._buffers[name] = values.to(getattr(self, name).device)
        return self

    def forward(self, step: Step) -> Tensor:
        row, real = step.batch["target_row"], step.real
        lengths = sums_by_row(torch.ones_like(step.losses), row, len(real))
        losses = sums_by_row(step.losses.detach(), row, len(real)) / lengths
        # The losses of the whole batch in its order: process r has every `world_size`-th row from r on.
        share = -(-int(step.batch["num_rows"]) // step.processes.world_size)  # rows of the largest share
        own = losses[real]
        padded = losses.new_full((share,), torch.nan)
        padded[: len(own)] = own
        in_order = step.processes.gather(padded).T.flatten()  # [processes, share] to [share * processes]
        self.update_cutoff(in_order[~in_order.isnan()])
        kept = real & (losses <= self.cutoff)
        step.log("dropped", 1 - step.processes.total(kept.sum()) / step.batch["num_rows"])
        counted = real if self.options.dropped_as_zero else kept
        return token_mean(step.losses * kept[row], counted[row], step.processes)

    @torch.no_grad()
    def update_cutoff(self, losses: Tensor) -> None:
        """Writes the losses of a whole batch into the window, a ring, and recomputes the cutoff where it is due."""
        window = len(self.recent)
        newest = losses[-window:]
        first = int(self.seen) + len(losses) - len(newest)
        self.recent[(first + torch.arange(len(newest), device=losses.device)) % window] = newest.float()
        self.seen += len(losses)
        seen = int(self.seen)
        if seen >= self.options.hot_start and (
            self.cutoff.isinf() or seen - int(self.computed_at) >= self.options.recompute_every
        ):
            self.cutoff.copy_(torch.quantile(self.recent[: min(seen, window)], 1 - self.options.drop_fraction))
            self.computed_at.copy_(self.seen)
