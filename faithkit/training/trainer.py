"""Builds the Lightning Trainer of a configuration, and sets seeds and threads before it."""

import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import DDPStrategy

from faithkit.errors import UserError
from faithkit.fast import best_precision, keep_freed_memory
from faithkit.files.run_folder import RunFolder
from faithkit.training.callbacks import (
    BestCheckpoint,
    DurableCheckpoints,
    FiniteLoss,
    LastCheckpoint,
    ProgressBar,
    ProgressLines,
)
from faithkit.training.training_options import TIMEOUT_SECONDS

FSDP = "fsdp"  # of trainer.strategy
LIGHTNING_ABOUT_ITSELF = (  # warnings about mistakes remain
    ".*does not have many workers.*",
    ".*exists and is not empty.*",
    ".*in eval mode at the start of training.*",
    ".*dataloader is not resumable.*",
    ".*resuming from a checkpoint that ended before.*",
    ".*treespec.*LeafSpec.*",
    ".*isinstance.treespec.*",
    ".*smaller than the logging interval.*",
    ".*recommended to use `self.log.*sync_dist=True.*",  # logged values are the same on every process
    ".*torch.cpu.amp.*",
    ".*lightning.*litlogger.*",
)


def seed_and_threads(*, seed: int, num_threads: int | None) -> None:
    """Sets the seed, the number of threads and the allocator, before anything random or parallel happens."""
    for name in ("pytorch_lightning", "lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in LIGHTNING_ABOUT_ITSELF:
        warnings.filterwarnings("ignore", message=message)
    keep_freed_memory()
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    pl.seed_everything(seed, workers=True, verbose=False)


def build_trainer(
    run: RunFolder,
    loggers: Sequence[Logger],
    *,
    hardware: Mapping[str, Any],
    callbacks: Mapping[str, Any],
    accumulate_grad_batches: int,
    gradient_clip_val: float | None,
    validation_interval: int,
    keeps_all: bool = True,
) -> pl.Trainer:
    """Builds a Trainer whose single Lightning epoch is the whole training: see `data_modules.encoding.batching`.

    Args:
        hardware: The `trainer` block: accelerator, devices, strategy, num_nodes, precision (`auto` asks the hardware).
        callbacks: The `callbacks` block: the metric that chooses the best checkpoint, patience, how often to save.
        validation_interval: Batches between two validations.
        keeps_all: Checkpoints are kept after the end, so the last one is written with moments (`LastCheckpoint`).
    """
    accelerator, precision = hardware["accelerator"], hardware["precision"]
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise UserError("there is no CUDA device", place="trainer.accelerator", hint="use trainer=cpu")
    if precision == "auto":
        precision = best_precision(accelerator)
    monitor, mode = callbacks["monitor"], callbacks["mode"]
    shows_bar = callbacks["progress_bar"] and sys.stderr.isatty()
    chosen: list[pl.Callback] = [FiniteLoss(callbacks["log_every_num_steps"])]
    if callbacks["patience"] is not None:
        chosen.append(EarlyStopping(monitor=monitor, mode=mode, patience=callbacks["patience"], check_finite=False))
    if loggers:
        chosen.append(LearningRateMonitor(logging_interval="step"))
    if callbacks["progress_bar"]:
        chosen.append(ProgressBar() if shows_bar else ProgressLines())
    chosen.append(BestCheckpoint(run.best, monitor=monitor, mode=mode))
    # After the best one, because the last checkpoint stores its state.
    chosen.append(LastCheckpoint(run, callbacks["save_every_seconds"], keeps_all=keeps_all))
    return pl.Trainer(
        accelerator=accelerator,
        devices=hardware["devices"],
        num_nodes=hardware["num_nodes"],
        strategy=_strategy(hardware),
        precision=precision,
        max_epochs=1,
        check_val_every_n_epoch=None,
        val_check_interval=validation_interval,
        accumulate_grad_batches=accumulate_grad_batches,
        gradient_clip_val=gradient_clip_val,
        num_sanity_val_steps=0,  # resumed and uninterrupted runs must take the same steps
        log_every_n_steps=callbacks["log_every_num_steps"],
        use_distributed_sampler=False,
        enable_model_summary=False,
        enable_progress_bar=shows_bar,  # else Lightning adds one
        callbacks=chosen,
        logger=list(loggers) or False,
        plugins=[DurableCheckpoints()],
        default_root_dir=run.path,
    )


def _strategy(hardware: Mapping[str, Any]) -> Any:
    strategy, timeout = hardware["strategy"], timedelta(seconds=hardware.get("timeout_seconds", TIMEOUT_SECONDS))
    if strategy == "ddp":
        return DDPStrategy(timeout=timeout)
    if strategy != FSDP:
        return strategy
    from faithkit.training.sharded_strategy import ShardedStrategy

    devices = hardware["devices"]
    if not isinstance(devices, int):
        devices = max(1, torch.cuda.device_count())
    return ShardedStrategy(devices * hardware["num_nodes"], timeout=timeout)
