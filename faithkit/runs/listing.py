"""Lists of runs: a table with models, data, main metrics and states, and the record of a sweep in its sweep.json.

{"arguments": ["optimizer.lr=1e-3,2e-3"], "varied": ["optimizer.lr"],
 "jobs": {"lr-1e-3": {"settings": {"optimizer.lr": "1e-3"}, "ended": "done", "seconds": 61.2}}}
"""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.jsonl import read_strict_json
from faithkit.pages.page_tables import escape_terminal, format_metric, new_text_table
from faithkit.runs.reading import Run, State, find_runs, parts_of, read_curves
from faithkit.settings.config_files import EMBEDDED, SWEEP_FILE, data_path, display_name
from faithkit.statistics.metric import Metric

# A run's main metric is the one that its training monitored, or else the first of these.
MAIN = (
    *("macro_f1", "char_f1", "response_f1", "f1", "accuracy", "critic_rate", "hallucination_rate", "rate"),
    *("knowledge_f1", "perplexity", "loss"),
)
DONE, FAILED, INTERRUPTED = "done", "failed", "interrupted"


def list_runs(patterns: str | Path | Sequence[str | Path] = "runs/*") -> tuple[Table, list[str]]:
    """Builds the table of the runs that patterns match, the newest last, and the lines below the table.

    The lines are the commands that resume interrupted runs, and notes on what could not be read.

    Raises:
        UserError: There is no run.
    """
    runs = find_runs(patterns)
    heads = ("run", "began", "what", "metric", "state")
    table = new_text_table(f"{len(runs):,} run{'s' if len(runs) > 1 else ''}", heads, no_wrap=["state"])
    styles = {State.FINISHED: "green", State.RESUMABLE: "yellow", State.WORKING: "blue", State.BROKEN: "red"}
    for run in runs:
        began, figure = f"{run.began:%Y-%m-%d %H:%M}" if run.began else "-", "-"
        if (found := main_metric(run)) is not None:
            name, metric = found
            _, dataset, short = parts_of(name)
            label = short if data_of(run).removeprefix(f"{EMBEDDED}-") == dataset else f"{dataset} {short}"
            figure = f"{label} {format_metric(metric, digits=3 if abs(metric.value) < 10 else 1)}".lstrip()
        cells = (str(run.folder), began, described(run), figure)
        table.add_row(*(Text(escape_terminal(cell)) for cell in cells), Text(run.state, style=styles[run.state]))
    stopped = [run for run in runs if run.state == State.RESUMABLE]
    lines = [f"resume: {shlex.join(['faithkit', run.script or 'train', f'resume={run.folder}'])}" for run in stopped]
    lines += [f"note: {run.folder}: {problem}" for run in runs for problem in run.problems]
    return table, [escape_terminal(line) for line in lines]


def described(run: Run) -> str:
    """Describes a run: the script, the model or pipeline, and the data."""
    config = run.config
    engine = config.get("engine")
    used = config.get("checkpoint") or (engine.get("model") if isinstance(engine, Mapping) else None)
    model = _name(config, "model") or _name(config, "pipeline") or (Path(str(used)).name if used else "")
    given = "" if model or not config.get("predictions") else "predictions"
    block, data = config.get("objective"), data_of(run)
    target = block.get("_target_") if isinstance(block, Mapping) else None
    # A generator's objective has the name of its class's file, such as `infonce`.
    objective = target.split(".")[-2] if isinstance(target, str) and "." in target else ""
    parts = [run.script, model, given, objective, _name(config, "experiment"), data and f"on {data}"]
    return " ".join(filter(None, parts)) or "-"


def data_of(run: Run) -> str:
    """Returns the name of the data of a training, an evaluation or a pipeline; embedded data is named as such."""
    block = next((run.config[key] for key in ("benchmark", "data", "pipeline") if run.config.get(key)), None)
    if not isinstance(block, Mapping):
        return Path(str(run.config.get("path") or "")).name
    sets = block.get("datasets")
    blocks = {name: one for name, one in sets.items() if isinstance(one, Mapping)} if isinstance(sets, Mapping) else {}
    names = [display_name(str(one.get("dataset") or name), data_path(one)) for name, one in blocks.items()]
    # A pipeline is shown by its dataset and a benchmark by its name, since several benchmarks share a dataset.
    name = block.get("name") if "benchmark" in run.config else block.get("dataset") or block.get("name")
    return ", ".join(dict.fromkeys(names)) or display_name(str(name or ""), data_path(block))


def main_metric(run: Run) -> tuple[str, Metric] | None:
    """Finds the main metric of a run: the one that chose the checkpoint, or else the first of MAIN."""
    callbacks = run.config.get("callbacks")
    monitor = str(callbacks.get("monitor", "")) if isinstance(callbacks, Mapping) else ""
    for short in (monitor.rpartition("/")[2], *MAIN):
        for name, metric in run.metrics.items():
            if short and name.count("/") == 2 and name.endswith(f"/{short}"):
                return name, metric
    return next(iter(run.metrics.items()), None)


def _name(config: Mapping[str, Any], group: str) -> str:
    block = config.get(group)
    return str(block.get("name") or "") if isinstance(block, Mapping) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The monitored metric of a training at its best validation; sweeps rank runs by it.

    Args:
        monitor: Its full name, `validation/begin/macro_f1`.
        metric: With an interval if it is the mean of several seeds.
    """

    monitor: str
    is_lower_better: bool
    metric: Metric


def chosen_of(run: Run) -> Chosen | None:
    """Finds the metric that chose the checkpoint in metrics.json, or else the best value so far in the curves."""
    chosen = run.meta.get("chosen")
    if not isinstance(chosen, Mapping):
        callbacks = run.config.get("callbacks")
        chosen = callbacks if isinstance(callbacks, Mapping) else {}
    monitor, mode = str(chosen.get("monitor") or ""), chosen.get("mode")
    if not monitor:
        return None
    is_lower_better = mode == "min"
    try:
        metric = Metric(**{name: chosen[name] for name in ("value", "low", "high") if chosen.get(name) is not None})
    except (TypeError, ValueError):  # no value, or not a number
        values = []
        with suppress(OSError):
            if run.curves is not None:
                values = [value for _, value in read_curves(run.curves).get(monitor, [])]
        if not values:
            return None
        metric = Metric(value=min(values) if is_lower_better else max(values))
    return Chosen(monitor=monitor, is_lower_better=is_lower_better, metric=metric)


def tested(run: Run, chosen: Chosen) -> tuple[str, Metric] | None:
    """Finds the test metric with the name of the metric that chose the checkpoint, preferably on the same dataset."""
    _, dataset, short = parts_of(chosen.monitor)
    metrics = {name: metric for name, metric in run.metrics.items() if parts_of(name)[::2] == ("test", short)}
    name = f"test/{dataset}/{short}" if f"test/{dataset}/{short}" in metrics else next(iter(metrics), None)
    return None if name is None else (name, metrics[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJob:
    """One training of a sweep.

    Args:
        name: The name of its subfolder.
        settings: The varied settings as on the command line: `optimizer.lr` to `1e-3`.
        ended: done, failed or interrupted; None while it is running.
        problem: Why it failed.
    """

    name: str
    settings: Mapping[str, str]
    ended: str | None = None
    problem: str | None = None
    seconds: float | None = None

    @property
    def overrides(self) -> list[str]:
        """The settings as command-line arguments."""
        return [f"{key}={value}" for key, value in self.settings.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """A sweep, as recorded in its folder.

    Args:
        arguments: The command's, without the folder.
        varied: The keys whose values differ between jobs.
        jobs: By name, in the order in which they began.
    """

    folder: Path
    arguments: tuple[str, ...]
    varied: tuple[str, ...]
    jobs: Mapping[str, SweepJob] = field(default_factory=dict)

    @property
    def shared(self) -> list[str]:
        """The arguments of all jobs."""
        keys = {argument: argument.partition("=")[0].lstrip("+") for argument in self.arguments}
        return [
            argument
            for argument, key in keys.items()
            if key not in self.varied and key != "sweep" and not key.startswith("sweep.")
        ]

    def command(self, job: SweepJob) -> list[str]:
        """Returns the arguments with which train.py repeats a job."""
        return [*self.shared, *job.overrides]


def write_sweep(record: SweepRecord) -> None:
    """Writes sweep.json in one step."""
    jobs = {
        job.name: {
            "settings": dict(job.settings),
            **{name: value for name in ("ended", "problem", "seconds") if (value := getattr(job, name)) is not None},
        }
        for job in record.jobs.values()
    }
    found = {"arguments": list(record.arguments), "varied": list(record.varied), "jobs": jobs}
    write_json(record.folder / SWEEP_FILE, found)


def read_sweep(folder: Path) -> SweepRecord:
    """Reads sweep.json.

    Raises:
        UserError: It is damaged.
    """
    path = folder / SWEEP_FILE
    hint = "its runs are complete: compare them by their folders, and start the sweep again in another folder"
    found = read_strict_json(path, hint=hint)
    try:
        jobs = {}
        for name, value in found["jobs"].items():
            if not name or "/" in name or name in (".", ".."):
                raise TypeError(f"{name!r} is not a folder name")
            seconds, texts = value.get("seconds"), {key: value.get(key) for key in ("ended", "problem")}
            jobs[name] = SweepJob(
                name=name,
                settings={_text(key): _text(one) for key, one in value["settings"].items()},
                seconds=None if seconds is None else float(seconds),
                **{key: None if text is None else _text(text) for key, text in texts.items()},
            )
        words = [tuple(map(_text, found[name])) for name in ("arguments", "varied")]
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"not the record of a sweep: {error}", place=str(path), hint=hint) from error
    return SweepRecord(folder=folder, arguments=words[0], varied=words[1], jobs=jobs)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
