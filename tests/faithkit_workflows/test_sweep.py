"""Sweeps: a folder for each job, failures, resuming, refusals before the first job; and several seeds in one run."""

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from faithkit.errors import UserError
from faithkit.runs.listing import SweepRecord, chosen_of, write_sweep
from faithkit.runs.reading import read_curves, read_run
from faithkit.signals import Interrupted
from faithkit_workflows.sweep import Processes, TrainJob, open_jobs
from tests.faithkit_workflows.sweeping import Failure, Trainings, line_of, sweep_here
from tests.running import QUICK, ROOT, SMALL, command, commanded, run, train_here


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("TORCHELASTIC_RUN_ID=none", "seed=0,1"), r"torchrun(.|\n)*faithkit train -m"),
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
    if arguments[0].startswith("TORCHELASTIC_RUN_ID"):  # each process of torchrun would begin the sweep
        monkeypatch.setenv(*arguments[0].split("="))
        arguments = arguments[1:]
    trainings = Trainings(lambda settings: 0.5)
    with pytest.raises(UserError, match=words):
        sweep_here(trainings, *arguments)
    assert not trainings.started and not list(tmp_path.iterdir())


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


def test_names_are_short_different_and_safe_on_a_command_line(tmp_path):
    alike = {"optimizer.lr": ["0.00012345678901", "0.00012345678902"], "model.weights": ["some/model name"]}
    odd = {"a.x": ["[1,2]", "é" * 300], "b.x": ["$(rm)"], "+new.key": ["'../..'"]}
    names = []
    for folder, values in (("alike", alike), ("odd", odd)):
        (tmp_path / folder).mkdir()
        new = SweepRecord(folder=tmp_path / folder, arguments=(), varied=tuple(key.lstrip("+") for key in values))
        names += [job.name for job in open_jobs(new, values)[1]]
    assert names[:2] == ["lr-0.0001235_weights-some-model-name", "lr-0.0001235_weights-some-model-name-2"]
    assert names[2] == "a.x-1-2_b.x-rm_key-..-.." and len(names[3]) < 130


TINY = ("data.num_train=48", "data.num_validation=24", "data.num_test=24", "model.max_length=64", "model.num_epochs=1")


def options_of(tiny_bert: Path, folder: Path) -> list[str]:
    return [f"model.weights={tiny_bert}", *TINY, *QUICK[1:], "optimizer.lr=1e-3,2e-3", f"run_dir={folder}"]


def test_cores_and_gpus_are_divided_among_parallel_jobs(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)

    def slots(num_parallel, gpus):
        queue = Processes(num_parallel, gpus).slots
        return [queue.get() for _ in range(num_parallel)]

    assert slots(1, ["0", "1"]) == [{}], "one job alone has all"
    shared = slots(3, ["4", "6"])
    assert [one["CUDA_VISIBLE_DEVICES"] for one in shared] == ["4", "6", "4"]
    assert {one["OMP_NUM_THREADS"] for one in shared} == {"2"}
    assert slots(2, ["0"]) == [{"OMP_NUM_THREADS": "4"}] * 2, "of one GPU nothing is shared out"


def test_a_stopped_job_gets_one_signal_and_its_output_is_kept(tmp_path, monkeypatch):
    script = "echo begun in $FAITHKIT_SWEEP; trap 'echo stopped; exit 130' TERM; while true; do sleep 0.05; done"
    monkeypatch.setattr(TrainJob, "command", lambda self: ["sh", "-c", script])
    processes, log = Processes(1, []), tmp_path / "a.log"
    job = TrainJob(folder=tmp_path / "a", arguments=())
    with ThreadPoolExecutor() as pool:
        code = pool.submit(processes.run, job, log)
        while not log.exists() or "begun" not in log.read_text():
            time.sleep(0.05)
        processes.stop()
    assert code.result() == 130 and (tmp_path / "a.log").read_text() == f"begun in {tmp_path.name}\nstopped\n"


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (2, "x\nerror: the disk is full\n  hint: free some", "the disk is full"),
        (1, "Traceback\nRuntimeError: shapes", "RuntimeError: shapes"),
        (-9, "", "killed by signal 9: perhaps out of memory"),
        (3, "", "exit code 3"),
    ],
)
def test_the_reason_of_a_failure_is_found_in_the_output(code, output, reason, tmp_path):
    def failing(settings) -> float:
        raise Failure(code, output)

    with pytest.raises(UserError, match=f"of 2 jobs 2 failed; seed-0: {reason}"):
        sweep_here(Trainings(failing), "seed=0,1", f"run_dir={tmp_path / 'sweep'}")


@pytest.mark.slow
def test_real_trainings_are_ranked_by_their_best_validation(tiny_bert, tmp_path):
    folder = tmp_path / "sweep"
    done = run("train.py", "-m", *options_of(tiny_bert, folder), "sweep.num_parallel=2", timeout=900)
    assert done.returncode == 0, done.stderr
    runs = [read_run(folder / name) for name in ("lr-0.001", "lr-0.002")]
    for one in runs:
        assert one.curves is not None and "sweep" not in one.config
        chosen = chosen_of(one)
        best = max(value for _, value in read_curves(one.curves)["validation/embedded/macro_f1"])
        assert chosen is not None and chosen.metric.value == pytest.approx(best, abs=1e-6)
    assert "the highest validation/embedded/macro_f1 first" in " ".join(done.stdout.split())
    assert (folder / "logs" / "lr-0.001.log").stat().st_size > 100


@pytest.mark.slow
def test_a_signal_ends_the_job_in_good_order_and_the_sweep_goes_on_in_its_folder(tiny_bert, tmp_path):
    folder = tmp_path / "sweep"
    long = [option for option in options_of(tiny_bert, folder) if "num_epochs" not in option]
    line = command("train.py", "-m", *long, "model.num_epochs=400")
    started = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    log = folder / "lr-0.001" / "csv" / "metrics.csv"
    until = time.monotonic() + 200
    while not log.exists() and time.monotonic() < until:
        time.sleep(0.5)
    started.send_signal(signal.SIGTERM)
    _, output = started.communicate(timeout=100)
    assert started.returncode == 130 and f"faithkit train -m resume={folder}" in output
    assert (folder / "lr-0.001" / "checkpoints" / "last.ckpt").exists()
    assert read_run(folder / "lr-0.001").state == "resumable", "the job has ended too"
    assert not (folder / "lr-0.002").exists()


@pytest.mark.slow
def test_every_seed_is_trained_once_and_the_mean_is_reported(tiny_bert, tmp_path, capsys) -> None:
    given = [f"model.weights={tiny_bert}", *SMALL, "logger=none", "seeds=[1,2,3]", f"run_dir={tmp_path / 'run'}"]
    train_here(*given)
    run = tmp_path / "run"
    runs = [json.loads((run / f"seed{seed}" / "metrics.json").read_text()) for seed in (1, 2, 3)]
    assert [one["meta"]["config"]["seed"] for one in runs] == [1, 2, 3]
    values = [one["metrics"]["test/embedded/auroc"]["value"] for one in runs]
    found = json.loads((run / "metrics.json").read_text())["metrics"]["test/embedded/auroc"]
    assert found["value"] == pytest.approx(mean(values)) and stdev(values) > 0 and found["low"] < found["high"]
    shown, report = capsys.readouterr().out, (run / "report.md").read_text()
    assert shown.count("mean of 3 seeds") == 1 and "every metric" not in shown and "every metric" in report
    assert shown.splitlines()[-1] == f"answers: {(run / 'answers.html').as_uri()}"
    page = (run / "answers.html").read_text()
    assert all(f"embedded, seed {seed}" in page for seed in (1, 2, 3)) and "mean of 3 seeds" in page
    for file in (run / "metrics.json", run / "seed3" / "metrics.json"):
        file.unlink()
    before = (run / "seed1" / "train.log").read_text()
    with commanded([f"resume={run}"]):
        train_here(f"resume={run}")
    assert (run / "seed1" / "train.log").read_text() == before, "a finished seed is left alone"
    again = json.loads((run / "metrics.json").read_text())["metrics"]["test/embedded/auroc"]
    assert again == found


@pytest.mark.parametrize("seeds", ["[1]", "[1,1]", "[a,b]", "3"])
def test_other_seeds_are_refused(seeds: str, tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"seeds=\[1,2,3\]"):
        train_here(f"model.weights={tiny_bert}", *SMALL, f"seeds={seeds}", f"run_dir={tmp_path / 'run'}")
