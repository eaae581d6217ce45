"""Reads run folders, complete or damaged, as plain data and as pandas data frames.

What cannot be read is listed as a problem, the rest is returned.

from faithkit import runs
for run in runs.find_runs("runs/*"):
    print(run.name, run.state, run.metrics, *run.problems)
metrics = runs.to_pandas("runs/*")  # one row per run and metric
metrics.pivot_table(index="run", columns="metric", values="value")
"""

import csv
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import parse_lines
from faithkit.files.run_folder import RunFolder, is_locked, read_config
from faithkit.packages import needs_package
from faithkit.settings.config_files import SWEEP_FILE, script_of
from faithkit.statistics.metric import Metric

if TYPE_CHECKING:
    import pandas as pd

TRAIN, EVALUATE, GENERATE, CONSTRUCT = "train", "evaluate", "generate", "construct"
AUDIT, COMPARE = "audit", "compare"

Curve = list[tuple[int, float]]  # steps, each with its value
CURVES, STEP = "csv/metrics.csv", "step"
MAX_BYTES = 100_000_000  # of a metrics.json; typical ones have some hundred thousand
EVERY = "runs/*"
_METRICS = ("run", "script", "state", "began", "split", "dataset", "metric", "value", "low", "high", "n", "folder")
_PREDICTIONS = ("run", "file", "id", "label", "score", "spans", "text")


class State(StrEnum):
    """The state of a run."""

    FINISHED = "finished"
    RESUMABLE = "resumable"  # interrupted: `resume=` continues it
    WORKING = "working"  # a command works in the folder now
    BROKEN = "broken"  # neither finished nor resumable


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run, as far as its folder could be read.

    Args:
        name: The folder's name.
        script: train, evaluate, generate, construct, score, audit or compare; empty if config.yaml does not show it.
        began: Local time; None if unknown.
        config: The content of config.yaml in plain containers; empty if it cannot be read.
        metrics: The metrics of metrics.json by full name, `split/dataset/metric`.
        meta: The other content of metrics.json.
        predictions: Predictions files by name: the run's files, and files that it scored.
        curves: The file of the learning curves, for `read_curves`; None if there is none.
        problems: Sentences about what could not be read.
    """

    folder: Path
    name: str
    script: str = ""
    state: State = State.BROKEN
    began: datetime | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    predictions: Mapping[str, Path] = field(default_factory=dict)
    curves: Path | None = None
    problems: tuple[str, ...] = ()


def parts_of(name: str) -> tuple[str, str, str]:
    """Splits a metric's full name into split, dataset and metric; a short name has only the last."""
    split, dataset, *rest = name.split("/", 2) if name.count("/") > 1 else ("", "", name)
    return split, dataset, rest[0]


def state_of(run: RunFolder, script: str, predictions: Iterable[Path], *, has_results: bool, has_config: bool) -> State:
    """Derives the state of a run from the files in its folder.

    Args:
        predictions: Its predictions files.
        has_results: Its metrics.json could be read.
        has_config: Its config.yaml could be read; nothing is resumed without it.
    """
    if is_locked(run.path):
        return State.WORKING
    has_ended = has_results  # not every script writes a metrics.json
    if script == GENERATE:  # a file's origin is written after its last row
        files = list(predictions)
        has_ended |= bool(files) and all(path.with_suffix(".origin.json").exists() for path in files)
    elif script in (AUDIT, COMPARE):
        has_ended |= (run.path / f"{script}.json").exists()
    elif script == EVALUATE:
        has_ended |= (run.path / "corpus.json").exists()  # benchmark=analysis
    elif script == CONSTRUCT:
        with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
            content = json.loads((run.path / "manifest.json").read_bytes())
            has_ended |= bool(content["result"]) and all(step["state"] == "done" for step in content["steps"])
    if has_ended:
        return State.FINISHED
    return State.RESUMABLE if has_config else State.BROKEN


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each value with its full key, `model.max_length`; lists stay whole."""
    for key, value in config.items():
        name = f"{prefix}{key}"
        # Some do not change what a run does. A scale is defaults for all models: the values that a run uses are in its
        # other blocks.
        if name in ("run_dir", "resume", "debug", "fast", "html", "hydra") or (prefix == "scale." and key != "name"):
            continue
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value


def differing_settings(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Finds the settings that differ, each with the value of every run; None for a run without the key.

    Runs are compared with runs of the same script. A value under several keys, such as `optimizer.lr` and
    `model.task.optimizer.lr`, is listed once, under the shortest key.
    """
    configs = [dict(flatten(run.config)) for run in runs]
    differing: dict[str, list[Any]] = {}
    listed: set[tuple[str, str]] = set()
    for key in sorted({key for config in configs for key in config}, key=lambda key: (key.count("."), key)):
        scripts = {run.script for run, config in zip(runs, configs, strict=True) if key in config}
        compared = {repr(c.get(key)) for run, c in zip(runs, configs, strict=True) if c and run.script in scripts}
        values = [config.get(key) for config in configs]
        if key.endswith("._target_"):  # a class by its file, which has the name of its choice: objective=infonce
            key, values = key.removesuffix("._target_"), [str(v).split(".")[-2:][0] if v else v for v in values]
        duplicate = (key.rpartition(".")[2], repr(values))
        if len(compared) > 1 and duplicate not in listed:
            listed.add(duplicate)
            differing[key] = values
    return differing


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
        return any((folder / name).exists() for name in ("config.yaml", "metrics.json", "checkpoints", ".lock"))
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


Runs = str | Path | Iterable[str | Path | Run]


def to_pandas(runs: Runs = EVERY) -> "pd.DataFrame":
    """Returns every metric of every run: one row per run and metric, and a column for each setting that differs.

    The columns are run, script, state, began, split, dataset, metric, value, low and high (the 95% interval), n,
    folder, and the settings by their keys, such as `optimizer.lr`. Runs without metrics have no rows.

    Args:
        runs: Folders, patterns, or runs from `find_runs`. Runs with the same name are named by their folders.
    """
    with needs_package("a DataFrame"):
        import pandas as pd

    found = _named(runs)
    settings = differing_settings(list(found.values()))
    rows = []
    for number, (name, run) in enumerate(found.items()):
        about = {"run": name, "script": run.script, "state": str(run.state), "began": run.began}
        differing = {key: values[number] for key, values in settings.items()}
        for full, metric in run.metrics.items():
            split, dataset, short = parts_of(full)
            named = {"split": split, "dataset": dataset, "metric": short, "folder": str(run.folder)}
            numbers = {"value": metric.value, "low": metric.low, "high": metric.high, "n": metric.n}
            rows.append({**differing, **about, **named, **numbers})
    frame = pd.DataFrame(rows, columns=[*_METRICS, *(key for key in settings if key not in _METRICS)])
    frame = frame.astype({"value": float, "low": float, "high": float, "n": "Int64"})
    return _with_problems(frame, [f"{name}: {problem}" for name, run in found.items() for problem in run.problems])


def predictions_to_pandas(runs: Runs = EVERY, *, file: str | None = None) -> "pd.DataFrame":
    """Returns every prediction of every run: one row per run, predictions file and id.

    The columns are run, file (its name without .jsonl), id, label, score (P(hallucinated)), spans, text, and the other
    fields of the lines: gold, group, knowledge, history, response, and `facts.NAME` for each of their
    `facts`. `frame.pivot(index="id", columns="run", values="score")` puts two runs next to each other.

    Args:
        runs: As in `to_pandas`.
        file: Reads only the predictions with this name, such as `begin`.
    """
    with needs_package("a DataFrame"):
        import pandas as pd

    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for name, run in _named(runs).items():
        for stem, path in run.predictions.items():
            if file not in (None, stem):
                continue
            wrong = 0
            try:
                for _, _, value in parse_lines(path):
                    if not isinstance(value, dict) or "id" not in value:
                        wrong += 1
                        continue
                    facts, score = value.pop("facts", None), value.get("score")
                    value["score"] = score if isinstance(score, int | float) and not isinstance(score, bool) else None
                    named = {f"facts.{key}": fact for key, fact in (facts if isinstance(facts, dict) else {}).items()}
                    rows.append({**value, **named, "run": name, "file": stem})
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{path}: it cannot be read completely: {shorten(str(error))[1:-1]}")
            if wrong:
                problems.append(f"{path}: lines that are not predictions are left out: {wrong:,}")
    more = dict.fromkeys(key for row in rows for key in row if key not in _PREDICTIONS)
    frame = pd.DataFrame(rows, columns=[*_PREDICTIONS, *more])
    return _with_problems(frame.astype({"score": float}), problems)


def curves_to_pandas(runs: Runs = EVERY) -> "pd.DataFrame":
    """Returns the learning curves: one row per run, name and step.

    Args:
        runs: As in `to_pandas`.
    """
    with needs_package("a DataFrame"):
        import pandas as pd

    curves = ((name, read_curves(run.curves)) for name, run in _named(runs).items() if run.curves)
    rows = [(run, name, *point) for run, found in curves for name, points in found.items() for point in points]
    return pd.DataFrame(rows, columns=["run", "name", "step", "value"])


def _named(runs: Runs) -> dict[str, Run]:
    """Finds the runs by unique names."""
    given = [runs] if isinstance(runs, str | Path) else list(runs)
    paths = [one for one in given if not isinstance(one, Run)]
    found = [*(one for one in given if isinstance(one, Run)), *(find_runs(paths) if paths else [])]
    return {run.name: run for run in name_runs_uniquely(found)}


def _with_problems(frame: "pd.DataFrame", problems: Sequence[str]) -> "pd.DataFrame":
    """Warns of what could not be read; `frame.attrs["problems"]` lists all of it."""
    frame.attrs["problems"] = list(problems)
    if problems:
        more = f", and {len(problems) - 1} more in frame.attrs['problems']" if len(problems) > 1 else ""
        warnings.warn(f"not all could be read: {problems[0]}{more}", stacklevel=3)
    return frame
