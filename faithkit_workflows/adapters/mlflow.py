"""Logs a finished run of faithkit to MLflow: metrics with intervals, settings, metrics.json and the pages.

log_run("runs/...", tracking_uri="sqlite:///mlflow.db")
"""

import re
import time
from pathlib import Path

from faithkit.errors import UserError
from faithkit.runs.reading import State, flatten, read_run
from faithkit_workflows.adapters.scorer import needs_tool

with needs_tool("MLflow", "mlflow"):
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

FILES = (
    "metrics.json",
    "report.md",
    "answers.html",
    "report.html",
    "audit.html",
    "audit.json",
    "config.yaml",
    "junit.xml",
)
NOT_IN_NAMES = re.compile(r"[^\w./ :-]")
MAX_PARAMETERS = 100  # parameters or metrics in a request: MLflow takes no more parameters
MAX_CHARACTERS = 500  # of a parameter, as older servers have it


def log_run(folder: str | Path, *, experiment: str = "faithkit", tracking_uri: str | None = None) -> str:
    """Logs the folder of a run as a run of MLflow, and returns its id.

    Args:
        folder: A run of any command, such as train, evaluate, score or audit.
        experiment: Is created if there is none of this name.
        tracking_uri: A server or a database; None takes MLflow's own setting.

    Raises:
        UserError: The folder has no finished run.
    """
    run = read_run(folder)
    if run.state is not State.FINISHED:
        reason = run.problems[0] if run.problems else f"it is {run.state}"
        raise UserError(f"there is no finished run to log: {reason}", place=str(folder), hint="name a run: runs/...")
    client = MlflowClient(tracking_uri)
    found = client.get_experiment_by_name(experiment)
    experiment_id = found.experiment_id if found else client.create_experiment(experiment)
    run_id: str = client.create_run(experiment_id, run_name=run.name).info.run_id
    now = int(time.time() * 1000)
    values = {
        f"{NOT_IN_NAMES.sub('_', name)}{ending}": value
        for name, metric in run.metrics.items()
        for ending, value in {"": metric.value, "/low": metric.low, "/high": metric.high}.items()
        if value is not None
    }
    metrics = [Metric(name, value, now, 0) for name, value in values.items()]
    settings = [Param(NOT_IN_NAMES.sub("_", key), str(value)[:MAX_CHARACTERS]) for key, value in flatten(run.config)]
    for begin in range(0, max(len(metrics), len(settings)), MAX_PARAMETERS):
        part = slice(begin, begin + MAX_PARAMETERS)
        client.log_batch(run_id, metrics=metrics[part], params=settings[part])
    for path in [*(run.folder / name for name in FILES), *(run.folder / "predictions").glob("*.origin.json")]:
        if path.is_file():
            client.log_artifact(run_id, str(path))
    client.set_terminated(run_id, "FINISHED")
    return run_id
