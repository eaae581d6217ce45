"""Sweeps that cannot be: each is refused before the first job, in words that say what to type."""

import sys
from dataclasses import replace

import pytest

from faithkit.errors import UserError
from faithkit.runs.sweeps import SweepRecord, write_sweep
from faithkit_workflows.settings import preflight
from tests.faithkit_workflows.sweep.sweeping import Trainings, line_of, sweep_here

OPTUNA = "sweep=optuna"
LR = "optimizer.lr=tag(log,interval(1e-5,1e-3))"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("optimizer.lrr=1,2",), "did you mean optimizer.lr"),
        (("optimizer.lr=1e-3,fast",), "optimizer.lr is 'fast'"),
        ((LR,), "a grid has no interval: optimizer.lr(.|\n)*sweep=optuna"),
        ((OPTUNA,), "nothing to choose"),
        ((OPTUNA, "optimizer.lr=interval(1e-3,-1)"), "optimizer.lr is -1"),
        ((OPTUNA, "model=critic,tagger"), "needs one metric(.|\n)*a grid compares"),
        (("sweep=grid,optuna",), "sweep cannot be swept over"),
        (("run_dir=a,b",), "run_dir cannot be swept over"),
        (("seed=1,2", "run_dir=run${seed}"), "one folder for the whole sweep"),
        (("seed=1,2", "sweep.num_parallel=0"), "num_parallel is 0"),
        (("seed=1,2", "sweep.launcher=slurm"), "use one of joblib, submitit_slurm"),
        (("seed=1,2", "sweep.launcher=submitit_local", "sweep.submitit={minutes: 3}"), "sweep.submitit: .*minutes"),
        (("seed=1,2", "sweep.num_trials=9"), "sweep.num_trials: there is no such key"),
        (("resume=/nowhere",), "no sweep(.|\n)*/nowhere"),
    ],
)
def test_a_wrong_sweep_is_explained(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainings = None if "submitit_local" in str(arguments) else Trainings(lambda settings: 0.5)
    with pytest.raises(UserError, match=words):
        sweep_here(trainings, *arguments)
    assert trainings is None or not trainings.started


@pytest.mark.parametrize(("package", "argument"), [("optuna", OPTUNA), ("submitit", "sweep.launcher=submitit_slurm")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(package, argument, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"needs the package {package}(.|\n)*pip install '.\[sweep\]'"):
        sweep_here(None, "model.dropout=0.0,0.1", argument, f"run_dir={tmp_path / 'sweep'}")


def test_a_folder_with_another_sweep_or_other_files_is_left_alone(tmp_path):
    folder = tmp_path / "sweep"
    sweep_here(Trainings(lambda settings: 0.5), "seed=0,1", f"run_dir={folder}")
    with pytest.raises(UserError, match=r"another sweep; these differ: model.num_epochs=3(.|\n)*-m resume="):
        sweep_here(Trainings(lambda settings: 0.5), "seed=0,1", "model.num_epochs=3", f"run_dir={folder}")
    with pytest.raises(UserError, match=r"a sweep keeps its settings: seed=0,2"):
        sweep_here(Trainings(lambda settings: 0.5), "seed=0,2", f"resume={folder}")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        sweep_here(Trainings(lambda settings: 0.5), "seed=0,1", f"run_dir={tmp_path / 'full'}")


@pytest.mark.parametrize("text", ["extensions=[evil.Data]", "data.parts=[{_target_: evil.Data}]"])
def test_a_sweeps_file_cannot_name_code_of_others(text, tmp_path):
    write_sweep(SweepRecord(folder=tmp_path, arguments=("seed=0,1", text), varied=("seed",)))
    trainings = Trainings(lambda settings: 0.5)
    with pytest.raises(UserError, match="names code that is not this project's"):
        sweep_here(trainings, f"resume={tmp_path}")
    assert not trainings.started


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"arguments": [1], "varied": [], "jobs": {}}', '{"jobs": {"../x": {}}}']
)
def test_a_damaged_record_is_reported(text, tmp_path):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(UserError, match=r"sweep\.json(.|\n)*its runs are complete"):
        sweep_here(Trainings(lambda settings: 0.5), f"resume={tmp_path}")


def test_a_single_run_is_not_resumed_as_a_sweep_nor_a_sweep_as_a_run(tmp_path):
    folder = tmp_path / "sweep"
    sweep_here(Trainings(lambda settings: 0.5), "seed=0,1", f"run_dir={folder}")
    with pytest.raises(UserError, match=rf"leave out -m: faithkit train resume={folder}/seed-0"):
        sweep_here(None, f"resume={folder / 'seed-0'}")
    alone = replace(line_of(), arguments=[f"resume={folder}"])
    with pytest.raises(UserError, match=rf"faithkit train -m resume={folder}"):
        list(alone.check(alone.compose()))


def test_a_sweep_under_torchrun_is_refused_since_each_process_would_begin_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    trainings = Trainings(lambda settings: 0.5)
    with pytest.raises(UserError, match=r"torchrun(.|\n)*faithkit train -m"):
        sweep_here(trainings, "seed=0,1", f"run_dir={tmp_path / 'sweep'}")
    assert not trainings.started and not (tmp_path / "sweep").exists()
