"""Reads runs into pandas data frames.

from faithkit.packages import needs_package
from faithkit import runs
metrics = runs.to_pandas("runs/*")  # one row per run and metric
metrics.pivot_table(index="run", columns="metric", values="value")
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.errors import shorten
from faithkit.files.jsonl import parse_lines
from faithkit.packages import needs_package
from faithkit.runs.reading import find_runs, name_runs_uniquely, read_curves
from faithkit.runs.run import Run, differing_settings, parts_of

if TYPE_CHECKING:
    import pandas as pd

EVERY = "runs/*"
Runs = str | Path | Iterable[str | Path | Run]
_METRICS = ("run", "script", "state", "began", "split", "dataset", "metric", "value", "low", "high", "n", "folder")
_PREDICTIONS = ("run", "file", "id", "label", "score", "spans", "text")
_CURVES = ("run", "name", "step", "value")


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
            if file in (None, stem):
                rows += ({**row, "run": name, "file": stem} for row in _rows(path, problems))
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
    return pd.DataFrame(rows, columns=list(_CURVES))


def _named(runs: Runs) -> dict[str, Run]:
    """Finds the runs by unique names."""
    given = [runs] if isinstance(runs, str | Path) else list(runs)
    paths = [one for one in given if not isinstance(one, Run)]
    found = [*(one for one in given if isinstance(one, Run)), *(find_runs(paths) if paths else [])]
    return {run.name: run for run in name_runs_uniquely(found)}


def _rows(path: Path, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the valid lines of a predictions file."""
    wrong = 0
    try:
        for _, _, value in parse_lines(path):
            if not isinstance(value, dict) or "id" not in value:
                wrong += 1
                continue
            facts = value.pop("facts", None)
            score = value.get("score")
            value["score"] = score if isinstance(score, int | float) and not isinstance(score, bool) else None
            yield value | {f"facts.{key}": fact for key, fact in (facts if isinstance(facts, dict) else {}).items()}
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{path}: it cannot be read completely: {shorten(str(error))[1:-1]}")
    if wrong:
        problems.append(f"{path}: lines that are not predictions are left out: {wrong:,}")


def _with_problems(frame: "pd.DataFrame", problems: Sequence[str]) -> "pd.DataFrame":
    """Warns of what could not be read; `frame.attrs["problems"]` lists all of it."""
    frame.attrs["problems"] = list(problems)
    if problems:
        more = f", and {len(problems) - 1} more in frame.attrs['problems']" if len(problems) > 1 else ""
        warnings.warn(f"not all could be read: {problems[0]}{more}", stacklevel=3)
    return frame
