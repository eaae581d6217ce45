"""Times one epoch in our Trainer with its callbacks, from the first batch to the last."""

import tempfile
from pathlib import Path
from typing import Any

from speed.measure import cpu_seconds


def train_one_epoch(
    data: Any, module: Any, *, precision: str, monitor: str, losses: list[float] | None = None
) -> float:
    """Trains a module on data that is set up, on one CPU, and returns the CPU-seconds.

    Args:
        losses: Gets the loss of each step.
    """
    import pytorch_lightning as pl

    from faithkit.files.run_folder import RunFolder
    from faithkit.training.trainer import build_trainer

    clock = [0.0]

    class Clock(pl.Callback):
        def on_train_start(self, *_: Any) -> None:
            clock[0] -= cpu_seconds()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if losses is not None:
                losses.append(float(outputs["loss"]))
            if batch_idx + 1 == trainer.num_training_batches:
                clock[0] += cpu_seconds()

    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(
            RunFolder(Path(folder)),
            [],
            hardware={"accelerator": "cpu", "devices": 1, "strategy": "auto", "num_nodes": 1, "precision": precision},
            callbacks={
                "monitor": monitor,
                "mode": "max",
                "patience": None,
                "save_every_seconds": 1e9,
                "log_every_num_steps": 10,
                "progress_bar": False,
            },
            accumulate_grad_batches=1,
            gradient_clip_val=1.0,
            validation_interval=data.num_batches,
        )
        trainer.callbacks.append(Clock())  # type: ignore[attr-defined]
        trainer.fit(module, datamodule=data)
    return clock[0]
