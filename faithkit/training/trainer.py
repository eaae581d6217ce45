"""Builds the Lightning Trainer of a configuration, with the callbacks of every training, and sets seeds and threads.

The callbacks write crash-safe checkpoints, check for a finite loss and show progress.
"""

import logging
import math
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping, LearningRateMonitor, ModelCheckpoint, TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.io import CheckpointIO
from pytorch_lightning.strategies import DDPStrategy

from faithkit import signals
from faithkit.errors import UserError
from faithkit.fast import best_precision, keep_freed_memory
from faithkit.files.atomic import delete
from faithkit.files.run_folder import RunFolder, resume_hint
from faithkit.signals import Interrupted
from faithkit.training.checkpoint_io import keep_previous, write_checkpoint
from faithkit.training.checkpoints import check_fits, read_checkpoint
from faithkit.training.training_options import TIMEOUT_SECONDS

log = logging.getLogger("faithkit")
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


class DurableCheckpoints(CheckpointIO):
    """Writes and reads Lightning's checkpoints under every strategy."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes a file.

        Args:
            storage_options: Where the previous checkpoint is kept; None keeps none.
        """
        path = Path(path)
        if storage_options is not None:
            keep_previous(path, storage_options)
        elif path.is_dir():
            delete(path)  # a file cannot replace a folder
        write_checkpoint(path, checkpoint)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads tensors and plain values only, whatever `weights_only` is."""
        return read_checkpoint(Path(path), map_location=map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Removes nothing: our files have fixed names, and the path may come from a checkpoint's content."""


class LastCheckpoint(Checkpoint):
    """Writes `last.ckpt` regularly, and on Ctrl-C and SIGTERM before the training ends.

    It is written after a training step or a validation, when the state is complete, at least every `every_seconds`. A
    kill at any time leaves it complete (`DurableCheckpoints`; for shards `ShardedStrategy`), and the previous one is
    kept. A second signal ends the process at once.

    With optimizer moments it is three times as large as the weights. A training that ends sooner than `every_seconds`
    writes it once, at its end and without moments: it is then only tested.

    Args:
        run: Its folder contains the checkpoint.
        every_seconds: Time between two checkpoints.
        keeps_all: Also writes it after each validation, and the last one with moments.
    """

    def __init__(self, run: RunFolder, every_seconds: float, *, keeps_all: bool = True):
        self.run, self.every_seconds, self.keeps_all = run, every_seconds, keeps_all
        self._resume_hint = resume_hint("train", run.whole)
        self._is_valid = False  # last.ckpt: this process has written it or resumed from it
        self._saved_at = time.monotonic()
        self._stop = self._has_ended = False

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        if trainer.ckpt_path is not None:
            check_fits(Path(trainer.ckpt_path), module)
            self._is_valid = Path(trainer.ckpt_path) == self.run.last

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._saved_at = time.monotonic()
        signals.hold()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        signals.release()

    def teardown(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        signals.release()
        signals.check(self._resume_hint)  # a signal after the last step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        fetcher = trainer.fit_loop._data_fetcher
        if not (action := self._next_action(trainer)):
            return
        if fetcher is not None and trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher):
            return  # resuming from before a validation would skip it: the checkpoint is written after it
        self._save(trainer)
        self._stop = action == 2

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if self._stop:  # only now, when the loggers have the last step
            raise Interrupted(self._resume_hint)

    def _next_action(self, trainer: pl.Trainer, always: bool = False) -> int:
        """Returns whether to write it: 0 no, 1 yes, 2 yes and then stop."""
        is_due = always or time.monotonic() - self._saved_at > self.every_seconds
        return self._agree(trainer, 2 if signals.received() else int(is_due))

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        # After early stopping, a resumed training continues to the next validation and needs the moments.
        self._has_ended = not (self.keeps_all or trainer.should_stop or trainer.world_size > 1)
        if not self.keeps_all:
            self._save(trainer)
        if self._stop or self._agree(trainer, int(signals.received())):
            raise Interrupted(self._resume_hint)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit" and (action := self._next_action(trainer, self.keeps_all)):
            self._save(trainer)
            self._stop = action == 2

    def on_save_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._has_ended:
            checkpoint["optimizer_states"] = [{**one, "state": {}} for one in checkpoint["optimizer_states"]]

    @staticmethod
    def _agree(trainer: pl.Trainer, value: int) -> int:
        """Returns the maximum over all processes, which must decide alike although clocks and signals differ."""
        if trainer.world_size == 1:
            return value
        decision = torch.tensor(value, device=trainer.strategy.root_device)
        torch.distributed.all_reduce(decision, torch.distributed.ReduceOp.MAX)
        return int(decision)

    def _save(self, trainer: pl.Trainer) -> None:
        # A damaged last.ckpt must not replace the previous one, which the training resumed from.
        trainer.save_checkpoint(self.run.last, storage_options=self.run.previous if self._is_valid else None)
        self._is_valid = True
        self._saved_at = time.monotonic()


class BestCheckpoint(ModelCheckpoint):
    """Writes `best.ckpt`, the weights of the validation with the best score.

    A resumed training restores the score even if the run's folder has moved, and takes no path from a checkpoint.

    Args:
        path: The file.
        monitor: The metric.
        mode: `max` or `min`.
    """

    def __init__(self, path: Path, *, monitor: str, mode: str):
        super().__init__(
            dirpath=path.parent,
            filename=path.stem,
            monitor=monitor,
            mode=mode,
            save_top_k=1,
            save_weights_only=True,
            enable_version_counter=False,
        )
        self.path = path

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        score = state_dict.get("best_model_score")
        if score is None:
            return
        path = str(Path(self.dirpath or "") / self.path.name)
        names = {"best_model_path": path, "kth_best_model_path": path, "best_k_models": {path: score}}
        super().load_state_dict({**state_dict, **names, "dirpath": self.dirpath, "last_model_path": ""})


def chosen_score(trainer: pl.Trainer) -> dict[str, Any]:
    """Returns the score of the validation that chose the best checkpoint, and the metric's name and direction."""
    best = next(callback for callback in trainer.checkpoint_callbacks if isinstance(callback, BestCheckpoint))
    score = math.nan if best.best_model_score is None else float(best.best_model_score)
    return {"monitor": best.monitor, "mode": best.mode, "value": score if math.isfinite(score) else None}


class FiniteLoss(pl.Callback):
    """Stops the training if the loss is not finite, before the best checkpoint is affected.

    Args:
        every_num_steps: Steps between two checks on a GPU, where each check waits for the device.
    """

    def __init__(self, every_num_steps: int):
        self.every_num_steps = every_num_steps

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        if trainer.strategy.root_device.type != "cpu" and trainer.global_step % self.every_num_steps:
            return
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        if loss is not None and not bool(torch.isfinite(loss)):
            hint = "lower optimizer.lr, or set trainer.precision=32-true; the last checkpoint is valid"
            raise UserError(f"the loss became {float(loss)} at step {trainer.global_step}", hint=hint)


class ProgressBar(TQDMProgressBar):
    """Shows one bar for all training steps."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=1, leave=True)

    def init_train_tqdm(self) -> Tqdm:
        bar = super().init_train_tqdm()
        bar.set_description("training")
        return bar

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        super().on_train_epoch_start(trainer, *_)
        self.train_progress_bar.set_description("training")

    def get_metrics(self, trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
        metrics = super().get_metrics(trainer, module)
        metrics.pop("v_num", None)
        return metrics


class ProgressLines(pl.Callback):
    """Logs a line every 30 s and after each validation, with the content of the bar."""

    def __init__(self) -> None:
        self._logged_at = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if time.monotonic() - self._logged_at >= 30.0:
            self._log(trainer)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._log(trainer)

    def _log(self, trainer: pl.Trainer) -> None:
        self._logged_at = time.monotonic()
        if not trainer.is_global_zero:
            return
        metrics = ", ".join(f"{name} {float(value):.3f}" for name, value in trainer.progress_bar_metrics.items())
        num_steps = -(-int(trainer.num_training_batches) // trainer.accumulate_grad_batches)
        log.info("training: step %d of %d%s", trainer.global_step, num_steps, f", {metrics}" if metrics else "")


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
    strategy, timeout = hardware["strategy"], timedelta(seconds=hardware.get("timeout_seconds", TIMEOUT_SECONDS))
    if strategy == "ddp":
        strategy = DDPStrategy(timeout=timeout)
    elif strategy == FSDP:
        from faithkit.training.sharded_strategy import ShardedStrategy

        devices = hardware["devices"]
        count = devices if isinstance(devices, int) else max(1, torch.cuda.device_count())
        strategy = ShardedStrategy(count * hardware["num_nodes"], timeout=timeout)
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
        strategy=strategy,
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
