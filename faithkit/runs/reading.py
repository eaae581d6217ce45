"""Reads the folders that runs leave, whole or damaged; what cannot be read is named, and the rest is there.

from faithkit.runs import find_runs
for run in find_runs("runs/*"):
    print(run.name, run.state, run.metrics, *run.problems)
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.files.run_folder import SWEEP_FILE, RunFolder
from faithkit.files.saved_config import read_config
from faithkit.runs.run import Run, script_of
from faithkit.runs.state import state_of
from faithkit.runs.wandb_runs import read_wandb_run, wandb_id
from faithkit.statistics.metric import Metric

__all__ = ["Run", "find_runs", "is_run", "read_run"]

CURVES = "csv/metrics.csv"
SIGNS = ("config.yaml", "metrics.json", "checkpoints", ".lock")  # any of them: a run worked here
MOST_BYTES = 100_000_000  # of a metrics.json; ours have some hundred thousand
_NAMED_TIME = re.compile(r"(\d{4}-\d\d-\d\d)_(\d\d)-(\d\d)-(\d\d)")


def find_runs(patterns: str | Path | Iterable[str | Path]) -> list[Run]:
    """Reads the runs that paths or patterns name, in the order in which they began.

    Args:
        patterns: Folders of runs, or patterns such as `runs/*` or `runs/*/wandb/offline-run-*`. A folder that is no run
            stands for the runs in it.

    Raises:
        UserError: A path or a pattern finds no run.
    """
    folders: dict[Path, Path] = {}  # by the real path: what is named twice is one run
    for pattern in [patterns] if isinstance(patterns, str | Path) else patterns:
        found = list(_folders(Path(pattern).expanduser()))
        if not found:
            hint = "name the folder of a run, runs/NAME, or a pattern: runs='runs/*'"
            raise UserError("there is no run", place=str(pattern), hint=hint)
        for folder in found:
            folders.setdefault(_identity(folder), folder)
    runs = [read_run(folder) for folder in folders.values()]
    return sorted(runs, key=lambda run: (run.began or datetime.min, run.name))


def _folders(pattern: Path) -> Iterator[Path]:
    is_pattern = any(character in str(pattern) for character in "*?[") and not pattern.exists()
    below = pattern.relative_to(pattern.anchor)
    for path in sorted(Path(pattern.anchor).glob(str(below))) if is_pattern else [pattern]:
        if is_run(path):
            yield path
        else:
            yield from (inner for inner in _entries(path) if is_run(inner))


def _identity(folder: Path) -> Path:
    """Gives the path that a run is known by: the parts of a resumed run of W&B are one."""
    name = wandb_id(folder)
    return folder.resolve() if name is None else folder.resolve().with_name(name)


def is_run(folder: Path) -> bool:
    """Tells whether a command of ours has worked in a folder, or W&B has logged a run there."""
    try:
        if not folder.is_dir() or (folder / SWEEP_FILE).exists():  # a sweep has its runs in it
            return False
        return any((folder / sign).exists() for sign in SIGNS) or wandb_id(folder) is not None
    except OSError:  # a folder that may not be entered
        return False


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def read_run(folder: str | Path) -> Run:
    """Reads the folder of one run, ours or W&B's; it never fails: `problems` says what could not be read."""
    path = Path(folder).expanduser()
    try:
        return _read(RunFolder(path)) if wandb_id(path) is None else read_wandb_run(path)
    except OSError as error:  # a folder that may not be entered
        return Run(folder=path, name=path.name, problems=(f"it cannot be read: {error.strerror}",))


def _read(run: RunFolder) -> Run:
    problems: list[str] = []
    metrics, meta = _read_metrics(run, problems)
    config, is_own = _read_config(run, meta or {}, problems)
    script = script_of(config)
    own = {path.stem: path for path in _entries(run.predictions) if path.suffix == ".jsonl"}
    curves = run.path / CURVES
    return Run(
        folder=run.path,
        name=run.path.resolve().name,
        script=script,
        state=state_of(run, script, own.values(), has_results=meta is not None, has_config=is_own),
        began=_began(run),
        config=config,
        metrics=metrics,
        meta=meta or {},
        predictions=_given_predictions(config, problems) | own,
        curves=curves if curves.is_file() else None,
        problems=tuple(problems),
    )


def _read_metrics(run: RunFolder, problems: list[str]) -> tuple[dict[str, Metric], dict[str, Any] | None]:
    """Reads metrics.json; what it says beside its metrics is None where a run has not come to its end."""
    try:
        if run.metrics.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        found = json.loads(run.metrics.read_bytes())
        if not isinstance(found, dict) or not isinstance(found.get("metrics"), dict):
            raise ValueError('it has no "metrics"')
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"metrics.json cannot be read: {_reason(error)}")
        return {}, None
    metrics = {}
    for name, value in found["metrics"].items():
        try:
            metrics[name] = Metric(**value)
        except (TypeError, ValueError) as error:  # TypeError: no map, or one with other keys
            problems.append(f"the metric {shorten(name)} is left out: {_reason(error)}")
    meta = found.get("meta")
    return metrics, meta if isinstance(meta, dict) else {}


def _read_config(run: RunFolder, meta: Mapping[str, Any], problems: list[str]) -> tuple[dict[str, Any], bool]:
    """Reads config.yaml, and tells whether that went well; else metrics.json may have the configuration too."""
    try:
        return read_config(run.config), True
    except (UserError, OSError) as error:
        problems.append(f"config.yaml cannot be read: {_reason(error)}" if run.config.exists() else "no config.yaml")
    stored = meta.get("config")
    return (stored, False) if isinstance(stored, dict) else ({}, False)


def _reason(error: BaseException) -> str:
    return error.problem if isinstance(error, UserError) else shorten(str(error), 120)[1:-1]


def _given_predictions(config: Mapping[str, Any], problems: list[str]) -> dict[str, Path]:
    """Finds the files that an evaluation was given to score: one, or one for each of several datasets."""
    benchmark = config.get("benchmark")
    if not isinstance(benchmark, Mapping):
        return {}
    sets = benchmark.get("datasets")
    blocks = {benchmark.get("name"): config, **(sets if isinstance(sets, Mapping) else {})}
    found = {}
    for name, block in blocks.items():
        given = block.get("predictions") if isinstance(block, Mapping) else None
        if isinstance(given, str) and (path := Path(given).expanduser()).is_file():
            found[str(name)] = path
        elif given:
            problems.append(f"the predictions that it scored are no longer at {shorten(given)}")
    return found


def _began(run: RunFolder) -> datetime | None:
    """Finds when a run began: its folder's name tells it, else the first line of its log, else its configuration."""
    named = _NAMED_TIME.match(run.path.resolve().name)
    text = f"{named[1]} {named[2]}:{named[3]}:{named[4]}" if named else _first_line(run.log)[:19]
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        pass
    try:
        return datetime.fromtimestamp(run.config.stat().st_mtime).replace(microsecond=0)
    except OSError:
        return None


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(100)
    except OSError:
        return ""
