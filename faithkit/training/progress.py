"""Shows how far a training is: a bar on a terminal, a line now and then in a file or a pipe."""

import logging
import sys
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm

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
