"""Reads run folders, complete or damaged: what cannot be read is listed as a problem, the rest is returned.

from faithkit.runs import find_runs
for run in find_runs("runs/*"):
    print(run.name, run.state, run.metrics, *run.problems)
"""

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.files.run_folder import RunFolder
from faithkit.files.saved_config import read_config
from faithkit.runs.run import Curve, Run, state_of
from faithkit.settings.config_files import SWEEP_FILE, script_of
from faithkit.statistics.metric import Metric

CURVES, STEP = "csv/metrics.csv", "step"
RUN_FILES = ("config.yaml", "metrics.json", "checkpoints", ".lock")  # any of them marks the folder of a run
MAX_BYTES = 100_000_000  # of a metrics.json; typical ones have some hundred thousand


def find_runs(patterns: str | Path | Iterable[str | Path]) -> list[Run]:
    """Reads the runs that paths or patterns match, in the order in which they began.

    Args:
        patterns: Folders of runs, or patterns such as `runs/*`. A folder that is not a run stands for the runs in it.

    Raises:
        UserError: A path or a pattern matches no run.
    """
    folders: dict[Path, Path] = {}  # by the real path: a run that matches twice is read once
    for pattern in [patterns] if isinstance(patterns, str | Path) else patterns:
        path, found = Path(pattern).expanduser(), list[Path]()
        is_pattern = any(character in str(path) for character in "*?[") and not path.exists()
        below = path.relative_to(path.anchor)
        for one in sorted(Path(path.anchor).glob(str(below))) if is_pattern else [path]:
            found += filter(is_run, [one] if is_run(one) else _entries(one))
        if not found:
            hint = "name the folder of a run, runs/NAME, or a pattern: runs='runs/*'"
            raise UserError("there is no run", place=str(pattern), hint=hint)
        for folder in found:
            folders.setdefault(folder.resolve(), folder)
    runs = [read_run(folder) for folder in folders.values()]
    return sorted(runs, key=lambda run: (run.began or datetime.min, run.name))


def name_runs_uniquely(runs: Sequence[Run]) -> list[Run]:
    """Names runs by their whole path where several folders have the same name."""
    count = Counter(run.name for run in runs)
    return [run if count[run.name] == 1 else replace(run, name=str(run.folder)) for run in runs]


def is_run(folder: Path) -> bool:
    """Checks whether a command has worked in a folder."""
    try:
        if not folder.is_dir() or (folder / SWEEP_FILE).exists():  # the runs of a sweep are in its subfolders
            return False
        return any((folder / name).exists() for name in RUN_FILES)
    except OSError:  # a folder without permission
        return False


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def read_run(folder: str | Path) -> Run:
    """Reads the folder of one run; it never fails: `problems` lists what could not be read."""
    path = Path(folder).expanduser()
    try:
        return _read(RunFolder(path))
    except OSError as error:  # a folder without permission
        return Run(folder=path, name=path.name, problems=(f"it cannot be read: {error.strerror}",))


def _read(run: RunFolder) -> Run:
    problems: list[str] = []
    metrics, meta = _read_metrics(run, problems)
    try:
        config, has_config = read_config(run.config), True
    except (UserError, OSError) as error:
        problems.append(f"config.yaml cannot be read: {_reason(error)}" if run.config.exists() else "no config.yaml")
        stored = (meta or {}).get("config")  # its copy in metrics.json
        config, has_config = stored if isinstance(stored, dict) else {}, False
    script = script_of([key for key, value in config.items() if value], "")  # empty if config.yaml does not show it
    run.script = script or run.script
    predictions = {path.stem: path for path in _entries(run.predictions) if path.suffix == ".jsonl"}
    curves = run.path / CURVES
    scored: dict[str, Path] = {}  # the predictions files that an evaluation scored: one, or one of each dataset
    if isinstance(benchmark := config.get("benchmark"), Mapping):
        datasets = benchmark.get("datasets")
        blocks = {benchmark.get("name"): config, **(datasets if isinstance(datasets, Mapping) else {})}
        for name, block in blocks.items():
            path = block.get("predictions") if isinstance(block, Mapping) else None
            if isinstance(path, str) and Path(path).expanduser().is_file():
                scored[str(name)] = Path(path).expanduser()
            elif path:
                problems.append(f"the predictions that it scored are no longer at {shorten(path)}")
    # It began at the time of its folder's name, of the first line of its log, or of its configuration.
    began, named = None, re.match(r"(\d{4}-\d\d-\d\d)_(\d\d)-(\d\d)-(\d\d)", run.path.resolve().name)
    text = f"{named[1]} {named[2]}:{named[3]}:{named[4]}" if named else ""
    if not named:
        with suppress(OSError), run.log.open(encoding="utf-8", errors="replace") as file:
            text = file.readline(100)[:19]
    try:
        began = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        with suppress(OSError):
            began = datetime.fromtimestamp(run.config.stat().st_mtime).replace(microsecond=0)
    return Run(
        folder=run.path,
        name=run.path.resolve().name,
        script=script,
        state=state_of(run, script, predictions.values(), has_results=meta is not None, has_config=has_config),
        began=began,
        config=config,
        metrics=metrics,
        meta=meta or {},
        predictions=scored | predictions,
        curves=curves if curves.is_file() else None,
        problems=tuple(problems),
    )


def _read_metrics(run: RunFolder, problems: list[str]) -> tuple[dict[str, Metric], dict[str, Any] | None]:
    """Reads metrics.json: the metrics, and its other content, which is None for an unfinished run."""
    try:
        if run.metrics.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        content = json.loads(run.metrics.read_bytes())
        if not isinstance(content, dict) or not isinstance(content.get("metrics"), dict):
            raise ValueError('it has no "metrics"')
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"metrics.json cannot be read: {_reason(error)}")
        return {}, None
    metrics = {}
    for name, value in content["metrics"].items():
        try:
            metrics[name] = Metric(**value)
        except (TypeError, ValueError) as error:  # TypeError: no mapping, or other keys
            problems.append(f"the metric {shorten(name)} is left out: {_reason(error)}")
    meta = content.get("meta")
    return metrics, meta if isinstance(meta, dict) else {}


def _reason(error: BaseException) -> str:
    return error.problem if isinstance(error, UserError) else shorten(str(error), 120)[1:-1]


def read_curves(path: Path) -> dict[str, Curve]:
    """Reads the learning curves of a run from `Run.curves`; damaged lines and values are left out."""
    curves: dict[str, Curve] = {}
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for row in csv.DictReader(line.replace("\0", "") for line in file):
            step = _number(row.get(STEP))
            if step is None or None in row or None in row.values():  # a line with too many or too few fields
                continue
            for name, text in row.items():
                value = _number(text)
                if name != STEP and value is not None:
                    curves.setdefault(name, []).append((int(step), value))
    return curves


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
