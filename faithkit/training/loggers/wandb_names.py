"""The names that a training has at W&B: stable, so that runs can be found and compared by them.

The id and the name are made once and kept in the run's folder. The group is the sweep, or the training in stages; the
job type is train, stage1-..., stage2 or evaluate; the tags are model=..., data=..., scale=... and so on. The run of an
evaluation stands in the group of its model's run.
"""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from faithkit.cli import COMMAND_VARIABLE, SWEEP_VARIABLE
from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.run_folder import RunFolder
from faithkit.training.stages import LAST_STAGE, STAGE, part_name

FILE = "wandb.json"
LONGEST_TAG = 64  # W&B refuses longer ones


@dataclass(frozen=True, slots=True, kw_only=True)
class WandbNames:
    """Names that a run's folder keeps; a copy of the folder on another machine goes on with the same run.

    Args:
        model: The artifact that the run's hf/ became, and the digest of its content; None where it became none.
    """

    id: str
    name: str
    group: str | None = None
    model: str | None = None
    model_digest: str | None = None


def wandb_names(run: RunFolder, job: str) -> WandbNames:
    """Reads the names from the run's folder; the first time they are made and written there.

    Raises:
        UserError: The file is damaged.
    """
    path = run.path / FILE
    if path.exists():
        return _read(path)
    folder, whole = run.path.resolve().name, run.whole.resolve().name
    # Folders of the same name stand on other machines. A run that began before there was this file had no other id.
    number = folder if (run.path / "wandb").exists() else secrets.token_hex(8)
    staged = job.startswith(STAGE)
    group = _sweep()
    if group is None and staged:
        is_last = run.path == run.whole
        group = f"{whole}-{number if is_last else wandb_names(RunFolder(run.whole), LAST_STAGE).id}"
    names = WandbNames(id=number, name=f"{whole}/{job}" if staged else folder, group=group)
    write_json(path, asdict(names))
    return names


def keep_model(run: RunFolder, name: str, digest: str) -> None:
    """Keeps the name of the artifact that hf/ became, for those that use the model."""
    path = run.path / FILE
    write_json(path, asdict(replace(_read(path), model=name, model_digest=digest)))


def _read(path: Path) -> WandbNames:
    try:
        names = WandbNames(**json.loads(path.read_text(encoding="utf-8")))
        if names.id and isinstance(names.id, str) and isinstance(names.name, str):
            return names
        raise ValueError("id and name must be text")
    except (ValueError, TypeError, RecursionError) as error:
        hint = f"delete {FILE}, and the run goes on as a new one at W&B"
        raise UserError(f"not the names of a W&B run: {error}", place=str(path), hint=hint) from error


def _sweep() -> str | None:
    """Names the sweep that this process runs a job of."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    if name := os.environ.get(SWEEP_VARIABLE):
        return f"sweep-{name}"
    is_sweep = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
    command = os.environ.get(COMMAND_VARIABLE)
    return f"sweep-{command}" if is_sweep and command else None


def tags_of(config: Mapping[str, Any]) -> list[str]:
    """Gives the tags that every run has, such as `model=critic`."""
    parts = {part: config[part].get("name") for part in ("model", "data", "benchmark", "scale") if config.get(part)}
    parts |= {part: part_name(config[part]) for part in ("objective", "control") if config.get(part)}
    return [f"{part}={name}"[:LONGEST_TAG] for part, name in parts.items()]


def names_of_model(model: Any) -> WandbNames | None:
    """Finds the W&B run that made a model, where that is named by its run's folder or the hf/ folder in it."""
    folder = Path(str(model)).expanduser()
    files = [place / FILE for place in (folder, folder.parent)] if folder.is_dir() else []
    return next((_read(file) for file in files if file.exists()), None)
