"""Callbacks of every training run: checkpoints that survive any end, a check for a loss that is not finite, a bar."""

import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm

from faithkit import signals
from faithkit.errors import UserError
from faithkit.signals import Interrupted


class LastCheckpoint(Checkpoint):
    """Keeps `last.ckpt` fresh, and turns Ctrl-C and SIGTERM into a checkpoint and an orderly end.

    It is written after a training step, where the state is complete, at most `every_seconds` apart, and after each
    validation; always under another name first, so that a kill at any moment leaves a whole file. A second signal ends
    the process at once: the file of before is still there.

    Args:
        path: The file.
        every_seconds: Time between two checkpoints.
        run_path: The run's folder, which the message at the end tells the user to resume.
    """

    def __init__(self, path: Path, every_seconds: float, run_path: Path):
        self.path, self.every_seconds, self.run_path = path, every_seconds, run_path
        self._saved_at = time.monotonic()
        self._stop = False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._saved_at = time.monotonic()
        signals.hold()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        signals.release()

    def teardown(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        signals.release()
        signals.check(self._how_to_go_on())  # one that came behind the last step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        wanted = 2 if signals.received() else int(time.monotonic() - self._saved_at > self.every_seconds)
        wanted = self._agree(trainer, wanted)
        if not wanted or self._validation_is_due(trainer):
            return  # a checkpoint before a validation would leave it out on resume: the one behind it is the right one
        self._save(trainer)
        self._stop = wanted == 2

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if self._stop:  # only now: the loggers have the last step too
            raise Interrupted(self._how_to_go_on())

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self._stop or self._agree(trainer, int(signals.received())):
            raise Interrupted(self._how_to_go_on())

    @staticmethod
    def _validation_is_due(trainer: pl.Trainer) -> bool:
        fetcher = trainer.fit_loop._data_fetcher
        return fetcher is not None and trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._save(trainer)
            self._stop = self._agree(trainer, int(signals.received())) == 1

    def _how_to_go_on(self) -> str:
        return f"go on with resume={self.run_path}"

    @staticmethod
    def _agree(trainer: pl.Trainer, wanted: int) -> int:
        """The largest value of any process: clocks and signals differ between them, and all must decide alike."""
        if trainer.world_size == 1:
            return wanted
        decision = torch.tensor(wanted, device=trainer.strategy.root_device)
        torch.distributed.all_reduce(decision, torch.distributed.ReduceOp.MAX)
        return int(decision)

    def _save(self, trainer: pl.Trainer) -> None:
        # `faithkit.files.atomic` opens a file in one process. Lightning wants a path, the same one in every process,
        # because sharded strategies gather their weights while they save. A fixed name leaves no litter after kills.
        temporary = self.path.with_suffix(".writing")
        trainer.save_checkpoint(temporary)
        if trainer.is_global_zero:
            temporary.replace(self.path)
        self._saved_at = time.monotonic()


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


class ProgressBar(TQDMProgressBar):
    """One bar over all training steps; a line now and then where the output is not a terminal."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=1, leave=True)

    def init_train_tqdm(self) -> Tqdm:
        bar = super().init_train_tqdm()
        bar.set_description("training")
        if not bar.fp.isatty() if hasattr(bar.fp, "isatty") else True:
            bar.mininterval = bar.maxinterval = 10.0
        return bar

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        super().on_train_epoch_start(trainer, *_)
        self.train_progress_bar.set_description("training")

    def get_metrics(self, trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
        metrics = super().get_metrics(trainer, module)
        metrics.pop("v_num", None)
        return metrics
