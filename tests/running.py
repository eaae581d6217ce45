"""Running the scripts as a user does: in this process where that is enough, as a command where it is not."""

import atexit
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faithkit.files.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
QUICK = (
    *("optimizer.lr=1e-3", "callbacks.num_resamples=20", "callbacks.progress_bar=false", "trainer=cpu"),
    "checkpoints=all",  # tests compare them
)
SMALL = ("data.num_train=160", "data.num_validation=60", "data.num_test=60", "model.max_length=64", *QUICK)
BATCH = ("model.batch_size=8", "callbacks.num_examples=0")
SMALL_TAGGER = ("model=tagger", "data.num_rows=60", "model.max_length=96", *QUICK, *BATCH)
LENGTHS = ("model.max_length=320", "model.max_response_length=90")
SMALL_GENERATOR = ("data.num_rows=40", *LENGTHS, *QUICK, *BATCH, "trainer.precision=32-true")


def compose(config_name: str, *overrides: str) -> Any:
    """The configuration that a command line gives."""
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(config_dir=str(ROOT / "configs"), version_base="1.3"):
        return compose(config_name, overrides=list(overrides))


def plain_config(config_name: str, *overrides: str) -> dict[str, Any]:
    """The configuration that a command line gives, resolved to plain values."""
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(compose(config_name, *overrides), resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


@contextmanager
def opened(config_name: str, *overrides: str, may_change: Sequence[str] = ()) -> Iterator[tuple[RunFolder, Any]]:
    """The folder of a run and its configuration, as a script opens them with these overrides."""
    from faithkit.files.open_run import open_run

    with commanded(overrides), open_run(compose(config_name, *overrides), "test", may_change=may_change) as found:
        yield found


@contextmanager
def commanded(overrides: Sequence[str]) -> Iterator[None]:
    """Makes these the overrides of the command that runs, as Hydra tells them."""
    from hydra.core.hydra_config import HydraConfig

    given = SimpleNamespace(overrides=SimpleNamespace(task=list(overrides)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HydraConfig, "get", lambda: given)
        yield


def train_here(*overrides: str) -> None:
    """`python train.py ...` in this process."""
    from faithkit_workflows import train

    train.main(compose("train", *overrides))


def evaluate_here(*overrides: str) -> None:
    """`python evaluate.py ...` in this process."""
    from faithkit_workflows import evaluate

    evaluate.main(compose("evaluate", "num_resamples=20", *overrides))


def metrics_of(run: Path, prefix: str = "") -> dict[str, Any]:
    """The metrics that a run has written, by their names without this beginning."""
    found = json.loads((run / "metrics.json").read_text(encoding="utf-8"))["metrics"]
    return {name.removeprefix(prefix): metric for name, metric in found.items()}


def values_of(run: Path, prefix: str = "") -> dict[str, float]:
    """The values of the metrics that a run has written."""
    return {name: metric["value"] for name, metric in metrics_of(run, prefix).items()}


def asking(url: str, *more: str, model: str = "small", cache: object = "null") -> list[str]:
    """Overrides that ask a model of a server that speaks as OpenAI's."""
    return ["engine=openai", f"engine.model={model}", f"engine.base_url={url}", f"engine.cache={cache}", *more]


def temporary_folder(prefix: str) -> Path:
    """Makes a folder that lasts as long as this process: for what is made once and read by many tests."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def reset_signals() -> None:
    """Restores the default effect of signals, which a process started by nohup or in the background may ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "ignore", str(ROOT / script), *arguments]


def run(script: str, *arguments: str, timeout: float = 240, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script as a process of its own, with its output."""
    return subprocess.run(
        command(script, *arguments),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def curve(folder: Path, name: str = "train/loss") -> list[float]:
    """Reads a curve of a run's metrics.csv."""
    with (folder / "csv" / "metrics.csv").open() as file:
        return [float(row[name]) for row in csv.DictReader(file) if row.get(name)]


def state(folder: Path, name: str = "last") -> dict[str, Any]:
    """Reads the weights of a run's checkpoint."""
    from faithkit.training.checkpoints import read_checkpoint

    return dict(read_checkpoint(folder / "checkpoints" / f"{name}.ckpt")["state_dict"])


def assert_same_run(first: Path, second: Path, name: str = "last") -> None:
    ours, theirs = state(first, name), state(second, name)
    assert ours.keys() == theirs.keys() and all(bool((ours[key] == theirs[key]).all()) for key in ours)
    assert metrics_of(first) == metrics_of(second)


def break_at(number: int, module: Any, folder: Path, *options: str) -> None:
    """Trains until the power fails at the step of this number, counted over all stages."""
    step, done = module.training_step, 0

    def broken(self: Any, batch: Any, batch_idx: int) -> Any:
        nonlocal done
        if done == number:
            raise RuntimeError("the power fails")
        done += 1
        return step(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="the power fails"):
        patch.setattr(module, "training_step", broken)
        train_here(f"run_dir={folder}", *options)


def resume_here(folder: Path) -> None:
    with commanded([f"resume={folder}"]):
        train_here(f"resume={folder}")


def train_in_two(trainer: str, folder: Path, *options: str, timeout: float = 240) -> None:
    """Trains in two processes."""
    two = [f"trainer={trainer}", "trainer.accelerator=cpu", "trainer.devices=2"]
    done = run("train.py", f"run_dir={folder}", *options, *two, timeout=timeout)
    assert done.returncode == 0, done.stderr
