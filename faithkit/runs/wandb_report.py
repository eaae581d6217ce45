"""Writes a report to W&B: tables with intervals, which W&B lacks, above W&B panels of the same runs."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from rich.table import Table

from faithkit.errors import UserError, shorten
from faithkit.pages.table_text import to_markdown
from faithkit.runs.listing import MAIN, main_metric
from faithkit.runs.reading import read_curves
from faithkit.runs.run import Run

MAX_PANELS = 6  # of each kind
STEP = "trainer/global_step"
MAX_TITLE = 128  # the longest that W&B accepts
NAMES = "wandb.json"  # in a run's folder (faithkit/training/loggers/wandb_run.py)


def write_wandb_report(project: str, runs: Sequence[Run], tables: Iterable[Table], *, title: str) -> str:
    """Writes the report to an account at W&B and returns its URL.

    Args:
        project: PROJECT or ENTITY/PROJECT.

    Raises:
        UserError: None of the runs was logged to W&B, or W&B refuses the report.
    """
    report = build_wandb_report(project, runs, tables, title=title)
    try:
        return str(report.save().url)
    except Exception as error:  # wandb-workspaces raises plain exceptions: no account, no such project, no network
        problem = f"W&B refuses the report: {shorten(str(error), 200)[1:-1]}"
        hint = "wandb login; set wandb=PROJECT or wandb=ENTITY/PROJECT"
        raise UserError(problem, place=f"wandb={project}", hint=hint) from error


def build_wandb_report(project: str, runs: Sequence[Run], tables: Iterable[Table], *, title: str) -> Any:
    """Builds the report without sending it; the arguments are those of `write_wandb_report`."""
    logged = {id_: run for run in runs if (id_ := id_at_wandb(run))}
    if not logged:
        hint = "train and evaluate with logger=[csv,wandb]; offline runs: wandb sync RUN/wandb/offline-run-*"
        raise UserError("none of these runs was logged to W&B", hint=hint)
    import wandb_workspaces.expr as expr
    import wandb_workspaces.reports.v2 as reports

    entity, _, name = project.rpartition("/")
    place: dict[str, Any] = {"project": name, **({"entity": entity} if entity else {})}
    bars = [
        reports.BarPlot(title=metric, metrics=[reports.SummaryMetric(metric)]) for metric in _metrics(logged.values())
    ]
    lines = [reports.LinePlot(title=curve, x=STEP, y=[curve]) for curve in _curves(logged.values())]
    grid = reports.PanelGrid(
        runsets=[reports.Runset(**place, name=title, filters=[expr.Metric("ID").isin(list(logged))])],
        panels=[*bars, *lines, reports.RunComparer(diff_only="split")],
    )
    left = len(runs) - len(logged)
    note = [reports.P(f"Runs that were not logged to W&B are only in the tables: {left:,}.")] if left else []
    texts = [reports.MarkdownBlock(text=to_markdown(table)) for table in tables]
    return reports.Report(**place, title=title[:MAX_TITLE], width="fluid", blocks=[*texts, *note, grid])


def id_at_wandb(run: Run) -> str | None:
    """Finds a run's id at W&B; None if it was not logged there."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return str(json.loads((run.folder / NAMES).read_bytes())["id"])
    return None


def _metrics(runs: Iterable[Run]) -> list[str]:
    found = (metric[0] for run in runs if (metric := main_metric(run)))
    return list(dict.fromkeys(found))[:MAX_PANELS]


def _curves(runs: Iterable[Run]) -> list[str]:
    names = {name for run in runs if run.curves for name in read_curves(run.curves)}
    return sorted(name for name in names if name.rpartition("/")[2] in MAIN)[:MAX_PANELS]
