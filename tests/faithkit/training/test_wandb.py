"""Weights & Biases, really run offline: what its files hold is read back."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import wandb

from faithkit.cli import Interrupted
from faithkit.errors import UserError
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.statistics.metric import Metric
from faithkit.training import wandb_run
from faithkit.training.loggers import open_loggers
from faithkit.training.stages import Finished, stages
from faithkit.training.wandb_run import data_artifact, model_artifact
from tests.faithkit.training.wandb_files import WandbFile, offline_runs, table_of

CONFIG: dict[str, Any] = {
    "model": {"name": "t5", "weights": "flan"},
    "data": {"name": "wow_then_faithdial", "first": {"stage": "wow", "name": "wow"}},
    "scale": {"name": "local"},
    "objective": {"_target_": "generation.objectives.infonce.InfoNce", "num": 4},
    "control": None,
    "seed": 1,
}
PLAIN = {**CONFIG, "data": {"name": "wow"}}
TEXT = "<script>alert(1)</script> | **no** markup"
F1 = Metric(value=0.5, low=0.25, high=0.75, n=9)


def finished(run: RunFolder) -> Finished:
    run.hf.mkdir(parents=True, exist_ok=True)
    (run.hf / "config.json").write_text("{}")
    (run.hf / "model.safetensors").write_bytes(bytes(1000))
    samples = {"wow": [{"id": "1", "response": TEXT, "score": 0.5}]}
    data = {"fingerprints": {"wow/train": "abc"}}
    return Finished(run=run, step=20, metrics={"test/wow/f1": F1}, samples=samples, data=data)


def log_evaluation(folder: Path, checkpoint: Path, **results: Any) -> WandbFile:
    run = RunFolder(folder)
    folder.mkdir()
    config = {"benchmark": {"name": "begin"}, "checkpoint": str(checkpoint), "scale": {"name": "local"}}
    with open_loggers({"wandb": {"offline": True}}, run, config, job="evaluate") as loggers:
        loggers.log_results(Finished(run=run, step=0, **results))
    (found,) = offline_runs(folder)
    return found


def test_the_id_that_a_wandb_sweep_gives_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WANDB_SWEEP_ID": "search", "WANDB_RUN_ID": "of-the-agent"}.items():
        monkeypatch.setenv(name, value)
    wandb.teardown()  # it reads the variables once per process
    found = log_run(tmp_path)
    assert found.names.run_id == json.loads((tmp_path / "wandb.json").read_text())["id"] == "of-the-agent"
    monkeypatch.undo()
    wandb.teardown()


def log_run(folder: Path, step: int = 9, config: Any = PLAIN, **settings: Any) -> WandbFile:
    """One training's logging, from its beginning to its end; gives what W&B has of it."""
    run = RunFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open_loggers({"wandb": {"offline": True, **settings}}, run, config) as loggers:
        loggers.lightning[0].log_metrics({"train/loss": 1.5}, step)
        loggers.log_results(finished(run))
    return offline_runs(folder)[-1]


def test_a_training_is_one_finished_run_with_results_tables_and_model(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "predictions"
    rows = [{"id": str(n), "label": "faithful", "score": n / 10, "response": TEXT, "text": TEXT} for n in range(3)]
    write_jsonl(folder / "wow.jsonl", rows)
    write_jsonl(folder / "answers.jsonl", [{"id": "1", "label": None, "text": TEXT}])
    found = log_run(tmp_path / "run", tags=["mine"], project="elsewhere")
    assert (found.names.project, found.names.display_name, found.names.job_type) == ("elsewhere", "run", "train")
    assert list(found.names.tags) == ["model=t5", "data=wow", "scale=local", "objective=infonce", "mine"]
    assert not found.names.run_group and found.exit_code == 0
    assert found.history[0]["train/loss"] == 1.5 and found.history[0]["trainer/global_step"] == 9
    assert [found.summary[f"test/wow/f1{name}"] for name in ("", "/low", "/high")] == [0.5, 0.25, 0.75]
    table = table_of(found, "test/wow/predictions")
    assert table == {"columns": ["id", "response", "score"], "data": [["1", TEXT, 0.5]]}
    verdicts = table_of(found, "test/wow/verdicts")  # every verdict, without texts
    assert verdicts["columns"] == ["id", "label", "score", "gold"]
    assert verdicts["data"] == [[str(n), "faithful", n / 10, None] for n in range(3)]
    assert "test/answers/verdicts" not in found.summary
    assert found.config["seed"] == 1 and found.config["environment"]["torch"]
    assert found.config["data_summary"]["fingerprints"] == {"wow/train": "abc"}
    (model,) = (artifact for artifact in found.artifacts if artifact.type == "model")
    assert model.name == f"t5-{found.names.run_id}"
    files = {Path(file.local_path) for file in model.manifest.contents}
    assert files == {tmp_path / "run" / "hf" / name for name in ("config.json", "model.safetensors")}
    metadata = json.loads(model.metadata)
    assert metadata["data"]["fingerprints"] == {"wow/train": "abc"}
    assert metadata["metrics"]["test/wow/f1"]["low"] == 0.25


@pytest.mark.slow
def test_ids_are_unique_and_a_resumed_or_moved_run_keeps_its_own(tmp_path: Path) -> None:
    first, second = log_run(tmp_path / "a" / "run"), log_run(tmp_path / "b" / "run")
    assert first.names.run_id != second.names.run_id and first.names.display_name == second.names.display_name
    (tmp_path / "a" / "run").rename(tmp_path / "moved")
    log_run(tmp_path / "moved", step=29)
    parts = offline_runs(tmp_path / "moved")
    assert [part.names.run_id for part in parts] == [first.names.run_id] * 2, "two folders, which sync into one run"
    assert [part.names.display_name for part in parts] == ["run"] * 2
    assert parts[1].history[0]["trainer/global_step"] == 29


@pytest.mark.slow
def test_an_evaluation_joins_the_group_of_its_models_run(tmp_path: Path) -> None:
    trained = tmp_path / "trained"
    (trained / "hf").mkdir(parents=True)
    (trained / "wandb.json").write_text('{"id": "abc", "name": "trained", "group": "sweep-1"}')
    results = {"metrics": {"test/begin/f1": F1}, "samples": {"begin": [{"id": "1"}]}}
    found = log_evaluation(tmp_path / "evaluated", trained / "hf", **results)
    assert (found.names.run_group, found.names.job_type, found.exit_code) == ("sweep-1", "evaluate", 0)
    assert found.names.run_id != "abc" and found.config["checkpoint_run"] == "abc"
    assert list(found.names.tags) == ["benchmark=begin", "scale=local"]
    assert found.summary["test/begin/f1/low"] == 0.25 and table_of(found, "test/begin/predictions")["data"] == [["1"]]
    assert {artifact.type for artifact in found.artifacts} == {"run_table"}, "an evaluation has no model"


def lineage(run: WandbFile, *, used: bool) -> list[str]:
    """Names the data and models that a run used or made, with the beginning of their digests."""
    artifacts = [artifact for artifact in run.artifacts if artifact.type in ("dataset", "model")]
    return [f"{one.name}@{one.digest[:8]}" for one in artifacts if one.use_after_commit == used]


def test_lineage_goes_from_data_to_the_model_to_its_evaluation(tmp_path: Path) -> None:
    trained, hf = log_run(tmp_path / "trained"), tmp_path / "trained" / "hf"
    (data,), (model,) = lineage(trained, used=True), lineage(trained, used=False)
    assert data.startswith("data-wow@") and model.startswith(f"t5-{trained.names.run_id}@")
    found = log_evaluation(tmp_path / "evaluated", hf, metrics={}, data={"fingerprints": {"begin": "def"}})
    data, used = lineage(found, used=True)
    assert data.startswith("data-begin@") and used == model, "the very artifact that the training made"
    (hf / "config.json").write_text('{"other": 1}')
    assert model_artifact(str(hf)) is None, "other weights than those that W&B has"


def test_of_data_only_fingerprints_and_references_go_to_wandb(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"response": "a text of the data"}')
    config = {"data": {"name": "own", "path": str(tmp_path / "train.jsonl"), "parts": [{"path": "hub"}]}}
    data = {"fingerprints": {"own/train": "abc"}, "sizes": {"train": 1}, "counts": {"x": 1}}
    artifact = data_artifact(config, data)
    assert artifact is not None and artifact.type == "dataset" and artifact.metadata["sizes"] == {"train": 1}
    files = artifact.manifest.entries
    assert files["train.jsonl"].ref == (tmp_path / "train.jsonl").as_uri() and not files["train.jsonl"].local_path
    assert json.loads(Path(str(files["data.json"].local_path)).read_text())["fingerprints"] == {"own/train": "abc"}
    other = data_artifact(config, {**data, "fingerprints": {"own/train": "def"}})
    assert other is not None and other.digest != artifact.digest, "other records are another version"
    assert data_artifact(config, {}) is None


def test_a_token_in_the_address_of_gits_remote_reaches_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["init", "-q"], ["remote", "add", "origin", "https://s3cr3t-token:x@example.com/a/b.git"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    log_run(tmp_path / "run")
    [written] = (tmp_path / "run").glob("wandb/offline-run-*/*.wandb")
    assert b"example.com" not in written.read_bytes() and b"s3cr3t" not in written.read_bytes()


def test_two_stages_are_two_runs_of_one_group(tmp_path: Path) -> None:
    whole = RunFolder(tmp_path / "run")
    whole.checkpoints.mkdir(parents=True)
    for stage in stages(whole, CONFIG):
        with open_loggers({"wandb": {"offline": True}}, stage.run, stage.config, job=stage.job) as loggers:
            loggers.log_results(finished(stage.run))
    first, second = sorted(offline_runs(tmp_path), key=lambda found: found.names.job_type)
    assert [found.names.job_type for found in (first, second)] == ["stage1-wow", "stage2"]
    assert [found.names.display_name for found in (first, second)] == ["run/stage1-wow", "run/stage2"]
    assert first.names.run_group == second.names.run_group == f"run-{second.names.run_id}"
    assert first.names.run_id != second.names.run_id and first.exit_code == second.exit_code == 0
    made, used = [artifact for artifact in second.artifacts if artifact.type == "model"]
    assert used.use_after_commit and not made.use_after_commit
    assert used.name == f"t5-{first.names.run_id}", "the model that the second stage began with"
    assert json.loads(made.metadata)["weights_run"] == first.names.run_id


@pytest.mark.parametrize(
    ("error", "code"), [(Interrupted("now"), 130), (UserError("a mistake"), 2), (RuntimeError("a bug"), 1)]
)
def test_an_error_or_an_interruption_finishes_the_run_with_the_exit_code(
    error: BaseException, code: int, tmp_path: Path
) -> None:
    opened = open_loggers({"wandb": {"offline": True}}, RunFolder(tmp_path), PLAIN)
    with pytest.raises(type(error)), opened as loggers:
        loggers.lightning[0].log_metrics({"train/loss": 1.5}, 9)
        raise error
    (found,) = offline_runs(tmp_path)
    assert found.exit_code == code and found.history


def test_nothing_of_the_environment_reaches_a_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"WANDB_API_KEY": "5ecret" * 7, "HF_TOKEN": "hf_token5ecret", "MY_PASSWORD": "passw0rd-5ecret"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    run = RunFolder(tmp_path)
    with open_loggers({"csv": {}, "tensorboard": {}, "wandb": {"offline": True}}, run, PLAIN) as loggers:
        loggers.log_results(finished(run))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files) and len(files) > 8
    assert not [path for path in files for value in secrets.values() if value.encode() in path.read_bytes()]


def test_the_artifact_is_left_out_where_it_is_switched_off_or_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def types(found: WandbFile) -> set[str]:
        return {artifact.type for artifact in found.artifacts} - {"dataset"}

    assert types(log_run(tmp_path / "off", artifact=False)) == {"run_table"}
    monkeypatch.setattr(wandb_run, "UPLOAD_LIMIT", 1000)
    monkeypatch.setattr(wandb_run.log, "propagate", True)
    with caplog.at_level("INFO"):
        assert types(log_run(tmp_path / "large")) == {"run_table"}
    assert "logger.wandb.artifact=true uploads it" in caplog.text
    assert types(log_run(tmp_path / "wanted", artifact=True)) == {"run_table", "model"}


def test_another_run_in_the_same_process_stays_as_it_is(tmp_path: Path) -> None:
    with wandb.init(mode="offline", project="notebook", dir=tmp_path / "theirs") as theirs:
        ours = log_run(tmp_path / "ours")
        assert wandb.run is theirs and ours.names.run_id != theirs.id
        theirs.log({"mine": 1})
    (found,) = offline_runs(tmp_path / "theirs")
    assert [set(row) & {"mine", "train/loss"} for row in found.history] == [{"mine"}] and found.exit_code == 0


@pytest.mark.parametrize("content", ["{", "[]", '{"id": 5, "name": "a"}', "\0\0"])
def test_damaged_names_are_refused_with_a_way_out(content: str, tmp_path: Path) -> None:
    (tmp_path / "wandb.json").write_text(content)
    with pytest.raises(UserError, match=r"wandb.json(.|\n)*delete wandb.json"):
        open_loggers({"wandb": {"offline": True}}, RunFolder(tmp_path), PLAIN).__enter__()
