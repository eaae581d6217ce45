"""The list of runs: of each what was run on which data, its main metric, when it began, and its state."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from faithkit.embedded_name import EMBEDDED, data_path, display_name
from faithkit.pages.tables import escape_terminal, format_metric, new_text_table
from faithkit.runs.reading import find_runs
from faithkit.runs.run import Run, parts_of
from faithkit.runs.state import State
from faithkit.statistics.metric import Metric

# The metric that stands for a run, the first of them that it has behind the one that its training looked at.
MAIN = (
    *("macro_f1", "char_f1", "response_f1", "f1", "accuracy", "critic_rate", "hallucination_rate", "rate"),
    *("knowledge_f1", "perplexity", "loss"),
)
COLUMNS = ("run", "began", "what", "metric", "state")
_STYLES = {State.FINISHED: "green", State.RESUMABLE: "yellow", State.WORKING: "blue", State.BROKEN: "red"}


def list_runs(patterns: str | Path | Sequence[str | Path] = "runs/*") -> tuple[Table, list[str]]:
    """Makes the table of the runs that patterns find, the newest last, and the lines that stand below it.

    The lines are the commands that go on with what was cut off, and what could not be read.

    Raises:
        UserError: There is no run.
    """
    runs = find_runs(patterns)
    table = new_text_table(f"{len(runs):,} run{'s' if len(runs) > 1 else ''}", COLUMNS, no_wrap=["state"])
    for run in runs:
        began = f"{run.began:%Y-%m-%d %H:%M}" if run.began else "-"
        cells = (str(run.folder), began, described(run), _main(run))
        table.add_row(*(Text(escape_terminal(cell)) for cell in cells), Text(run.state, style=_STYLES[run.state]))
    lines = [f"go on: {resume_command(run)}" for run in runs if run.state == State.RESUMABLE]
    lines += [f"note: {run.folder}: {problem}" for run in runs for problem in run.problems]
    return table, [escape_terminal(line) for line in lines]


def resume_command(run: Run) -> str:
    """Writes the command that goes on with a run."""
    folder = run.folder.parent.parent if "wandb" in run.meta else run.folder
    return shlex.join(["faithkit", run.script or "train", f"resume={folder}"])


def described(run: Run) -> str:
    """Says what was run: the script, the model that it trained or used or the pipeline, and the data."""
    config = run.config
    engine = config.get("engine")
    used = config.get("checkpoint") or (engine.get("model") if isinstance(engine, Mapping) else None)
    model = _name(config, "model") or _name(config, "pipeline") or (Path(str(used)).name if used else "")
    given = "" if model or not config.get("predictions") else "predictions"
    data = data_of(run)
    parts = [run.script, model, given, _objective(config), _name(config, "experiment"), data and f"on {data}"]
    return " ".join(filter(None, parts)) or "-"


def data_of(run: Run) -> str:
    """Names the data of a training, an evaluation or a pipeline; what stands in for it is called so."""
    block = next((run.config[key] for key in ("benchmark", "data", "pipeline") if run.config.get(key)), None)
    if not isinstance(block, Mapping):
        return Path(str(run.config.get("path") or "")).name
    sets = block.get("datasets")
    blocks = {name: one for name, one in sets.items() if isinstance(one, Mapping)} if isinstance(sets, Mapping) else {}
    names = [display_name(str(one.get("dataset") or name), data_path(one)) for name, one in blocks.items()]
    # Of a pipeline the dataset, of a benchmark its own name: several may be of one dataset.
    name = block.get("name") if "benchmark" in run.config else block.get("dataset") or block.get("name")
    return ", ".join(dict.fromkeys(names)) or display_name(str(name or ""), data_path(block))


def main_metric(run: Run) -> tuple[str, Metric] | None:
    """Finds the metric that stands for a run: the one that chose the checkpoint, else the first usual one."""
    callbacks = run.config.get("callbacks")
    monitor = str(callbacks.get("monitor", "")) if isinstance(callbacks, Mapping) else ""
    for short in (monitor.rpartition("/")[2], *MAIN):
        for name, metric in run.metrics.items():
            if short and name.count("/") == 2 and name.endswith(f"/{short}"):
                return name, metric
    return next(iter(run.metrics.items()), None)


def _main(run: Run) -> str:
    found = main_metric(run)
    if found is None:
        return "-"
    name, metric = found
    _, dataset, short = parts_of(name)
    told = short if data_of(run).removeprefix(f"{EMBEDDED}-") == dataset else f"{dataset} {short}"
    return f"{told} {format_metric(metric, digits=3 if abs(metric.value) < 10 else 1)}".lstrip()


def _name(config: Mapping[str, Any], group: str) -> str:
    block = config.get(group)
    return str(block.get("name") or "") if isinstance(block, Mapping) else ""


def _objective(config: Mapping[str, Any]) -> str:
    """Names a generator's objective by the file of its class, such as `infonce`."""
    block = config.get("objective")
    target = block.get("_target_") if isinstance(block, Mapping) else None
    return target.split(".")[-2] if isinstance(target, str) and "." in target else ""
