"""All loggers of real trainings: a sweep in one process, and TensorBoard's events read back."""

import csv
import os
import sys
from pathlib import Path

import pytest

from faithkit.environment import environment
from faithkit.errors import UserError
from faithkit.files.run_folder import RUN_DIR_VARIABLE, RunFolder
from faithkit.statistics.metric import Metric
from faithkit.training.loggers.build import check_loggers
from faithkit.training.loggers.results import Finished
from faithkit.training.loggers.tensorboard_events import TensorBoardEvents
from faithkit_workflows import train
from tests.faithkit.training.loggers.wandb_files import offline_runs, table_of
from tests.running import SMALL

TINY = (
    "data.num_train=48",
    "data.num_validation=24",
    "data.num_test=24",
    "model.num_epochs=1",
    "callbacks.log_every_num_steps=1",
)


def test_hydras_own_sweep_in_one_process_logs_each_job_on_its_own(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: value for name, value in os.environ.items() if name != "HYDRA_FULL_ERROR"}
    loggers = ["logger=[csv,wandb]", "logger.wandb.offline=true", "callbacks.num_examples=2"]
    sweep = ["-m", "hydra/launcher=basic", "seed=1,2", f"run_dir={tmp_path}/run${{seed}}", f"model.weights={tiny_bert}"]
    monkeypatch.setattr(sys, "argv", ["train.py", *sweep, *SMALL, *TINY, *loggers])
    monkeypatch.chdir(tmp_path)
    train.run()
    after = {name: value for name, value in os.environ.items() if name != "HYDRA_FULL_ERROR"}
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} <= {"OMP_WAIT_POLICY"}
    assert RUN_DIR_VARIABLE not in {*after} - {*before}, "the next job must not find the folder of the one before"
    first, second = (offline_runs(tmp_path / name) for name in ("run1", "run2"))
    assert len(first) == len(second) == 1
    one, two = first[0], second[0]
    assert (one.names.display_name, two.names.display_name) == ("run1", "run2")
    assert one.names.run_id != two.names.run_id and one.config["seed"] == 1 and two.config["seed"] == 2
    assert one.names.run_group == two.names.run_group and one.names.run_group.startswith("sweep-")
    assert one.exit_code == two.exit_code == 0
    for found in (one, two):
        assert {"test/embedded/macro_f1", "test/embedded/macro_f1/low"} <= found.summary.keys()
        assert len(table_of(found, "test/embedded/predictions")["data"]) == 2
        assert "model" in {artifact.type for artifact in found.artifacts}
        assert any("validation/embedded/macro_f1" in row for row in found.history)
    text = (tmp_path / "run1" / "csv" / "metrics.csv").read_text()
    assert "validation/embedded/macro_f1" in text.splitlines()[0]
    assert "git_commit" in (tmp_path / "run1" / "csv" / "hparams.yaml").read_text()
    with (tmp_path / "run2" / "csv" / "test_metrics.csv").open() as file:
        figures = {row["metric"]: row for row in csv.DictReader(file)}
    figure = figures["test/embedded/macro_f1"]
    assert float(figure["low"]) <= float(figure["value"]) <= float(figure["high"]) and figure["n"] == "24"


def test_tensorboard_holds_metrics_with_intervals_and_plain_texts(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "tensorboard"
    metrics = {"test/a/f1": Metric(value=0.5, low=0.25, high=0.75, n=60)}
    samples = {"a": [{"id": "1", "response": "<b>x</b> | *y*\nz", "score": None}]}
    for first_step in (0, 15):  # the second goes on at a checkpoint
        place = TensorBoardEvents(folder, first_step)
        for step in (9, 19):
            if step >= first_step:
                place.lightning.log_metrics({"train/loss": step + first_step}, step)
        place.log_results(Finished(run=RunFolder(tmp_path), step=20, metrics=metrics, samples=samples))
        place.close(0)
    events = accumulator.EventAccumulator(str(folder)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(9, 9.0), (19, 34.0)]
    found = {name: events.Scalars(f"test/a/f1{name}")[0].value for name in ("", "/low", "/high")}
    assert found == {"": 0.5, "/low": 0.25, "/high": 0.75}
    assert events.Tensors("test/a/predictions/text_summary")[-1].tensor_proto.string_val[0].decode() == (
        "| id | response | score |\n| --- | --- | --- |\n| 1 | &lt;b&gt;x&lt;/b&gt; &#124; &#42;y&#42; z |  |"
    )


def test_an_unknown_logger_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="csv, tensorboard, wandb"):
        check_loggers({"csvv": {}})


def test_a_missing_tensorboard_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UserError, match=r"pip install '\.\[tensorboard\]'"):
        check_loggers({"tensorboard": {}})


def test_the_environment_holds_no_secret_and_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "s3cret-value")
    text = str(environment())
    assert "s3cret-value" not in text and str(Path.home()) not in text
    assert environment()["python"]
