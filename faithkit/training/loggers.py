"""Builds the loggers of a training: metrics by step to CSV files, TensorBoard or Weights & Biases."""

import csv
from collections.abc import Callable, Mapping
from typing import Any

from pytorch_lightning.loggers import Logger

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder, environment
from faithkit.training.checkpoints import find_resume_point


def build_loggers(options: Mapping[str, Any], run: RunFolder, config: Mapping[str, Any]) -> list[Logger]:
    """Builds the loggers of the `logger` block: csv, tensorboard, wandb, or several."""
    made: list[Logger] = []
    for name, settings in options.items():
        if name not in LOGGERS:
            raise UserError(
                f"unknown logger {name!r}", hint=f"use {', '.join(LOGGERS)}, or several: logger=[csv,wandb]"
            )
        made.append(LOGGERS[name](run, settings or {}))
        made[-1].log_hyperparams({**config, "environment": environment()})
    return made


def _csv(run: RunFolder, settings: Mapping[str, Any]) -> Logger:
    from pytorch_lightning.loggers import CSVLogger

    file = run.path / "csv" / "metrics.csv"
    rows = list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []
    logger = CSVLogger(save_dir=run.path, name="", version="csv", **settings)
    # A new logger deletes the file. A resumed run gives it the rows up to its checkpoint, so the curve stays whole.
    step = _last_step(run) if rows else 0
    logger.experiment.metrics = [
        {name: value for name, value in row.items() if value} for row in rows if int(row["step"]) < step
    ]
    return logger


def _last_step(run: RunFolder) -> int:
    point = find_resume_point(run)
    return 0 if point is None else point.step


def _tensorboard(run: RunFolder, settings: Mapping[str, Any]) -> Logger:
    from pytorch_lightning.loggers import TensorBoardLogger

    try:
        return TensorBoardLogger(save_dir=run.path, name="", version="tensorboard", **settings)
    except ModuleNotFoundError as error:
        raise UserError(
            "logger=tensorboard needs the package tensorboard", hint="pip install '.[tensorboard]'"
        ) from error


def _wandb(run: RunFolder, settings: Mapping[str, Any]) -> Logger:
    from pytorch_lightning.loggers import WandbLogger

    # The folder's name as id: a resumed run goes on in the same place.
    return WandbLogger(save_dir=run.path, name=run.path.name, id=run.path.name, resume="allow", **settings)


LOGGERS: dict[str, Callable[[RunFolder, Mapping[str, Any]], Logger]] = {
    "csv": _csv,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
