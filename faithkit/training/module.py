"""What every task's LightningModule shares: dropout that a resumed run repeats, clipping, optimiser and schedule."""

from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from faithkit.training.optimizer import build_optimizer, build_schedule, parameter_groups


class TrainingModule(pl.LightningModule):
    """A model under training; its hyperparameters hold `seed`, `num_steps` and those of the optimiser.

    Hyperparameters: lr, weight_decay, warmup, schedule, floor, layer_decay, head_lr. Dropout of a step depends on the
    seed, the step and the process alone, so a resumed run repeats it exactly.
    """

    model: Any  # of transformers

    def on_fit_start(self) -> None:
        self.model.train()  # from_pretrained leaves dropout off, and Lightning does not switch it on

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        mixed = np.random.SeedSequence([self.hparams["seed"], batch_idx, self.global_rank]).generate_state(1)
        torch.manual_seed(int(mixed[0]))

    @property
    def world_size(self) -> int:
        return self.trainer.world_size

    @property
    def rank(self) -> int:
        return self.global_rank

    def gather(self, values: Tensor, *, with_gradients: bool = False) -> Tensor:
        """The same from every process, in the order of their ranks [processes, ...]; all must have equal shapes.

        Args:
            with_gradients: What the others make of this process's values trains them too.
        """
        gathered = self.trainer.strategy.all_gather(values, sync_grads=with_gradients)
        return gathered.view(self.world_size, *values.shape)

    def total(self, count: Tensor) -> Tensor:
        """The count over all processes, at least 1."""
        summed = self.trainer.strategy.reduce(count, reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed.clamp(min=1)

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        # torch's own clipping knows sharded gradients; Lightning's refuses them.
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def configure_optimizers(self) -> Any:
        h = self.hparams
        groups = parameter_groups(self, h["lr"], h["weight_decay"], layer_decay=h["layer_decay"], head_lr=h["head_lr"])
        optimizer = build_optimizer(groups, h["lr"])
        schedule = build_schedule(optimizer, h["schedule"], h["num_steps"], h["warmup"], h["floor"])
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
