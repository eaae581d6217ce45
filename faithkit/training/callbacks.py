"""Callbacks of every training run: checkpoints that survive any end, and a check for a loss that is not finite."""

import logging
import math
import sys
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint, TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm

from faithkit import signals
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder, resume_hint
from faithkit.signals import Interrupted
from faithkit.training.checkpoints import check_fits


class LastCheckpoint(Checkpoint):
    """Keeps `last.ckpt` fresh, and turns Ctrl-C and SIGTERM into a checkpoint and an orderly end.

    It is written after a training step or a validation, where the state is complete, at most `every_seconds` apart. A
    kill at any moment leaves it whole (`DurableCheckpoints`; for shards `ShardedStrategy`), and the one before it stays
    beside it. A second signal ends the process at once: the one of before is still there.

    With an optimizer's moments it is three times as large as the weights. A training that ends sooner than
    `every_seconds` writes it once, at its end, and without them: nothing is trained from there, only tested.

    Args:
        run: Its folder has the checkpoint.
        every_seconds: Time between two checkpoints.
        keeps_all: Writes it after each validation too, and the last one whole.
    """

    def __init__(self, run: RunFolder, every_seconds: float, *, keeps_all: bool = True):
        self.run, self.every_seconds, self.keeps_all = run, every_seconds, keeps_all
        self._is_whole = False  # last.ckpt: this process wrote it or has resumed from it
        self._saved_at = time.monotonic()
        self._stop = self._has_ended = False

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        if trainer.ckpt_path is not None:
            check_fits(Path(trainer.ckpt_path), module)
            self._is_whole = Path(trainer.ckpt_path) == self.run.last

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._saved_at = time.monotonic()
        signals.hold()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        signals.release()

    def teardown(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        signals.release()
        signals.check(self._resume_hint())  # one that came behind the last step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        wanted = self._wanted(trainer)
        if not wanted or self._validation_is_due(trainer):
            return  # a checkpoint before a validation would leave it out on resume: the one behind it is the right one
        self._save(trainer)
        self._stop = wanted == 2

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if self._stop:  # only now: the loggers have the last step too
            raise Interrupted(self._resume_hint())

    def _wanted(self, trainer: pl.Trainer, always: bool = False) -> int:
        """Tells whether to write it: 0 no, 1 yes, 2 and then to stop."""
        is_due = always or time.monotonic() - self._saved_at > self.every_seconds
        return self._agree(trainer, 2 if signals.received() else int(is_due))

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        # Where early stopping ends a training, its resume takes steps to the next validation, by these moments.
        self._has_ended = not (self.keeps_all or trainer.should_stop or trainer.world_size > 1)
        if not self.keeps_all:
            self._save(trainer)
        if self._stop or self._agree(trainer, int(signals.received())):
            raise Interrupted(self._resume_hint())

    @staticmethod
    def _validation_is_due(trainer: pl.Trainer) -> bool:
        fetcher = trainer.fit_loop._data_fetcher
        return fetcher is not None and trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit" and (wanted := self._wanted(trainer, self.keeps_all)):
            self._save(trainer)
            self._stop = wanted == 2

    def on_save_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._has_ended:
            checkpoint["optimizer_states"] = [{**one, "state": {}} for one in checkpoint["optimizer_states"]]

    def _resume_hint(self) -> str:
        return resume_hint("train", self.run.whole)

    @staticmethod
    def _agree(trainer: pl.Trainer, wanted: int) -> int:
        """The largest value of any process: clocks and signals differ between them, and all must decide alike."""
        if trainer.world_size == 1:
            return wanted
        decision = torch.tensor(wanted, device=trainer.strategy.root_device)
        torch.distributed.all_reduce(decision, torch.distributed.ReduceOp.MAX)
        return int(decision)

    def _save(self, trainer: pl.Trainer) -> None:
        # A damaged last.ckpt, which the training did not resume from, must not take the place of the one that it did.
        trainer.save_checkpoint(self.run.last, storage_options=self.run.previous if self._is_whole else None)
        self._is_whole = True
        self._saved_at = time.monotonic()


class BestCheckpoint(ModelCheckpoint):
    """Keeps `best.ckpt`: the weights of the validation with the best score.

    A resumed training knows that score also where the run's folder has moved, and takes no path from a checkpoint.

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

    @property
    def state_key(self) -> str:
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__)  # as in older runs

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        score = state_dict.get("best_model_score")
        if score is None:
            return
        own = str(Path(self.dirpath or "") / self.path.name)
        names = {"best_model_path": own, "kth_best_model_path": own, "best_k_models": {own: score}}
        super().load_state_dict({**state_dict, **names, "dirpath": self.dirpath, "last_model_path": ""})


def chosen_score(trainer: pl.Trainer) -> dict[str, Any]:
    """Gives the score of the validation that chose the best checkpoint, and the metric's name and direction."""
    best = next(callback for callback in trainer.checkpoint_callbacks if isinstance(callback, BestCheckpoint))
    score = math.nan if best.best_model_score is None else float(best.best_model_score)
    return {"monitor": best.monitor, "mode": best.mode, "value": score if math.isfinite(score) else None}


class FiniteLoss(pl.Callback):
    """Stops with an explanation at a loss that is not finite, before it has ruined the best checkpoint.

    Args:
        every_num_steps: Steps between two checks on a GPU, which would have to wait for each.
    """

    def __init__(self, every_num_steps: int):
        self.every_num_steps = every_num_steps

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        if trainer.strategy.root_device.type != "cpu" and trainer.global_step % self.every_num_steps:
            return
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        if loss is not None and not bool(torch.isfinite(loss)):
            hint = "lower optimizer.lr, or set trainer.precision=32-true; the last checkpoint is still good"
            raise UserError(f"the loss became {float(loss)} at step {trainer.global_step}", hint=hint)


EVERY_SECONDS = 30.0  # at most one line in a file or a pipe, but for those of validations
log = logging.getLogger("faithkit")


def progress_callback() -> pl.Callback:
    """Chooses by where the messages go."""
    return ProgressBar() if sys.stderr.isatty() else ProgressLines()


class ProgressBar(TQDMProgressBar):
    """One bar over all training steps."""

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
    """A line at most every `EVERY_SECONDS`, and after each validation, with what the bar would show."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if time.monotonic() - self._said_at >= EVERY_SECONDS:
            self._say(trainer)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._say(trainer)

    def _say(self, trainer: pl.Trainer) -> None:
        self._said_at = time.monotonic()
        if not trainer.is_global_zero:
            return
        metrics = ", ".join(f"{name} {float(value):.3f}" for name, value in trainer.progress_bar_metrics.items())
        num_steps = -(-int(trainer.num_training_batches) // trainer.accumulate_grad_batches)
        log.info("training: step %d of %d%s", trainer.global_step, num_steps, f", {metrics}" if metrics else "")
