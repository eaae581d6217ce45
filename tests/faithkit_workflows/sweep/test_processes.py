"""Jobs as real processes: trainings of a tiny critic ranked, and stopped by a signal."""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faithkit.runs.listing import chosen_of
from faithkit.runs.reading import read_curves, read_run
from faithkit_workflows.sweep import Processes, TrainJob, find_failure, slots
from tests.running import QUICK, ROOT, command, run

TINY = ("data.num_train=48", "data.num_validation=24", "data.num_test=24", "model.max_length=64", "model.num_epochs=1")


def options_of(tiny_bert: Path, folder: Path) -> list[str]:
    return [f"model.weights={tiny_bert}", *TINY, *QUICK[1:], "optimizer.lr=1e-3,2e-3", f"run_dir={folder}"]


def test_cores_and_gpus_are_divided_among_parallel_jobs(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
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


def test_the_reason_of_a_failure_is_found_in_the_output(tmp_path):
    (tmp_path / "log").write_text("x\nerror: the disk is full\n  hint: free some\n")
    assert find_failure(tmp_path / "log", 2) == "the disk is full"
    (tmp_path / "log").write_text("Traceback\nRuntimeError: shapes\n")
    assert find_failure(tmp_path / "log", 1) == "RuntimeError: shapes"
    assert "memory" in find_failure(tmp_path / "log", -9)
    assert find_failure(tmp_path / "none", 3) == "exit code 3"


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
