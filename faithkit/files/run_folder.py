"""A run's folder: the paths of everything that a run writes, its log, and what a result depends on."""

import logging
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

from faithkit.files.atomic import disk_errors, make_folder

RUN_DIR_VARIABLE = "FAITHKIT_RUN_DIR"  # tells the other processes of a run which folder the first one chose
# What a command leaves before it has produced anything: settings, log, refused rows, and the curves of no step.
LEFTOVERS = ("config.yaml", "train.log", "rejects.jsonl", "csv", "tensorboard", "wandb", "wandb.json")
SWEEP_FILE = "sweep.json"  # in the folder of a sweep, whose runs have folders in it
log = logging.getLogger("faithkit")


class RunFolder:
    """Paths within a run's folder.

    Args:
        whole: The folder of the whole run, where this is that of one of its stages.
    """

    def __init__(self, path: str | Path, whole: Path | None = None):
        self.path = Path(path)
        self.whole = whole or self.path

    def stage(self, name: str) -> "RunFolder":
        """Gives the folder of a stage within this run."""
        return RunFolder(self.path / name, whole=self.whole)

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        return self.checkpoints / "best.ckpt"

    @property
    def last(self) -> Path:
        return self.checkpoints / "last.ckpt"  # a file, or a folder of parts

    @property
    def previous(self) -> Path:
        return self.checkpoints / "previous.ckpt"  # the last.ckpt of before

    @property
    def hf(self) -> Path:
        return self.path / "hf"

    @property
    def adapter(self) -> Path:
        return self.path / "adapter"  # where adapters alone were trained: these, without the base

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def predictions(self) -> Path:
        return self.path / "predictions"

    @property
    def log(self) -> Path:
        return self.path / "train.log"

    def has_work(self) -> bool:
        """Tells whether a command has produced anything here: a checkpoint, predictions, a result."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = Path(folder) / name
                parts = path.relative_to(self.path).parts
                if not any(part in LEFTOVERS or part.startswith(".") for part in parts) and path.stat().st_size:
                    return True
        return False

    def progress(self) -> str:
        """Says how much work is done: the step of the last checkpoint, the rows that are predicted."""
        rows = sum(path.read_bytes().count(b"\n") for path in self.predictions.glob("*.jsonl"))
        found = [f"{rows} rows"] if rows else []
        for last in sorted(self.path.glob(f"**/checkpoints/{self.last.name}")):
            # Imported only where settings change: torch takes its time.
            from faithkit.training.checkpoint_io import read_checkpoint

            found.append(f"step {read_checkpoint(last, map_location='meta', mmap=True)['global_step']}")
        return ", ".join(found) or "nothing"


def how_to_go_on(script: str, run: Path) -> str:
    """Writes the command that goes on with a run, as a shell takes it."""
    return f"go on with: {shlex.join(['faithkit', script, f'resume={run}'])}"


def process_rank() -> int:
    """Reads this process's number among those of the run, before torch is loaded."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or os.environ.get("LOCAL_RANK") or 0)


class _LogFile(logging.FileHandler):
    """A log file that a full disk leaves short in silence: what writes the results will say it, once and plainly."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):  # what its buffer holds goes where the rest went
            super().close()


def log_to(path: Path, *, append: bool = True) -> None:
    """Sends our messages to the run's log file and, plainly, to the terminal."""
    make_folder(path.parent)
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    with disk_errors(path):
        file = _LogFile(path, mode="a" if append else "w", encoding="utf-8", errors="backslashreplace")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setFormatter(logging.Formatter("%(message)s"))
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(file)
    if process_rank() == 0:
        log.addHandler(terminal)
