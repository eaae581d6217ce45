"""Ends a command cleanly at Ctrl-C, at SIGTERM and when its terminal closes: exit code 130, no incomplete file.

Every script calls `install` first. After that a signal raises `Interrupted` in the main thread, wherever it is: files
are written atomically, so this is safe everywhere. Code that must not be interrupted (a training step) calls `hold`:
then a signal is only recorded, until `check` is called at a safe place. A second signal ends the process at once.
"""

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REPEATED = 0.5  # seconds in which a signal may arrive twice: from the terminal, and from the parent process
EXIT_CODE = 130


class Interrupted(BaseException):
    """A signal arrived; every file written so far is complete."""


class _State:
    """State that the handlers of this process share."""

    installed = False  # by a script, for the whole process
    held = False
    received_at: float | None = None  # the first signal
    before: dict[int, Any] = {}  # noqa: RUF012 - the handlers before `hold`


def install() -> None:
    """Makes signals raise `Interrupted`; forked processes end without a traceback."""
    _State.installed = True
    _handle_signals()
    os.register_at_fork(after_in_child=_in_forked)


def hold() -> None:
    """Only records signals until `release`, also in a user's Python session.

    The handlers are set anew, because Lightning replaces them when a training begins.
    """
    if not _State.installed:
        _State.received_at = None
    _State.held = True
    _State.before = _handle_signals()


def release() -> None:
    """Ends `hold`; `check` still raises for a recorded signal."""
    for number, handler in _State.before.items():
        signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    _State.before, _State.held = {}, False


def received() -> bool:
    """Whether a signal has arrived."""
    return _State.received_at is not None


def check(resume_hint: str = "") -> None:
    """Raises `Interrupted` if a signal has arrived."""
    if received():
        raise Interrupted(resume_hint)


def _handle_signals() -> dict[int, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}  # an application that runs this in another thread handles its signals itself
    ours = [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, _record) for number in ours}  # nohup ignores SIGHUP, and that stays so


def _record(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if _State.received_at is None:
        _State.received_at = now
        if not _State.held:
            raise Interrupted
    elif now - _State.received_at > REPEATED:
        sys.stderr.write("\nended at once\n")
        sys.stderr.flush()
        os._exit(EXIT_CODE)


def _in_forked() -> None:
    """Leaves Ctrl-C to the parent, which ends its loaders itself, and lets SIGTERM end them without a traceback."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
