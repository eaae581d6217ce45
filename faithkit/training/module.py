"""The base of every task's LightningModule: reproducible dropout, clipping, optimiser and schedule."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from faithkit.errors import UserError
from faithkit.training.optimizer import build_optimizer, build_schedule, parameter_groups
from faithkit.training.row_metric import RowMetric
from faithkit.training.training_options import OptimizerOptions


class TrainingModule(pl.LightningModule):
    """A model in training.

    The dropout of a step depends only on the seed, the step and the process, so a resumed run repeats it exactly. The
    hyperparameters in a checkpoint are names and scalars in one flat dictionary.

    Args:
        optimizer: The options of AdamW and its schedule.
        hyperparameters: num_steps (optimiser steps of the whole training), dataset (names the validation metrics),
            seed, and further ones to save in checkpoints.
    """

    model: Any  # of transformers
    adapters: Any = None  # those of LoRA, if only these are trained (`judge.task.Adapters`)

    def __init__(self, optimizer: OptimizerOptions, **hyperparameters: Any):
        super().__init__()
        self.optimizer_options = optimizer
        self.save_hyperparameters({**asdict(optimizer), **hyperparameters})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.adapters is not None:
            checkpoint["state_dict"] = self.adapters.select(checkpoint["state_dict"])
            checkpoint["base"] = self.adapters.base

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.adapters is not None and checkpoint.get("base") != self.adapters.base:
            problem = "the base weights of the adapters are not those that this training began with"
            raise UserError(problem, hint="put the folder of model.weights back, or train again")

    def configure_model(self) -> None:
        """Shards the model and the auxiliary heads if the strategy is FSDP2."""
        if isinstance(self.trainer.strategy, pl.strategies.ModelParallelStrategy):
            from faithkit.training.sharded_checkpoints import shard

            for child in self.children():
                if any(True for _ in child.parameters()):
                    shard(child, self.device_mesh)

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
        """Gathers a tensor from every process in the order of ranks [processes, ...]; shapes must be equal.

        Args:
            with_gradients: Gradients flow back through the gathered values to their processes.
        """
        gathered = self.trainer.strategy.all_gather(values, sync_grads=with_gradients)
        return gathered.view(self.world_size, *values.shape)

    def total(self, count: Tensor) -> Tensor:
        """Sums a count over all processes; at least 1."""
        summed = self.trainer.strategy.reduce(count, reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed.clamp(min=1)

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        # torch's clipping supports sharded gradients; Lightning's refuses them.
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def log_validation(self, metric: RowMetric, main: str) -> None:
        """Logs the metrics of a validation, the main one also on the progress bar, and resets the metric."""
        for name, value in metric.compute().items():
            self.log(f"validation/{self.hparams['dataset']}/{name}", value, prog_bar=name == main)
        metric.reset()

    def configure_optimizers(self) -> Any:
        o = self.optimizer_options
        groups = parameter_groups(self, o.lr, o.weight_decay, layer_decay=o.layer_decay, head_lr=o.head_lr)
        optimizer = build_optimizer(groups, o.lr)
        schedule = build_schedule(optimizer, o.schedule, self.hparams["num_steps"], o.warmup, o.floor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
