"""A command that is killed, signalled or runs out of disk ends in order, and resuming it gives the same results."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Commands
from tests.faults.processes import Ended, Undisturbed, kill_and_resume, read_results, run_forked
from tests.running import ROOT, reset_signals

pytestmark = pytest.mark.xdist_group("undisturbed")  # the undisturbed runs are made once for all
FEW_KILLS = {"train": 2, "evaluate": 1, "generate": 1}


@pytest.mark.parametrize("is_complete", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FEW_KILLS)
def test_a_kill_at_a_few_events_or_at_every_one(
    name: str, is_complete: bool, commands: Commands, tmp_path: Path
) -> None:
    whole = commands[name]
    assert len(whole.events) > 20
    for number in range(1, len(whole.events) + 1) if is_complete else whole.sample(FEW_KILLS[name]):
        kill_and_resume(whole, number, tmp_path / f"{number}")


@pytest.mark.slow
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_kill_while_a_sharded_checkpoint_is_written(is_complete: bool, sharded: Undisturbed, tmp_path: Path) -> None:
    numbers = [number for number, event in enumerate(sharded.events, 1) if "ckpt" in event]
    assert len(numbers) > 20 and any("index.ckpt" in event for event in sharded.events)
    for number in numbers if is_complete else (numbers[len(numbers) // 3], numbers[-len(numbers) // 4]):
        kill_and_resume(sharded, number, tmp_path / f"{number}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mounts an empty file system of one page."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def resize(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)


def assert_full_disk_explained(ended: Ended, kilobytes: int) -> None:
    start = ended.output.find("error: ")
    message = ended.output[start:]
    assert ended.code == 2 and start >= 0, f"{kilobytes} kB: {ended}"
    assert "no space left" in message and "hint: " in message and len(message.splitlines()) <= 5, message
    assert not any(word in ended.output for word in ("Traceback", "Logging error", "Exception")), ended.output


# Kilobytes of the disk: the run's folder itself, its configuration, a checkpoint, hf/ and predictions fit or do not.
SIZES = {"train": (4, 64, 160, 400), "evaluate": (4, 8, 16), "generate": (4, 8), "score": (4, 8)}


@pytest.mark.parametrize("name", ["train", *(pytest.param(name, marks=pytest.mark.slow) for name in list(SIZES)[1:])])
def test_a_full_disk(name: str, commands: Commands, disk: Path, tmp_path: Path) -> None:
    run, folder = disk / "run", tmp_path / "folder"
    if name == "score":
        rows = tmp_path / "rows.csv"
        rows.write_text("knowledge,response\n" + "".join(f"the river is {n},it is long\n" for n in range(40)))
        options = (commands.checkpoint, f"path={rows}", "num_resamples=5")
    else:
        options = commands[name].overrides
    for kilobytes in SIZES[name]:
        resize(disk, kilobytes)
        arguments = (f"resume={run}",) if (run / "config.yaml").exists() else (f"run_dir={run}", *options)
        assert_full_disk_explained(run_forked(name, *arguments, folder=folder), kilobytes)
    resize(disk, 16_000)
    ended = run_forked(name, f"resume={run}", folder=folder)
    assert ended.code == 0, ended.output
    if name == "score":
        assert len((run / "rows.scored.csv").read_text().splitlines()) == 41
    else:
        assert read_results(run) == commands[name].results


def test_a_full_disk_leaves_nothing_of_an_export(commands: Commands, disk: Path, tmp_path: Path) -> None:
    line = ("export", commands.checkpoint, f"output_dir={disk / 'out'}")
    for kilobytes in (4, 130):
        resize(disk, kilobytes)
        assert_full_disk_explained(run_forked(*line, folder=tmp_path / "folder"), kilobytes)
        assert not list(disk.iterdir())
    resize(disk, 16_000)
    ended = run_forked(*line, folder=tmp_path / "folder")
    assert ended.code == 0 and (disk / "out" / "README.md").exists(), ended.output


# By script: the function at whose call the signal comes, and whether the fast tests try it.
MOMENTS = {
    "train": {
        "faithkit.files.open_run:resolve_config": False,
        "faithkit.files.open_run:run_lock": False,
        "faithkit.targets:build": True,
        "data_modules.data_module:DataModule.setup": False,
        "critic.sequence.task:CriticTask.module": False,
        "critic.sequence.module:CriticModule.training_step": False,
        "critic.sequence.module:CriticModule.validation_step": False,
        "faithkit.training.trainer:LastCheckpoint.teardown": True,
        "critic.sequence.task:CriticTask.calibrate": False,
        "faithkit.training.task:write_folder": False,
        "faithkit.reports.write_reports:write_results": False,
    },
    "evaluate": {
        "faithkit_workflows.benchmarks.detection:read_benchmark": False,
        "faithkit_workflows.benchmarks.detection:load_configured": False,
        "critic.sequence.scorer:Critic.probabilities": True,
        "faithkit.files.jsonl:JsonlAppender.append": False,
        "faithkit.reports.write_reports:write_results": False,
    },
    "generate": {
        "faithkit_workflows.answering.strategies:choose_run_engine": False,
        "generation.generator:Generator.predict_examples": True,
    },
}
ALL_MOMENTS = [
    pytest.param(script, at, marks=[] if is_fast else pytest.mark.slow)
    for script, moments in MOMENTS.items()
    for at, is_fast in moments.items()
]


def assert_interrupted(ended: Ended) -> None:
    assert ended.code == 130, ended.output
    assert "interrupted" in ended.output and "Traceback" not in ended.output, ended.output


@pytest.mark.parametrize(("script", "at"), ALL_MOMENTS)
def test_a_signalled_command_is_resumed_to_the_same_results(
    script: str, at: str, commands: Commands, tmp_path: Path
) -> None:
    run, options = tmp_path / "my run", commands[script].overrides
    ended = run_forked(script, f"run_dir={run}", *options, at=at)
    assert_interrupted(ended)
    again = [f"run_dir={run}", *options]
    if (run / "config.yaml").exists():
        (command,) = re.findall(r"go on with: faithkit (.+)", ended.output)
        assert shlex.split(command) == [script, f"resume={run}"]
        again = [f"resume={run}"]
    resumed = run_forked(script, *again)
    assert resumed.code == 0, resumed.output
    assert read_results(run) == commands[script].results


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_end_a_command_as_sigterm(
    number: signal.Signals, commands: Commands, tmp_path: Path
) -> None:
    options, at = commands["train"].overrides, "faithkit.targets:build"
    assert_interrupted(run_forked("train", f"run_dir={tmp_path / 'run'}", *options, at=at, number=number))


@pytest.mark.parametrize(
    ("script", "at"),
    [
        ("score", "faithkit_workflows.tables.user_table:open_user_table"),
        ("export", "critic.export:export_folder"),
        ("chat", "rich.console:Console.print"),
    ],
)
def test_every_other_command_ends_in_order(
    script: str, at: str, commands: Commands, tiny_llama: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("knowledge,response\nThe river is long.,It is long.\n")
    trained = commands.checkpoint
    options = {
        "score": [f"path={tmp_path / 'rows.csv'}", trained, f"run_dir={tmp_path / 'run'}"],
        "export": [trained, f"output_dir={tmp_path / 'out'}"],
        "chat": [f"checkpoint={tiny_llama}"],
    }
    assert_interrupted(run_forked(script, *options[script], at=at))
    assert not (tmp_path / "out").exists()


def run_program(program: str, *arguments: str, is_nohup: bool = False) -> "subprocess.CompletedProcess[str]":
    """Runs Python code in a session of its own, with the default effect of signals or as `nohup` starts it."""
    command = [*(["nohup"] if is_nohup else []), sys.executable, "-W", "ignore", "-c", program, *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, start_new_session=True, timeout=120, preexec_fn=reset_signals
    )


WORKERS = """
import os, sys, time
from faithkit import signals
signals.install()
from torch.utils.data import DataLoader
class Rows:
    def __len__(self): return 20
    def __getitem__(self, i):
        time.sleep(0.05)
        return i
try:
    for place, _ in enumerate(DataLoader(Rows(), num_workers=2, multiprocessing_context="fork")):
        if place == 3: os.killpg(0, int(sys.argv[1]))
except signals.Interrupted:
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_workers_of_a_loader_print_nothing(number: signal.Signals) -> None:
    done = run_program(WORKERS, str(int(number)))
    assert (done.returncode, done.stderr) == (130, "")


def test_a_command_under_nohup_survives_a_closed_terminal() -> None:
    done = run_program(WORKERS, str(int(signal.SIGHUP)), is_nohup=True)
    assert done.returncode == 0, done.stderr


def test_a_second_signal_ends_at_once_and_the_same_one_sent_twice_does_not() -> None:
    start = time.monotonic()
    done = run_program("""
import os, signal, time
from faithkit import signals
signals.install()
signals.hold()
for _ in range(2):
    os.kill(os.getpid(), signal.SIGTERM)
print("still here", signals.received(), flush=True)
time.sleep(signals.REPEATED + 0.1)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
""")
    assert (done.returncode, done.stdout) == (130, "still here True\n") and time.monotonic() - start < 40


def test_a_signal_lost_in_a_destructor_still_ends_with_130() -> None:
    done = run_program("""
import os, signal
from faithkit import cli
class Swallows:
    def __del__(self): os.kill(os.getpid(), signal.SIGTERM)
cli._run = lambda *_: Swallows() and None
cli.run_script(None, "score", "", (), "")
""")
    assert done.returncode == 130 and "interrupted" in done.stderr


def test_a_command_hands_the_signal_to_the_training_that_it_started(tmp_path: Path) -> None:
    marker = tmp_path / "signalled"
    child = f"""
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(marker)!r}).touch(), sys.exit(130)))
print("ready", flush=True)
time.sleep(60)
"""
    parent = f"""
import os, sys
from faithkit import signals
from faithkit_workflows.sweep import run_command
signals.install()
try: run_command([sys.executable, "-c", {child!r}], os.environ)
except signals.Interrupted: sys.exit(130)
"""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", parent], cwd=ROOT, stdout=-1, text=True, preexec_fn=reset_signals
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130 and marker.exists()
