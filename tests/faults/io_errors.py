"""Lets the system refuse the N-th of a writer's calls, or take only a part of what is written."""

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CALLS = ("open", "write", "fsync", "rename", "replace", "mkdir", "link", "ftruncate", "unlink", "rmdir")
GROWING = ("open", "write", "fsync", "mkdir", "link")  # what a disk that is full, or broken, goes on refusing
KINDS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EINTR)


class Raw(io.RawIOBase):
    """A file whose bytes go through `os.write`, where faults can be injected."""

    def __init__(self, handle: int):
        self.handle = handle

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.handle

    def write(self, data: Any) -> int:
        return os.write(self.handle, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self.handle)


class Injector:
    """Counts calls, and says what it has done.

    Args:
        number: Of the call that is refused, from 1; 0 refuses none.
        kind: The error number.
        lasting: Whether what follows and would need the disk is refused too.
    """

    def __init__(self, number: int, kind: int, lasting: bool):
        self.number, self.kind, self.lasting = number, kind, lasting
        self.count = 0
        self.refused = ""

    def call(self, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        self.count += 1
        if name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            name = "open to read"
        if self.count == self.number or (self.refused and self.lasting and name in GROWING):
            self.refused = self.refused or name
            path = None if isinstance(args[0], int) else str(args[0])
            raise OSError(self.kind, os.strerror(self.kind), path)
        return real(*args, **kwargs)


@contextmanager
def injecting(number: int, kind: int = errno.EIO, *, lasting: bool = False, short: bool = False) -> Iterator[Injector]:
    """Injects one fault into the body; `short` makes every `os.write` take only a part, as it may."""
    injector = Injector(number, kind, lasting)

    def hooked(name: str) -> Any:
        real = getattr(os, name)
        if name == "fsync":  # no power is cut here, and hundreds of real ones take minutes

            def real(handle: int) -> None:
                os.fstat(handle)

        if name == "write" and short:
            full = real

            def real(handle: int, data: Any) -> int:
                return full(handle, bytes(data)[: max(1, len(data) // 3)])

        return lambda *args, **kwargs: injector.call(name, real, args, kwargs)

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, hooked(name))
        patch.setattr(os, "fdopen", lambda handle, mode: io.BufferedWriter(Raw(handle)))
        yield injector
