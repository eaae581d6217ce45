"""Grids: a folder for each job, failures, resuming, and sweeps that are refused before the first job."""

import json
from dataclasses import replace

import pytest

from faithkit.errors import UserError
from faithkit.runs.listing import SweepRecord, write_sweep
from faithkit.signals import Interrupted
from faithkit_workflows.sweep.run_sweep import make_job
from tests.faithkit_workflows.sweep.sweeping import Failure, Trainings, line_of, sweep_here


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("optimizer.lrr=1,2",), "did you mean optimizer.lr"),
        (("optimizer.lr=1e-3,fast",), "optimizer.lr is 'fast'"),
        (("optimizer.lr=interval(1e-5,1e-3)",), r"optimizer\.lr=interval(.|\n)*list the values"),
        (("seed=1,2", "sweep=optuna"), "sweep is 'optuna'(.|\n)*a sweep is a grid(.|\n)*sweeps.md has a search"),
        (("sweep.num_parallel=1,2",), "sweep.num_parallel cannot be swept over"),
        (("run_dir=a,b",), "run_dir cannot be swept over"),
        (("seed=1,2", "run_dir=run${seed}"), "one folder for the whole sweep"),
        (("seed=1,2", "sweep.num_parallel=0"), "num_parallel is 0"),
        (("seed=1,2", "sweep.launcher=submitit_slurm"), "sweep.launcher: there is no such key"),
        (("resume=/nowhere",), "no sweep(.|\n)*/nowhere"),
    ],
)
def test_a_wrong_sweep_is_explained(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainings = Trainings(lambda settings: 0.5)
    with pytest.raises(UserError, match=words):
        sweep_here(trainings, *arguments)
    assert not trainings.started


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


SCORES = {"1e-3": 0.6, "0.001": 0.6, "2e-3": 0.7, "0.002": 0.7}
FOUR = ("optimizer.lr=1e-3,2e-3", "seed=0,1")
NAMES = ["lr-0.001_seed-0", "lr-0.001_seed-1", "lr-0.002_seed-0", "lr-0.002_seed-1"]


def by_lr(settings) -> float:
    return SCORES[settings["optimizer.lr"]] + 0.01 * int(settings["seed"])


def test_every_combination_is_a_run_in_a_folder_named_by_its_settings(tmp_path, capsys):
    trainings = Trainings(by_lr)
    sweep_here(trainings, *FOUR, f"run_dir={tmp_path / 'sweep'}", "model.num_epochs=1")
    assert trainings.names == NAMES
    assert all("model.num_epochs=1" in job.arguments for job in trainings.started)
    assert all((tmp_path / "sweep" / name / "metrics.json").exists() for name in NAMES)
    shown = capsys.readouterr().out
    rows = [line.split("|")[0].strip() for line in shown.splitlines() if "optimizer.lr=" in line.split("|")[0]]
    assert rows[:2] == ["optimizer.lr=0.002", "optimizer.lr=0.001"], "the best first"
    assert "faithkit train model.num_epochs=1 optimizer.lr=0.002 seed=1" in shown
    assert "therefore too good" in shown


@pytest.mark.slow
@pytest.mark.parametrize("as_typed", [False, True])
def test_only_a_failed_job_is_trained_again(tmp_path, as_typed, capsys):
    def failing(settings) -> float:
        if settings["optimizer.lr"] == "0.002" and settings["seed"] == "0":
            raise Failure(2, "error: the disk is full")
        return by_lr(settings)

    folder = tmp_path / "sweep"
    first = Trainings(failing)
    with pytest.raises(UserError, match=r"of 4 jobs 1 failed; lr-0.002_seed-0: the disk is full") as error:
        sweep_here(first, *FOUR, f"run_dir={folder}")
    assert first.names == NAMES and f"-m resume={folder}" in str(error.value)
    assert "optimizer.lr=0.001" in capsys.readouterr().out, "the others are ranked"
    second = Trainings(by_lr)
    sweep_here(second, *((*FOUR, f"run_dir={folder}") if as_typed else (f"resume={folder}", "sweep.num_parallel=2")))
    assert second.names == ["lr-0.002_seed-0"]
    assert second.started[0].command()[-1] == f"resume={folder / 'lr-0.002_seed-0'}"
    third = Trainings(by_lr)
    sweep_here(third, f"resume={folder}")
    assert third.names == [], "all are done: they are ranked, and nothing is trained"


def test_an_interrupted_sweep_resumes_its_unfinished_run(tmp_path, capsys):
    folder = tmp_path / "sweep"

    def stopped(settings) -> float:
        if settings["seed"] == "1":
            raise Interrupted("a signal")
        return by_lr(settings)

    first = Trainings(stopped)
    with pytest.raises(Interrupted, match=f"faithkit train -m resume={folder}"):
        sweep_here(first, *FOUR, f"run_dir={folder}")
    assert first.names == NAMES[:2] and first.num_stops == 1
    (folder / NAMES[1] / "config.yaml").write_text("seed: 1\n")
    second = Trainings(by_lr)
    sweep_here(second, f"resume={folder}")
    assert second.names == NAMES[1:]
    record = json.loads((folder / "sweep.json").read_text())
    assert [job["ended"] for job in record["jobs"].values()] == ["done"] * 4


def test_further_values_and_deleted_runs_are_trained(tmp_path):
    folder = tmp_path / "sweep"
    sweep_here(Trainings(by_lr), *FOUR, f"run_dir={folder}")
    (folder / NAMES[2] / "metrics.json").unlink()
    more = Trainings(by_lr)
    sweep_here(more, FOUR[0], "seed=0,1,2", f"run_dir={folder}", "sweep.num_parallel=2")
    assert sorted(more.names) == ["lr-0.001_seed-2", NAMES[2], "lr-0.002_seed-2"]


def test_names_are_short_different_and_safe_on_a_command_line():
    jobs: dict = {}
    alike = [{"optimizer.lr": f"0.0001234567890{end}", "model.weights": "some/model name"} for end in (1, 2)]
    odd = [("[1,2]", "$(rm)", "'../..'"), ("é" * 300, "1", "1")]
    for settings in (*alike, *(dict(zip(("a.x", "b.x", "+new.key"), values, strict=True)) for values in odd)):
        job = make_job(settings, jobs)
        jobs[job.name] = job
    names = list(jobs)
    assert names[:2] == ["lr-0.0001235_weights-some-model-name", "lr-0.0001235_weights-some-model-name-2"]
    assert names[2] == "a.x-1-2_b.x-rm_key-..-.." and len(names[3]) < 130
    assert make_job(dict(jobs[names[1]].settings), jobs) is jobs[names[1]]
