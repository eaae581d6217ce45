"""Records what a writer does to a folder, and builds every state that a power cut may leave of it.

What a file system promises is little: content is on the disk after an fsync of the file, and names (created, renamed,
deleted) after an fsync of their folder. Of everything else any part may be there after a power cut: each change of a
name alone, and content whole, cut, zeroed, missing or as it was at the last fsync.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

# Before and after each of these the folder is looked at. Writes between them are found by what has changed.
HOOKED = ("open", "write", "fsync", "rename", "replace", "unlink", "remove", "mkdir", "rmdir", "link", "ftruncate")
ALL_SUBSETS = 5  # changes of names of which every subset is tried; of more every beginning, and each left out alone


@dataclass(eq=False)
class Node:
    """A file's content now and at its last fsync, or a folder."""

    is_folder: bool
    now: bytes = b""
    synced: bytes | None = None

    def variants(self) -> list[bytes]:
        """Yields what may be left of it: first of all the whole."""
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
    lasting: bool = False


State = dict[str, bytes | None]  # of each path its content; None for a folder


@dataclass
class Recorder:
    """The folder as the writer sees it, and all states that a power cut could have left so far.

    `states` maps each to True where it can only be found after the writer had returned.
    """

    root: Path
    changes: list[Change] = field(default_factory=list)
    nodes: dict[int, Node] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    base: dict[str, Node] = field(default_factory=dict)
    states: list[tuple[State, bool]] = field(default_factory=list)
    num_events: int = 0
    _known: set[Any] = field(default_factory=set)

    def start(self) -> None:
        self.look()
        for node in self.nodes.values():
            node.synced = node.now
        self.base = {path: self.nodes[inode] for path, inode in self.seen.items()}
        self.changes.clear()

    def look(self) -> None:
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
        moved = {path: inode for path, inode in self.seen.items() if path == source or path.startswith(f"{source}/")}
        for path, inode in moved.items():
            del self.seen[path]
            self.seen[target + path[len(source) :]] = inode

    def synced(self, inode: int) -> None:
        """Notes that a file or folder is now on the disk."""
        if inode in self.nodes and not self.nodes[inode].is_folder:
            self.nodes[inode].synced = self.nodes[inode].now
        for change in self.changes:
            change.lasting = change.lasting or change.folder == inode

    def collect(self, *, after_return: bool = False) -> None:
        """Adds the states that a power cut at this moment may leave."""
        self.num_events += 1
        for kept in self._subsets():
            view = self._apply(kept)
            loose = [node for node in dict.fromkeys(view.values()) if len(node.variants()) > 1]
            for variant in range(5) if loose else (0,):
                state = {
                    path: None if node.is_folder else node.variants()[min(variant, len(node.variants()) - 1)]
                    for path, node in view.items()
                }
                key = (frozenset(state.items()), after_return)
                if key not in self._known:
                    self._known.add(key)
                    self.states.append((state, after_return))

    def _subsets(self) -> Iterator[list[Change]]:
        loose = [change for change in self.changes if not change.lasting]
        if len(loose) <= ALL_SUBSETS:
            choices = list(product((True, False), repeat=len(loose)))
        else:
            numbers = range(len(loose))
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
                moved = [p for p in view if p == change.source or p.startswith(f"{change.source}/")]
                for path in moved:
                    view[change.path + path[len(change.source) :]] = view.pop(path)
            elif change.kind == "delete":
                for path in [p for p in view if p == change.path or p.startswith(f"{change.path}/")]:
                    del view[path]
            elif change.kind == "make" or change.source in view:
                view[change.path] = change.node
        return view


@contextmanager
def recording(root: Path) -> Iterator[Recorder]:
    """Records what the body does to the folder `root`."""
    recorder, busy = Recorder(root), [False]
    recorder.start()

    def hooked(name: str) -> Any:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if busy[0]:
                return real(*args, **kwargs)
            busy[0] = True
            recorder.look()
            recorder.collect()
            try:
                returned = real(*args, **kwargs)
                recorder.look()
                if name == "fsync":
                    recorder.synced(os.fstat(args[0]).st_ino)
                recorder.collect()
                return returned
            finally:
                busy[0] = False

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in HOOKED:
            patch.setattr(os, name, hooked(name))
        yield recorder
        busy[0] = True
    recorder.look()
    recorder.collect()
    recorder.collect(after_return=True)


def lay_out(state: State, folder: Path) -> Path:
    """Writes a state into a new folder."""
    folder.mkdir()
    for path, data in sorted(state.items(), key=lambda item: item[0].count("/")):
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)
    return folder
