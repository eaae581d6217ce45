"""A run's folder: the paths of everything that a run writes, its log and its lock.

The lock lets one command at a time work in the folder. The kernel ends it with its process.
"""

import errno
import fcntl
import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from faithkit.errors import UserError
from faithkit.files.atomic import disk_errors, make_folder
from faithkit.settings.config_files import SCRIPTS

RUN_DIR_VARIABLE = "FAITHKIT_RUN_DIR"  # the folder that the first process of a run chose, for the others
# What a command leaves before it has produced anything: settings, log, refused rows, and the curves of no step.
LEFTOVERS = (
    *("config.yaml", "rejects.jsonl", "csv", "tensorboard", "wandb", "wandb.json"),
    *(f"{script}.log" for script in SCRIPTS.values()),
)
FILE_ONLY = {"file_only": True}  # as `extra` of a log message: what the terminal shows otherwise
log = logging.getLogger("faithkit")
NAME = ".lock"  # stays in the folder: deleting a lock file lets a third process lock another one of the same name
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_held: set[int] = set()


class RunFolder:
    """Paths within a run's folder.

    Args:
        whole: The folder of the whole run, where this is that of one of its stages.
        script: The command that made it, after which its log is named.
        may_change: The keys, or patterns of them, that resuming it may change.
    """

    def __init__(
        self, path: str | Path, whole: Path | None = None, script: str = "train", may_change: Sequence[str] = ()
    ):
        self.path = Path(path)
        self.whole = whole or self.path
        self.script, self.may_change = script, may_change
        self.config = self.path / "config.yaml"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.checkpoints / "best.ckpt"
        self.last = self.checkpoints / "last.ckpt"  # a file, or a folder of parts
        self.previous = self.checkpoints / "previous.ckpt"  # the last.ckpt before the newest
        self.hf = self.path / "hf"
        self.adapter = self.path / "adapter"  # where adapters alone were trained: these, without the base
        self.metrics = self.path / "metrics.json"
        self.predictions = self.path / "predictions"

    def stage(self, name: str) -> "RunFolder":
        """Gives the folder of a stage within this run."""
        return RunFolder(self.path / name, whole=self.whole, script=self.script, may_change=self.may_change)

    @property
    def log(self) -> Path:
        return self.path / f"{self.script}.log"

    def has_work(self) -> bool:
        """Reports whether a command has produced anything here: a checkpoint, predictions, a result."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = Path(folder) / name
                parts = path.relative_to(self.path).parts
                if not any(part in LEFTOVERS or part.startswith(".") for part in parts) and path.stat().st_size:
                    return True
        return False


def resume_hint(script: str, run: Path) -> str:
    """Writes the command that resumes a run, quoted for a shell."""
    return f"go on with: {shlex.join(['faithkit', script, f'resume={run}'])}"


def process_rank() -> int:
    """Reads this process's number among those of the run, before torch is loaded."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or os.environ.get("LOCAL_RANK") or 0)


class _LogFile(logging.FileHandler):
    """A log file that a full disk cuts off silently: what writes the results will report the full disk, once."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):  # the rest of its buffer is lost too
            super().close()


def log_to(path: Path) -> None:
    """Sends log messages to the run's log file and, without times, to the terminal; those in FILE_ONLY to the file."""
    make_folder(path.parent)
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    with disk_errors(path):
        file = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setFormatter(logging.Formatter("%(message)s"))
    terminal.addFilter(lambda record: not hasattr(record, "file_only"))
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(file)
    if process_rank() == 0:
        log.addHandler(terminal)


@contextmanager
def run_lock(folder: Path, key: str = "run_dir") -> Iterator[None]:
    """Holds the lock of a run's folder.

    Args:
        key: The setting that names it, for the error.

    Raises:
        UserError: Another process holds it; it is named.
    """
    path = folder / NAME
    with disk_errors(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    _held.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            hint = f"wait for it to end or stop it, or choose another {key}"
            raise UserError(f"{holder} is working in this folder", place=str(folder), hint=hint) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            log.warning("%s: this file system has no locks: let one command at a time work in the folder", folder)
        else:
            with suppress(OSError):  # a full disk: the lock holds without the name of its holder
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        _held.discard(handle)
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Reports whether a command works in a folder now; the lock is tried only where its last holder may still run."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        holder = os.pread(handle, 200, 0).decode(errors="replace").split()
        if _has_ended(holder):  # a lock that is tried is held for a moment, in which another command would be refused
            return False
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _has_ended(holder: list[str]) -> bool:
    match holder:
        case ["process", number, "on", host] if host == socket.gethostname() and number.isdecimal():
            try:
                os.kill(int(number), 0)
            except ProcessLookupError:
                return True
            except (OSError, OverflowError):
                return False
    return False


def _close_inherited() -> None:
    """Closes the handles that a forked process inherits: a loader's worker must not keep the lock of a dead parent."""
    while _held:
        with suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_close_inherited)
