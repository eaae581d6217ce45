"""A signal at any moment of any script ends it with 130, without a traceback, and what it wrote can be gone on with."""

import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.forked import Ended, files_of, run_forked
from tests.running import ROOT, SMALL

MOMENTS_OF_TRAINING = [
    "faithkit.files.open_run:plain",
    "faithkit.files.open_run:run_lock",
    "faithkit.files.run_folder:log_to",
    "faithkit_workflows.train:build_task",
    "data_modules.data_module:DataModule.setup",
    "critic.sequence.task:CriticTask.module",
    "pytorch_lightning:Trainer.fit",
    "critic.sequence.module:CriticModule.training_step",
    "critic.sequence.module:CriticModule.validation_step",
    "faithkit.training.callbacks:LastCheckpoint.on_train_end",
    "faithkit.training.callbacks:LastCheckpoint.teardown",
    "faithkit.training.task:load_best",
    "critic.sequence.task:CriticTask.calibrate",
    "faithkit.training.task:write_folder",
    "faithkit.reports.write_reports:write_results",
]
QUICK = ("faithkit_workflows.train:build_task", MOMENTS_OF_TRAINING[10], "faithkit.training.task:write_folder")
LINES = "The river is long.,It is long.\nThe city is old.,It is new.\n" * 4


def assert_interrupted(ended: Ended) -> None:
    assert ended.code == 130, ended.output
    assert "interrupted" in ended.output and "Traceback" not in ended.output, ended.output


@pytest.fixture(scope="module")
def options(tiny_bert: Path) -> list[str]:
    return [f"model.weights={tiny_bert}", "logger=csv", *SMALL]


@pytest.fixture(scope="module")
def whole(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    ended = run_forked("train", f"run_dir={folder}", *options)
    assert ended.code == 0, ended.output
    return folder


@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=[] if at in QUICK else pytest.mark.slow) for at in MOMENTS_OF_TRAINING]
)
def test_a_training_goes_on_to_the_same_end(at: str, whole: Path, options: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ended = run_forked("train", f"run_dir={folder}", *options, at=at)
    assert_interrupted(ended)
    if not (folder / "config.yaml").exists():
        assert at in MOMENTS_OF_TRAINING[:2]
        again = run_forked("train", f"run_dir={folder}", *options)
    else:
        assert f"go on with: faithkit train resume={folder}" in ended.output
        again = run_forked("train", f"resume={folder}")
    assert again.code == 0, again.output
    assert files_of(folder) == files_of(whole) and (folder / "hf" / "faithkit.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_are_as_sigterm(
    number: signal.Signals, options: list[str], tmp_path: Path
) -> None:
    ended = run_forked(
        "train", f"run_dir={tmp_path / 'run'}", *options, at="faithkit_workflows.train:build_task", number=number
    )
    assert_interrupted(ended)


@pytest.mark.parametrize(
    "at",
    [
        "faithkit_workflows.benchmarks.detection:read_benchmark",
        "faithkit_workflows.benchmarks.detection:load_configured",
        "critic.sequence.scorer:Critic.probabilities",
        "faithkit.files.jsonl:JsonlAppender.append",
        "faithkit.reports.write_reports:write_results",
    ],
)
def test_an_evaluation_goes_on_to_the_same_end(at: str, trained: Path, tmp_path: Path) -> None:
    small = ["benchmark=embedded", "benchmark.options.num_test=30", f"checkpoint={trained}", "num_resamples=20"]
    options = [*small, "save_every_num_rows=8"]
    assert run_forked("evaluate", *options, f"run_dir={tmp_path / 'whole'}").code == 0
    folder = tmp_path / "run"
    ended = run_forked("evaluate", *options, f"run_dir={folder}", at=at)
    assert_interrupted(ended)
    assert f"go on with: faithkit evaluate resume={folder}" in ended.output and not (folder / "metrics.json").exists()
    again = run_forked("evaluate", f"resume={folder}")
    assert again.code == 0, again.output
    assert files_of(folder) == files_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("script", "at"),
    [
        ("generate", "faithkit_workflows.answering.strategies:settle"),
        ("generate", "generation.generator:Generator.predict_examples"),
        ("score", "faithkit_workflows.tables.user_table:open_user_table"),
        ("score", "critic.sequence.scorer:Critic.probabilities"),
        ("export", "critic.export:export_folder"),
        ("chat", "rich.console:Console.print"),
    ],
)
def test_every_other_script_ends_so_too(script: str, at: str, trained: Path, tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"knowledge,response\n{LINES}")
    folder = tmp_path / "my run"
    options = {
        "generate": [f"checkpoint={tiny_llama}", f"run_dir={folder}", "num_rows=4", "decoding.max_new_tokens=4"],
        "score": [f"path={tmp_path / 'rows.csv'}", f"checkpoint={trained}", f"run_dir={folder}", "num_resamples=20"],
        "export": [f"checkpoint={trained}", f"output_dir={tmp_path / 'out'}"],
        "chat": [f"checkpoint={tiny_llama}"],
    }
    ended = run_forked(script, *options[script], at=at)
    assert_interrupted(ended)
    assert not (tmp_path / "out").exists()
    if script in ("generate", "score"):
        (command,) = re.findall(r"go on with: faithkit (.+)", ended.output)
        assert shlex.split(command) == [script, f"resume={folder}"]
        again = run_forked(*shlex.split(command))
        assert again.code == 0, again.output
        assert files_of(folder)


def test_a_transfer_hands_the_signal_to_the_training_that_it_started(tmp_path: Path) -> None:
    marker = tmp_path / "told"
    child = "import signal, sys, time, pathlib\n"
    child += f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(marker)!r}).touch(), sys.exit(130)))\n"
    child += "print('ready', flush=True)\ntime.sleep(60)\n"
    parent = (
        "import os, sys\nfrom faithkit import signals\n"
        "from faithkit_workflows.sweep.processes import run_command\nsignals.install()\n"
    )
    parent += (
        f"try: run_command([sys.executable, '-c', {child!r}], os.environ)\nexcept signals.Interrupted: sys.exit(130)"
    )
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", parent], cwd=ROOT, stdout=-1, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130 and marker.exists()


def test_forked_workers_of_a_loader_print_nothing_at_ctrl_c(tmp_path: Path) -> None:
    program = """
import os, signal, sys, time
from faithkit import signals
signals.install()
from torch.utils.data import DataLoader
class Rows:
    def __len__(self): return 100
    def __getitem__(self, i):
        time.sleep(0.05)
        return i
try:
    for place, _ in enumerate(DataLoader(Rows(), num_workers=2, multiprocessing_context="fork")):
        if place == 3: os.killpg(0, int(sys.argv[1]))
except signals.Interrupted:
    sys.exit(130)
"""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        started = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, str(int(number))],
            cwd=ROOT,
            capture_output=True,
            text=True,
            start_new_session=True,
            timeout=120,
        )
        assert (started.returncode, started.stderr) == (130, "")


def test_a_second_signal_ends_at_once_and_the_same_one_sent_twice_does_not() -> None:
    program = """
import os, signal, sys, time
from faithkit import signals
signals.install()
signals.hold()
for _ in range(2):
    os.kill(os.getpid(), signal.SIGTERM)
print("still here", signals.received(), flush=True)
time.sleep(signals.SAME + 0.1)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(5)
print("too late")
"""
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "still here True\n") and time.monotonic() - start < 20


def test_a_signal_that_a_destructor_swallowed_still_ends_with_130() -> None:
    program = """
import os, signal
from faithkit import cli, signals
class Swallows:
    def __del__(self): os.kill(os.getpid(), signal.SIGTERM)
cli._run = lambda *_: Swallows() and None
cli.run_script(None, "", "", (), "")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 130 and "interrupted" in done.stderr
