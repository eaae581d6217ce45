"""The base of every task's LightningModule: reproducible dropout, clipping, validation metrics, AdamW, schedules."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torchmetrics import Metric

from faithkit.errors import UserError
from faithkit.fast import accelerate
from faithkit.training.training_options import OptimizerOptions

Figures = Callable[[NDArray[np.int64], NDArray[np.float64]], Mapping[str, float]]


class RowMetric(Metric):
    """Collects the rows of a validation and computes metrics of all of them together.

    The metrics of torchmetrics add up in fp32, define the F1 of a class without rows differently, and have no F1 at the
    best threshold; a training would choose other checkpoints with them. So the state is the rows themselves, which are
    gathered from all processes, and the metrics are those of the test.

    Args:
        figures: Takes the keys of the rows in ascending order, and their values [rows, columns] in fp64.
    """

    full_state_update = False
    numbers: list[Tensor]
    values: list[Tensor]

    def __init__(self, figures: Figures, **options: Any):
        super().__init__(**options)
        self.figures = figures
        self.add_state("numbers", default=[], dist_reduce_fx="cat")
        self.add_state("values", default=[], dist_reduce_fx="cat")

    def update(self, numbers: Tensor, values: Tensor) -> None:
        """Adds rows of a batch.

        Args:
            numbers: A unique key for each row of the validation, a number [rows] or several [rows, keys]; rows with a
                number below 0 are padding and ignored.
            values: [rows, columns].
        """
        real = numbers >= 0 if numbers.ndim == 1 else (numbers >= 0).all(1)
        self.numbers.append(numbers[real].to(self.device))
        self.values.append(values[real].to(self.device))

    def compute(self) -> dict[str, float]:
        """Computes the metrics of the rows of all processes."""
        # The states are lists in one process, and tensors after gathering from several.
        numbers, values = (torch.cat(s) if isinstance(s, list) else s for s in (self.numbers, self.values))
        keys = numbers.cpu().numpy()
        columns = keys[:, None] if keys.ndim == 1 else keys
        order = np.lexsort(columns.T[::-1])  # many times as fast as np.unique with an axis
        is_first = np.ones(len(keys), bool)
        is_first[1:] = (columns[order[1:]] != columns[order[:-1]]).any(1)
        rows = order[is_first]
        return dict(self.figures(keys[rows], values.cpu().double().numpy()[rows]))


class TrainingModule(pl.LightningModule):
    """A model in training.

    The dropout of a step depends only on the seed, the step and the process, so a resumed run repeats it exactly. The
    hyperparameters in a checkpoint are names and scalars in one flat dictionary.

    Args:
        optimizer: The options of AdamW and its schedule.
        figures: Computes the metrics of a validation from its rows, with which a subclass updates `validation`.
        hyperparameters: num_steps (optimiser steps of the whole training), dataset (names the validation metrics),
            seed, and further ones to save in checkpoints.
    """

    model: Any  # of transformers
    adapters: Any = None  # those of LoRA, if only these are trained (`judge.task.Adapters`)
    main_metric: str  # of the validation; it is on the progress bar

    def __init__(self, optimizer: OptimizerOptions, figures: Figures, **hyperparameters: Any):
        super().__init__()
        self.optimizer_options, self.validation = optimizer, RowMetric(figures)
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
            from faithkit.training.sharded_strategy import shard

            for child in self.children():
                if any(True for _ in child.parameters()):
                    shard(child, self.trainer.strategy, precision=str(self.trainer.precision))

    def on_fit_start(self) -> None:
        self.model.train()  # from_pretrained leaves dropout off, and Lightning does not switch it on
        accelerate(self.model)  # on the device of the training

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

    def on_validation_epoch_end(self) -> None:
        for name, value in self.validation.compute().items():
            self.log(f"validation/{self.hparams['dataset']}/{name}", value, prog_bar=name == self.main_metric)
        self.validation.reset()

    def configure_optimizers(self) -> Any:
        o = self.optimizer_options
        optimizer = build_optimizer(self, o.lr, o.weight_decay, layer_decay=o.layer_decay, head_lr=o.head_lr)
        num_steps = self.hparams["num_steps"]
        num_warmup = math.ceil(o.warmup * num_steps)
        decays = {
            "linear": lambda progress: 1.0 - progress,
            "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
            "constant": lambda progress: 1.0,
        }

        # transformers' schedules give other rates: their warm-up begins at 0, so that the first step trains nothing.
        def factor(step: int) -> float:
            if step < num_warmup:
                return (step + 1) / num_warmup
            decay = decays[o.schedule](min(1.0, (step - num_warmup) / max(1, num_steps - num_warmup)))
            return o.floor + (1.0 - o.floor) * decay

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def build_optimizer(
    module: nn.Module, lr: float, weight_decay: float, *, layer_decay: float = 1.0, head_lr: float | None = None
) -> torch.optim.AdamW:
    """Builds AdamW in its fused form, one pass over the parameters; biases and norms do not decay.

    Args:
        layer_decay: Each layer further from the output learns this much slower; 1 is the same rate everywhere.
        head_lr: The rate of the classification head, which starts untrained; None takes `lr`.
    """
    numbers = {name: re.search(r"\.(?:layer|layers|block|h)\.(\d+)\.", name) for name, _ in module.named_parameters()}
    layers = {name: int(found[1]) + 1 if found else 0 for name, found in numbers.items()}  # 0 is the embeddings
    depth = 1 + max(layers.values(), default=0)
    groups: dict[tuple[float, float], dict] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        rate = lr if is_head(name) else lr * layer_decay ** (depth - layers[name])
        if head_lr is not None and is_head(name):
            rate = head_lr
        decay = 0.0 if parameter.ndim < 2 else weight_decay
        group = groups.setdefault((rate, decay), {"params": [], "lr": rate, "weight_decay": decay})
        group["params"].append(parameter)
    return torch.optim.AdamW(list(groups.values()), lr=lr, fused=True)


def is_head(name: str) -> bool:
    """Whether a parameter belongs to the head on an encoder, the pooler included."""
    return bool(re.search(r"(^|\.)(classifier|score|pooler|head)\.", name))
