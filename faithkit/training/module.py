"""The base of every task's LightningModule: reproducible dropout, clipping, optimiser and schedule."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from faithkit.errors import UserError
from faithkit.files.model_folder import read_sidecar, write_sealed
from faithkit.files.run_folder import RunFolder
from faithkit.provenance.seen_rows import read_seen
from faithkit.training.checkpoints import best_weights, load_weights, model_state
from faithkit.training.optimizer import build_optimizer, build_schedule, parameter_groups
from faithkit.training.row_metric import RowMetric
from faithkit.training.training_options import OptimizerOptions
from faithkit.weights.adapters import NAME, write_adapters
from faithkit.weights.resolve import resolve
from faithkit.weights.used_model import describe_model

TRAINED = ".lora_"  # part of the names of all trained tensors, and of no others


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters of a training that trains nothing else.

    Args:
        base: The hash of the base weights, which a resumed training checks; None if unknown.
        config: The configuration of peft.
        build: Loads the base again, with new adapters.
    """

    base: str | None
    config: Any
    build: Callable[[], Any]

    @classmethod
    def on(cls, weights: str, model: Any, build: Callable[[], Any]) -> "Adapters":
        """Describes the adapters of a model that peft wraps.

        Args:
            weights: The name of the base in the configuration.
        """
        return cls(describe_model(resolve(weights)).weights, model.peft_config[NAME], build)

    @staticmethod
    def select(state: Mapping[str, Any]) -> dict[str, Any]:
        """Selects the tensors of the adapters."""
        return {name: value for name, value in state.items() if TRAINED in name}

    def merged(self, model: Any, state: Mapping[str, Any], path: Path) -> Any:
        """Loads adapters into a model with adapters, and merges them into its weights.

        Args:
            path: The checkpoint, for errors.
        """
        load_weights(model, {**model.state_dict(), **state}, path)
        return model.merge_and_unload(safe_merge=True)

    def write(self, run: RunFolder) -> None:
        """Writes adapter/ of a finished run: the best checkpoint's adapters, with the sidecar and seen rows of hf/."""
        merged = read_sidecar(run.hf)
        assert merged is not None, "hf/ is written first"
        state = model_state(best_weights(run))
        sidecar = replace(merged, layout={**merged.layout, "base_weights": self.base})
        write_sealed(run.adapter, lambda folder: write_adapters(folder, state, self.config), sidecar, read_seen(run.hf))


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
    adapters: Adapters | None = None  # if only these are trained

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
