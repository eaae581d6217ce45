"""Watches what a process does to the files below a folder, and ends it at a chosen moment."""

import os
import signal
import sys
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")


def watch(root: str, log: str, kill_at: int | None) -> None:
    """Counts every change of a file or name below `root`, and ends the process before the one with this number.

    An fsync, and half of a write that goes past Python's buffers, are events too.

    Args:
        log: Gets a line for each event.
    """
    write, fsync = os.write, os.fsync
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    count = 0

    def event(name: str, path: Any) -> bool:
        nonlocal count
        count += 1
        write(handle, f"{name} {path}\n".encode(errors="replace"))
        return count == kill_at

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hook(name: str, args: tuple[Any, ...]) -> None:
        if name not in NAMES and not (name == "open" and isinstance(args[2], int) and args[2] & WRITING):
            return
        path = str(args[0])
        # Names relative to an open folder are those of a tree that is being deleted.
        if (path.startswith(root) or (name in ("os.remove", "os.rmdir") and args[1] != -1)) and event(name, path):
            end()

    def named(file: int) -> str:
        return os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115

    def watched_fsync(file: int) -> None:
        if named(file).startswith(root) and event("fsync", named(file)):
            end()
        fsync(file)

    def watched_write(file: int, data: Any) -> int:
        if named(file).startswith(root) and event("write", named(file)):
            write(file, bytes(data)[: len(data) // 2])
            end()
        return write(file, data)

    os.fsync, os.write = watched_fsync, watched_write
    sys.addaudithook(hook)
