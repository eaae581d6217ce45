"""A run in a store of MLflow."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.runs.reading import read_run
from tests.faithkit_workflows.adapters.cases import run_example

pytest.importorskip("mlflow", reason="needs make adapters TOOL=mlflow")
from mlflow import MlflowClient

from faithkit_workflows.adapters.mlflow import log_run


def test_a_run_is_logged_with_metrics_settings_and_pages(trained, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # artifacts of a database are in ./mlruns
    store = f"sqlite:///{tmp_path}/mlflow.db"
    first, second = (log_run(trained, experiment="critics", tracking_uri=store) for _ in range(2))
    client = MlflowClient(store)
    logged, run = client.get_run(first), read_run(trained)
    assert logged.info.status == "FINISHED" and logged.data.params["model.max_length"] == "64"
    assert len(run.metrics) > 10
    for name, metric in run.metrics.items():
        assert logged.data.metrics[name] == pytest.approx(metric.value)
        assert metric.low is None or logged.data.metrics[f"{name}/low"] == pytest.approx(metric.low)
    assert len(client.list_artifacts(run_example("mlflow", folder=trained)["run_id"])) > 3
    files = {one.path for one in client.list_artifacts(first)}
    assert files >= {"metrics.json", "report.md", "answers.html", "config.yaml"}
    assert client.get_run(second).info.experiment_id == logged.info.experiment_id


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run"):
        log_run(tmp_path / "none", tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
