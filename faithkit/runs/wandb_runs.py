"""Runs read from the folders that W&B keeps on disk, `wandb/offline-run-*`, so that they compare without an account.

A run that was resumed has a folder for each part, which `wandb sync` would join: they are read as one run.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from faithkit.files.run_lock import is_locked
from faithkit.runs.run import Curve, Run, script_of
from faithkit.runs.state import TRAIN, State
from faithkit.runs.wandb_records import ENVIRONMENT, WandbFile, read_wandb_file
from faithkit.statistics.metric import Metric

SUFFIX = ".wandb"
STEP = "trainer/global_step"
_FOLDER = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-(.+)")
_BESIDE = (ENVIRONMENT, "data_summary", "checkpoint_run", "_wandb")  # in W&B's configuration beside the run's own
_LINEAGE = ("dataset", "model")  # types of artifacts; tables and the like are others
_BOUNDS = ("low", "high", "n")  # logged as NAME/low, NAME/high and NAME/n beside a metric


def wandb_id(folder: Path) -> str | None:
    """Reads the run's id from the name of a folder of W&B; None of any other folder."""
    named = _FOLDER.fullmatch(folder.name)  # not of `latest-run`, a link to one of those beside it
    return named[1] if named and (folder / f"run-{named[1]}{SUFFIX}").is_file() else None


def read_wandb_run(folder: Path) -> Run:
    """Reads a run from one of its folders and those beside it of the same run; it never fails."""
    parts = _parts(folder.resolve() / f"run-{wandb_id(folder)}{SUFFIX}")
    problems = [part.problem for part in parts if part.problem]
    names = next((part.names for part in reversed(parts) if part.names is not None), None)
    state = _state(folder.resolve().parent.parent, parts)
    if names is None:  # W&B writes some seconds after a run began
        problems, meta = problems or ["nothing of a run is in its file"], {"wandb": {"id": wandb_id(folder)}}
        return Run(folder=folder, name=folder.name, state=state, meta=meta, problems=tuple(problems))
    logged: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    for part in parts:
        logged |= part.config
        settings |= part.settings
        summary |= part.summary
    config = {key: value for key, value in (settings or logged).items() if key not in _BESIDE}
    curves = {name for part in parts for row in part.history for name in row}
    seconds = names.start_time.seconds if parts[0].names is None else parts[0].names.start_time.seconds
    return Run(
        folder=folder,
        name=names.display_name or names.run_id,
        script=script_of(config) or (TRAIN if names.job_type.startswith((TRAIN, "stage")) else names.job_type),
        state=state,
        began=_time(seconds),
        config=config,
        metrics=_metrics(summary, curves, problems),
        meta={
            "data": logged.get("data_summary") or {},
            ENVIRONMENT: logged.get(ENVIRONMENT) or {},
            "wandb": {
                **{"id": names.run_id, "project": names.project, "group": names.run_group, "job_type": names.job_type},
                **{"tags": list(names.tags), "checkpoint_run": logged.get("checkpoint_run")},
                **_artifacts(parts),
            },
        },
        curves=parts[-1].path,
        problems=tuple(problems),
    )


def read_wandb_curves(path: Path) -> dict[str, Curve]:
    """Reads the curves of a W&B run by one of its files; where a step was taken twice, the later one counts."""
    curves: dict[str, dict[int, float]] = {}
    for part in _parts(path):
        for row in part.history:
            step: Any = row.get(STEP, row.get("_step"))
            if not _is_number(step):
                continue
            for name, value in row.items():
                if name != STEP and not name.startswith("_") and _is_number(value):
                    curves.setdefault(name, {})[int(step)] = value
    return {name: sorted(points.items()) for name, points in curves.items()}


def _parts(path: Path) -> list[WandbFile]:
    """Reads all files of a run, in the order in which they were begun."""
    folders = (folder for folder in path.parent.parent.iterdir() if (folder / path.name).is_file())
    named = {folder.resolve() for folder in folders if _FOLDER.fullmatch(folder.name)}
    return [read_wandb_file(folder / path.name) for folder in sorted(named)]


def _state(whole: Path, parts: Sequence[WandbFile]) -> State:
    """Finds the state of a run; `whole` is our own run's folder, where W&B's stands in one."""
    if parts and parts[-1].exit_code == 0:
        return State.FINISHED
    if not (whole / "config.yaml").is_file():
        return State.BROKEN
    return State.WORKING if is_locked(whole) else State.RESUMABLE


def _metrics(summary: Mapping[str, Any], curves: Iterable[str], problems: list[str]) -> dict[str, Metric]:
    """Selects the results: numbers of the summary that are no ends of curves, and no bounds of others."""
    names = summary.keys() - set(curves)
    found = {}
    for name in summary:
        start, _, end = name.rpartition("/")
        if name not in names or name.count("/") < 2 or (end in _BOUNDS and start in names):
            continue
        value, *bounds = (summary.get(key) for key in (name, *(f"{name}/{bound}" for bound in _BOUNDS)))
        if isinstance(value, Mapping | bool | list | str | None):
            continue  # a table
        try:
            found[name] = Metric(value=value, **dict(zip(_BOUNDS, bounds, strict=True)))
        except ValueError as error:
            problems.append(f"the metric {name!r} is left out: {error}")
    return found


def _artifacts(parts: Iterable[WandbFile]) -> dict[str, list[str]]:
    """Names the artifacts that a run made and used, each with the beginning of its content's digest."""
    known = {"made": False, "used": True}
    every = [artifact for part in parts for artifact in part.artifacts if artifact.type in _LINEAGE]
    return {
        key: [f"{one.name}@{one.digest[:8]}" for one in every if one.use_after_commit == used]
        for key, used in known.items()
    }


def _time(seconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds) if seconds else None
    except (OverflowError, ValueError, OSError):  # of a damaged file
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
