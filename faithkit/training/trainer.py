"""The Lightning Trainer that a configuration asks for."""

import csv
import logging
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import Logger

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder, environment
from faithkit.hardware import best_precision
from faithkit.training.callbacks import FiniteLoss, LastCheckpoint, ProgressBar


def settle(*, seed: int, num_threads: int | None) -> None:
    """What must stand before anything random or parallel happens."""
    quiet()
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
) -> pl.Trainer:
    """A Trainer whose single Lightning epoch is the whole training: see `data_modules.encoding.batching`.

    Args:
        hardware: The `trainer` block: accelerator, devices, strategy, num_nodes, precision (`auto` asks the hardware).
        callbacks: The `callbacks` block: what chooses the best checkpoint, when to stop, how often to save.
        validation_interval: Batches between two validations.
    """
    accelerator, precision = hardware["accelerator"], hardware["precision"]
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise UserError("no CUDA device is here", place="trainer.accelerator", hint="use trainer=cpu")
    if precision == "auto":
        precision = best_precision(accelerator)
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
        num_sanity_val_steps=0,  # a run resumed and a run in one go must take the same steps
        log_every_n_steps=callbacks["log_every_num_steps"],
        use_distributed_sampler=False,
        enable_model_summary=False,
        enable_progress_bar=callbacks["progress_bar"],
        callbacks=_callbacks(run, callbacks, bool(loggers)),
        logger=list(loggers) or False,
        default_root_dir=run.path,
    )


def _callbacks(run: RunFolder, options: Mapping[str, Any], logged: bool) -> list[pl.Callback]:
    monitor, mode = options["monitor"], options["mode"]
    callbacks: list[pl.Callback] = [FiniteLoss(options["log_every_num_steps"])]
    if options["patience"] is not None:
        callbacks.append(EarlyStopping(monitor=monitor, mode=mode, patience=options["patience"], check_finite=False))
    if logged:
        callbacks.append(LearningRateMonitor(logging_interval="step"))
    if options["progress_bar"]:
        callbacks.append(ProgressBar())
    best = ModelCheckpoint(
        dirpath=run.checkpoints,
        filename="best",
        monitor=monitor,
        mode=mode,
        save_top_k=1,
        save_weights_only=True,
        enable_version_counter=False,
    )
    # Behind `best`, whose state it must hold.
    return [*callbacks, best, LastCheckpoint(run.last, options["save_every_seconds"], run.whole)]


def check_checkpoint(run: RunFolder) -> Path | None:
    """The checkpoint to go on from; None at the beginning.

    Raises:
        UserError: The file is cut short.
    """
    if not run.last.exists():
        return None
    try:
        step = torch.load(run.last, map_location="meta", weights_only=True, mmap=True)["global_step"]
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, pickle.UnpicklingError) as error:
        problem = f"the checkpoint is cut short or damaged: {str(error).splitlines()[0][:200]}"
        hint = "delete it to start this run again from its beginning"
        raise UserError(problem, place=str(run.last), hint=hint) from error
    log.info("going on at step %d", step)
    return run.last


def _strategy(hardware: Mapping[str, Any]) -> Any:
    if hardware["strategy"] != "fsdp":
        return hardware["strategy"]
    from pytorch_lightning.strategies import ModelParallelStrategy

    devices = hardware["devices"]
    if not isinstance(devices, int):
        devices = max(1, torch.cuda.device_count())
    # Left to itself the strategy takes a node's devices for tensor parallelism, and would shard nothing.
    # A whole file instead of a sharded folder: best.ckpt and last.ckpt are the same thing under every strategy.
    return ModelParallelStrategy(
        data_parallel_size=devices * hardware["num_nodes"], tensor_parallel_size=1, save_distributed_checkpoint=False
    )


def quiet() -> None:
    """Silences what Lightning says of itself; its warnings about mistakes remain."""
    for name in ("pytorch_lightning", "lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*exists and is not empty.*",
        ".*in eval mode at the start of training.*",
        ".*dataloader is not resumable.*",
        ".*resuming from a checkpoint that ended before.*",
        ".*treespec.*LeafSpec.*",
        ".*isinstance.treespec.*",
        ".*smaller than the logging interval.*",
        ".*recommended to use `self.log.*sync_dist=True.*",  # what we log is the same on every process already
        ".*torch.cpu.amp.*",
        ".*lightning.*litlogger.*",
    ):
        warnings.filterwarnings("ignore", message=message)


def build_loggers(options: Mapping[str, Any], run: RunFolder, config: Mapping[str, Any]) -> list[Logger]:
    """The loggers of the `logger` block: csv, tensorboard, wandb, or several. The last two need their package."""
    made: list[Logger] = []
    for name, settings in options.items():
        if name not in LOGGERS:
            raise UserError(
                f"unknown logger {name!r}", hint=f"use {', '.join(LOGGERS)}, or several: logger=[csv,wandb]"
            )
        try:
            made.append(LOGGERS[name](run, settings or {}))
        except ModuleNotFoundError as error:
            raise UserError(f"logger={name} needs the package {name}", hint=f"pip install '.[{name}]'") from error
        made[-1].log_hyperparams({**config, "environment": environment()})
    return made


def _csv(run: RunFolder, settings: Mapping[str, Any]) -> Logger:
    from pytorch_lightning.loggers import CSVLogger

    file = run.path / "csv" / "metrics.csv"
    rows = list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []
    logger = CSVLogger(save_dir=run.path, name="", version="csv", **settings)
    # A new logger deletes the file. A resumed run hands it the rows up to its checkpoint, so the curve stays whole.
    step = _step_of(run) if rows else 0
    logger.experiment.metrics = [
        {name: value for name, value in row.items() if value} for row in rows if int(row["step"]) < step
    ]
    return logger


def _step_of(run: RunFolder) -> int:
    if not run.last.exists():
        return 0
    return int(torch.load(run.last, map_location="meta", weights_only=True, mmap=True)["global_step"])


def _tensorboard(run: RunFolder, settings: Mapping[str, Any]) -> Logger:
    from pytorch_lightning.loggers import TensorBoardLogger

    return TensorBoardLogger(save_dir=run.path, name="", version="tensorboard", **settings)


def _wandb(run: RunFolder, settings: Mapping[str, Any]) -> Logger:
    from pytorch_lightning.loggers import WandbLogger

    # The folder's name as id: a resumed run goes on in the same place.
    return WandbLogger(save_dir=run.path, name=run.path.name, id=run.path.name, resume="allow", **settings)


log = logging.getLogger("faithkit")
LOGGERS: dict[str, Callable[[RunFolder, Mapping[str, Any]], Logger]] = {
    "csv": _csv,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
