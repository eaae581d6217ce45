"""One command at a time works in a run's folder; a dead one's lock is gone, and a failed one's folder is free."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.files import run_folder as module
from faithkit.files.run_folder import run_lock
from tests.faults.processes import run_forked
from tests.running import ROOT, opened

pytestmark = pytest.mark.xdist_group("undisturbed")  # one process forks for all
HOLDER = """
import os, sys, time
from pathlib import Path
from typing import Any
from faithkit.files.run_folder import run_lock

with run_lock(Path(sys.argv[1])):
    child = os.fork() if len(sys.argv) > 2 else 0
    if child or len(sys.argv) == 2:
        print(child, flush=True)
    time.sleep(120)
"""


@contextmanager
def held(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Starts a process that works in the folder; with an argument, it forks a child that sleeps."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", HOLDER, str(folder), *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def begin(folder: Path) -> Path:
    with opened("train", f"run_dir={folder}"):
        pass
    return folder


def test_the_second_command_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run")
    with held(folder) as (process, _):
        for argument in (f"resume={folder}", f"run_dir={folder}"):
            ended = run_forked("train", argument)
            assert ended.code == 2 and f"process {process.pid} on " in ended.output and "hint: wait" in ended.output
    with opened("train", f"resume={folder}"):
        pass  # the lock ended with its process


@pytest.mark.parametrize(
    ("script", "arguments"),
    [("evaluate", ["benchmark=embedded"]), ("generate", []), ("score", ["path={rows}"]), ("train", [])],
)
def test_every_command_that_writes_a_run_takes_the_lock(
    script: str, arguments: list[str], trained: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("knowledge,response\na,b\n")
    line = [argument.format(rows=tmp_path / "rows.csv") for argument in arguments]
    if script != "train":
        line.append(f"checkpoint={tiny_llama if script == 'generate' else trained}")
    with held(tmp_path / "run"):
        ended = run_forked(script, f"run_dir={tmp_path / 'run'}", *line)
    assert ended.code == 2 and "is working in this folder" in ended.output, ended.output
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def is_free(folder: Path) -> bool:
    try:
        with run_lock(folder):
            return True
    except UserError:
        return False


def test_a_forked_worker_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    with held(tmp_path, "fork") as (process, child):
        process.kill()
        process.wait()
        try:
            os.kill(child, 0)  # it lives, and gives up what it inherited as soon as it runs
            end = time.monotonic() + 30
            while not is_free(tmp_path) and time.monotonic() < end:
                time.sleep(0.05)
            assert is_free(tmp_path)
        finally:
            os.kill(child, signal.SIGKILL)


def test_other_processes_of_a_distributed_run_need_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("train", f"run_dir={tmp_path / 'run'}") as (run, _):
        monkeypatch.setenv("LOCAL_RANK", "1")
        with opened("train", f"run_dir={tmp_path / 'run'}") as (other, _):
            assert other.path.resolve() == run.path.resolve()


def test_a_file_system_without_locks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", no_locks)
    monkeypatch.setattr(module.log, "propagate", True)
    with run_lock(tmp_path):
        pass
    assert [record.message for record in caplog.records if "no locks" in record.message]


def test_commands_of_one_second_get_different_folders(tmp_path: Path) -> None:
    program = "from faithkit.files.open_run import _new_folder as new\nfor _ in range(20): print(new('x'))"
    options: dict[str, Any] = {"cwd": tmp_path, "stdout": -1, "text": True}
    options["env"] = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [subprocess.Popen([sys.executable, "-c", program], **options) for _ in range(3)]
    folders = [line for process in processes for line in process.communicate()[0].splitlines()]
    assert len(folders) == 60 == len(set(folders)) and all((tmp_path / folder).is_dir() for folder in folders)


@pytest.mark.parametrize("name", ["checkpoints/last.ckpt", "predictions/x.jsonl", "hf/config.json", "rows.scored.csv"])
def test_a_folder_with_work_in_it_is_not_free(name: str, tmp_path: Path) -> None:
    folder = begin(tmp_path / "run")
    left = folder / "checkpoints" / ".last.ckpt.0.tmp" / "part-0.ckpt"  # by a writer that was killed: no work
    left.parent.mkdir(parents=True)
    left.write_text("x")
    begin(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("x")
    with pytest.raises(UserError, match="already holds a run"):
        begin(folder)
