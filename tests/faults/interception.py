"""Intercepts the calls by which a writer changes files: to refuse one, to shorten writes, or to record all of them."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

CALLS = ("open", "write", "fsync", "rename", "replace", "unlink", "remove", "mkdir", "rmdir", "link", "ftruncate")
GROWING = ("open", "write", "fsync", "mkdir", "link")  # what a full or broken disk goes on refusing
ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EINTR)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
MAX_ALL_SUBSETS = 5  # changes of names of which every subset is tried; of more, every prefix and each left out alone


@contextmanager
def intercepted(call: Callable[..., Any]) -> Iterator[pytest.MonkeyPatch]:
    """Replaces each function of `os` in CALLS by `call(name, real, *args, **kwargs)`."""

    def replacement(name: str) -> Any:
        real = getattr(os, name)
        return lambda *args, **kwargs: call(name, real, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, replacement(name))
        yield patch


class _UnbufferedFile(io.RawIOBase):
    """Writes through `os.write`, which can be intercepted, where Python's files would not."""

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


@dataclass
class Fault:
    """Refuses one call.

    Args:
        number: Of the call that is refused, from 1; 0 refuses none.
        kind: The error number.
        is_lasting: Whether later calls that need the disk are refused too.
        is_short: Whether every `os.write` takes only a part, as it may.
    """

    number: int
    kind: int = errno.EIO
    is_lasting: bool = False
    is_short: bool = False
    count: int = 0
    refused: str = ""

    def __call__(self, name: str, real: Any, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        if name == "open" and not args[1] & WRITING:
            name = "open to read"
        if self.count == self.number or (self.refused and self.is_lasting and name in GROWING):
            self.refused = self.refused or name
            raise OSError(self.kind, os.strerror(self.kind), None if isinstance(args[0], int) else str(args[0]))
        if name == "fsync":  # no power is cut here, and hundreds of real ones take minutes
            return os.fstat(args[0]) and None
        if name == "write" and self.is_short:
            return real(args[0], bytes(args[1])[: max(1, len(args[1]) // 3)])
        return real(*args, **kwargs)


@contextmanager
def injected(fault: Fault) -> Iterator[Fault]:
    """Injects a fault into the body."""
    with intercepted(fault) as patch:
        patch.setattr(os, "fdopen", lambda handle, mode: io.BufferedWriter(_UnbufferedFile(handle)))
        yield fault


# What a file system promises is little: content is on the disk after an fsync of the file, and names (created, renamed,
# deleted) after an fsync of their folder. Of everything else any part may be there after a power cut: each change of a
# name alone, and content complete, cut, zeroed, missing or as it was at the last fsync.


@dataclass(eq=False)
class Node:
    """A file's content now and at its last fsync, or a folder."""

    is_folder: bool
    now: bytes = b""
    synced: bytes | None = None

    def variants(self) -> list[bytes]:
        """Lists what may be left of it, the complete content first."""
        if self.is_folder or self.now == self.synced:
            return [self.now]
        safe = self.synced if self.synced is not None and self.now.startswith(self.synced) else b""
        loose = self.now[len(safe) :]
        found = [self.now, safe + loose[: len(loose) // 2], safe + bytes(len(loose)), safe]
        return [*found, *([self.synced] if self.synced is not None else [])]


@dataclass
class Change:
    """A change of names: `kind` is make, rename, link or delete."""

    kind: str
    path: str
    node: Node
    folder: int  # the inode whose fsync makes it last
    source: str = ""
    is_lasting: bool = False


State = dict[str, bytes | None]  # of each path its content; None for a folder


@dataclass
class Recorder:
    """Records the changes of a folder, and builds all states that a power cut may leave.

    `states` maps each to True where it can only be found after the writer had returned.
    """

    root: Path
    changes: list[Change] = field(default_factory=list)
    nodes: dict[int, Node] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    base: dict[str, Node] = field(default_factory=dict)
    states: list[tuple[State, bool]] = field(default_factory=list)
    _is_busy: bool = False
    _known: set[Any] = field(default_factory=set)

    def start(self) -> None:
        self.compare()
        for node in self.nodes.values():
            node.synced = node.now
        self.base = {path: self.nodes[inode] for path, inode in self.seen.items()}
        self.changes.clear()

    def __call__(self, name: str, real: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_busy:
            return real(*args, **kwargs)
        self._is_busy = True
        try:
            self.compare()
            self.collect()
            returned = real(*args, **kwargs)
            self.compare()
            if name == "fsync":
                self.sync(os.fstat(args[0]).st_ino)
            self.collect()
            return returned
        finally:
            self._is_busy = False

    def compare(self) -> None:
        """Compares the folder with what was there before, and notes the changes."""
        found = {path: (inode, is_folder) for path, inode, is_folder in self._entries()}
        gone = {path for path in self.seen if path not in found}
        new = [path for path in found if self.seen.get(path) != found[path][0]]
        for path in sorted(new, key=lambda path: path.count("/")):
            inode, is_folder = found[path]
            if self.seen.get(path) == inode:
                continue  # it came along with its folder
            sources = [old for old, number in self.seen.items() if number == inode and old != path]
            moved = [old for old in sources if old in gone]
            if moved:
                self._note("rename", path, self.nodes[inode], moved[0])
                self._move(moved[0], path)
                gone = {path for path in gone if path in self.seen}
            elif sources:
                self._note("link", path, self.nodes[inode], sources[0])
            else:
                self.nodes[inode] = Node(is_folder)
                self._note("make", path, self.nodes[inode])
            self.seen[path] = inode
        for path in sorted(gone, key=lambda path: -path.count("/")):
            self._note("delete", path, self.nodes[self.seen[path]])
            del self.seen[path]
        for path, inode in self.seen.items():
            if not self.nodes[inode].is_folder:
                self.nodes[inode].now = (self.root / path).read_bytes()

    def _entries(self) -> Iterator[tuple[str, int, bool]]:
        for folder, folders, files in os.walk(self.root):
            for name in (*folders, *files):
                path = Path(folder) / name
                yield str(path.relative_to(self.root)), path.stat().st_ino, name in folders

    def _note(self, kind: str, path: str, node: Node, source: str = "") -> None:
        parent = os.path.dirname(path)  # noqa: PTH120 (paths are text here)
        folder = self.seen[parent] if parent else self.root.stat().st_ino
        self.changes.append(Change(kind, path, node, folder, source))

    def _move(self, source: str, target: str) -> None:
        for path in [path for path in self.seen if path == source or path.startswith(f"{source}/")]:
            self.seen[target + path[len(source) :]] = self.seen.pop(path)

    def sync(self, inode: int) -> None:
        """Notes that a file or folder is now on the disk."""
        if inode in self.nodes and not self.nodes[inode].is_folder:
            self.nodes[inode].synced = self.nodes[inode].now
        for change in self.changes:
            change.is_lasting = change.is_lasting or change.folder == inode

    def collect(self, *, after_return: bool = False) -> None:
        """Adds the states that a power cut at this moment may leave."""
        for kept in self._subsets():
            view = self._apply(kept)
            is_loose = any(len(node.variants()) > 1 for node in view.values())
            for variant in range(5 if is_loose else 1):
                state: State = {}
                for path, node in view.items():
                    variants = node.variants()
                    state[path] = None if node.is_folder else variants[min(variant, len(variants) - 1)]
                key = (frozenset(state.items()), after_return)
                if key not in self._known:
                    self._known.add(key)
                    self.states.append((state, after_return))

    def _subsets(self) -> Iterator[list[Change]]:
        loose = [change for change in self.changes if not change.is_lasting]
        numbers = range(len(loose))
        if len(loose) <= MAX_ALL_SUBSETS:
            choices = list(product((True, False), repeat=len(loose)))
        else:
            choices = [tuple(i < end for i in numbers) for end in range(len(loose) + 1)]
            choices += [tuple(i != left_out for i in numbers) for left_out in numbers]
        for choice in choices:
            dropped = {id(change) for change, kept in zip(loose, choice, strict=True) if not kept}
            yield [change for change in self.changes if id(change) not in dropped]

    def _apply(self, changes: list[Change]) -> dict[str, Node]:
        view = dict(self.base)
        for change in changes:
            parent = os.path.dirname(change.path)  # noqa: PTH120
            if parent and parent not in view:
                continue
            if change.kind == "rename":
                for path in [p for p in view if p == change.source or p.startswith(f"{change.source}/")]:
                    view[change.path + path[len(change.source) :]] = view.pop(path)
            elif change.kind == "delete":
                for path in [p for p in view if p == change.path or p.startswith(f"{change.path}/")]:
                    del view[path]
            elif change.kind == "make" or change.source in view:
                view[change.path] = change.node
        return view


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """Records what the body does to a folder."""
    recorder = Recorder(root)
    recorder.start()
    with intercepted(recorder):
        yield recorder
        recorder._is_busy = True
    recorder.compare()
    recorder.collect()
    recorder.collect(after_return=True)


def write_state(state: State, folder: Path) -> Path:
    """Writes a state into a new folder."""
    folder.mkdir()
    for path, data in sorted(state.items(), key=lambda item: item[0].count("/")):
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)
    return folder
