"""One command at a time works in a run's folder; a dead one's lock is gone, and a failed one's folder is free."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.files import run_lock as module
from faithkit.files.run_lock import run_lock
from tests.faults.forked import run_forked
from tests.running import ROOT, SMALL, opened

HOLDER = """
import sys, time
from pathlib import Path
from faithkit.files.run_lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(120)
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    """A living process that works in the folder."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


def begin(folder: Path) -> Path:
    with opened("train", f"run_dir={folder}"):
        pass
    return folder


def test_the_second_command_is_refused_at_once_with_the_first_ones_process(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run")
    process = hold(folder)
    try:
        for argument in (f"resume={folder}", f"run_dir={folder}"):
            start = time.monotonic()
            ended = run_forked("train", argument)
            assert ended.code == 2 and f"process {process.pid} on " in ended.output and "hint: wait" in ended.output
            assert time.monotonic() - start < 30
    finally:
        process.kill()
        process.communicate()
    with opened("train", f"resume={folder}"):
        pass  # it ended with its process


@pytest.mark.parametrize("script", ["evaluate", "generate", "score", "train"])
def test_every_script_that_writes_a_run_takes_the_lock(script: str, trained: Path, tmp_path: Path) -> None:
    process = hold(tmp_path / "run")
    (tmp_path / "rows.csv").write_text("knowledge,response\na,b\n")
    needed = {
        "evaluate": ["benchmark=embedded", f"checkpoint={trained}"],
        "generate": ["checkpoint=x"],
        "score": [f"checkpoint={trained}", f"path={tmp_path / 'rows.csv'}"],
    }
    try:
        ended = run_forked(script, f"run_dir={tmp_path / 'run'}", *needed.get(script, []))
        assert ended.code == 2 and "is working in this folder" in ended.output, ended.output
    finally:
        process.kill()
        process.communicate()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lock"]


def is_free(folder: Path) -> bool:
    try:
        with run_lock(folder):
            return True
    except UserError:
        return False


def eventually(holds: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_a_forked_worker_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    program = HOLDER.replace('print("held"', "import os\n    child = os.fork()\n    child and print(child")
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=-1, text=True)
    assert process.stdout
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        os.kill(child, 0)  # it lives, and gives up what it inherited as soon as it runs
        assert eventually(lambda: is_free(tmp_path))
    finally:
        os.kill(child, signal.SIGKILL)


def test_other_processes_of_a_distributed_run_need_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("train", f"run_dir={tmp_path / 'run'}") as (run, _):
        monkeypatch.setenv("LOCAL_RANK", "1")
        with opened("train", f"run_dir={tmp_path / 'run'}") as (other, _):
            assert other.path.resolve() == run.path.resolve()
        with opened("train", f"resume={tmp_path / 'run'}"):
            pass


def test_a_file_system_without_locks_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", no_locks)
    monkeypatch.setattr(module.log, "propagate", True)
    with run_lock(tmp_path):
        pass
    assert [record.message for record in caplog.records if "no locks" in record.message]


def test_two_commands_of_one_second_get_two_folders(tmp_path: Path) -> None:
    program = """
import sys
from faithkit.files.open_run import _new_folder
print(*[_new_folder("x") for _ in range(20)], sep="\\n")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=-1, text=True, env=environment)
        for _ in range(3)
    ]
    folders = [line for process in processes for line in process.communicate()[0].splitlines()]
    assert len(folders) == 60 == len(set(folders)) and all((tmp_path / folder).is_dir() for folder in folders)


def test_a_command_that_failed_before_producing_anything_frees_its_folder(tiny_bert: Path, tmp_path: Path) -> None:
    folder, rows = tmp_path / "run", tmp_path / "rows.csv"
    rows.write_text("some,columns\n1,2\n")
    wrong = run_forked("train", f"run_dir={folder}", "data=begin", f"data.path={rows}", f"model.weights={tiny_bert}")
    assert wrong.code == 2 and (folder / "config.yaml").exists()
    options = [f"run_dir={folder}", f"model.weights={tiny_bert}", *SMALL]
    assert run_forked("train", *options).code == 0, "the corrected command works"
    again = run_forked("train", *options)
    assert again.code == 2 and "already holds a run" in again.output and f"resume={folder}" in again.output


def test_what_a_killed_writer_left_is_no_work(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run")
    (folder / "checkpoints" / ".last.ckpt.0.tmp").mkdir(parents=True)
    (folder / "checkpoints" / ".last.ckpt.0.tmp" / "part-0.ckpt").write_text("x")
    begin(folder)


@pytest.mark.parametrize("name", ["checkpoints/last.ckpt", "predictions/x.jsonl", "hf/config.json", "rows.scored.csv"])
def test_a_folder_with_work_in_it_is_not_free(name: str, tmp_path: Path) -> None:
    folder = begin(tmp_path / "run")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("x")
    with pytest.raises(UserError, match="already holds a run"):
        begin(folder)
