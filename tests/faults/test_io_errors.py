"""Whatever call of a writer the system refuses: the old content or the new is there, and the error has a hint."""

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder, write_json, write_text
from faithkit.files.jsonl import JsonlAppender, read_jsonl, write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.training.checkpoint_io import keep_previous, write_checkpoint
from faithkit.training.checkpoints import find_resume_point
from tests.faults.fuzz_checkpoints import whole
from tests.faults.io_errors import KINDS, Injector, injecting
from tests.process_groups import alone

DELETING = ("unlink", "rmdir", "open to read")  # refused to who deletes: something is left, for the next writer


def write_file(root: Path, text: str) -> None:
    write_text(root / "deep" / "file", text * 5000)


def write_rows(root: Path, text: str) -> None:
    write_jsonl(root / "deep" / "file", ({"text": text * 1000} for _ in range(5)))


def write_tree(root: Path, text: str) -> None:
    with atomic_folder(root / "deep" / "folder", replace=True) as unfinished:
        (unfinished / "in").mkdir()
        (unfinished / "in" / "one").write_bytes(text.encode())
        write_json(unfinished / "two", text)


def write_step(root: Path, text: str) -> None:
    run = RunFolder(root)
    keep_previous(run.last, run.previous)
    write_checkpoint(run.last, {**whole(), "global_step": len(text)})


def write_sharded_step(root: Path, text: str) -> None:
    from faithkit.training.sharded_checkpoints import write_sharded

    with alone():
        run = RunFolder(root)
        write_sharded(run.last, {**whole(), "global_step": len(text)}, previous=run.previous)


def is_left(path: Path) -> bool:
    """Tells whether a file or folder, or one around it, is what a writer left that could not end in order."""
    return any(part.endswith((".tmp", ".old")) for part in path.parts)


def tree(root: Path) -> dict[str, bytes]:
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not is_left(path)]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def last_step(root: Path) -> int | None:
    point = find_resume_point(RunFolder(root))
    return None if point is None else point.step


WRITERS: dict[str, tuple[Callable[[Path, str], None], Callable[[Path], Any]]] = {
    "file": (write_file, tree),
    "rows": (write_rows, tree),
    "folder": (write_tree, tree),
    "checkpoint": (write_step, last_step),
    "sharded checkpoint": (write_sharded_step, last_step),
}


def written(write: Callable[[Path, str], None], root: Path, *texts: str) -> Path:
    root.mkdir()
    for text in texts:
        write(root, text)
    return root


def open_files() -> list[str]:
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them, and what other threads close
            found.append(str(handle.readlink()))
    return found


def refuse(injector: Injector, write: Callable[[Path, str], None], root: Path) -> bool:
    """Writes the new content; tells whether that succeeded."""
    try:
        write(root, "new, new")
        return True
    except UserError as error:
        assert error.place and error.hint, error
        return False


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("old", [(), ("old",), ("older", "old")])
@pytest.mark.parametrize("name", WRITERS)
def test_any_call_may_be_refused(name: str, old: tuple[str, ...], lasting: bool, tmp_path: Path) -> None:
    write, read = WRITERS[name]
    before = read(written(write, tmp_path / "old", *old))
    after = read(written(write, tmp_path / "new", *old, "new, new"))
    with injecting(0) as counting:
        write(written(write, tmp_path / "count", *old), "new, new")
    assert counting.count > 5
    for number in range(1, counting.count + 1):
        kinds = KINDS[:-1] if lasting else KINDS  # a call that is interrupted is made again, and for ever
        kind = kinds[number % len(kinds)]
        root = written(write, tmp_path / f"{number}", *old)
        with injecting(number, kind, lasting=lasting) as injector:
            done = refuse(injector, write, root)
        at = f"call {number}, {injector.refused}, {errno.errorcode[kind]}"
        left = [str(path) for path in root.rglob("*") if is_left(path)]
        assert not left or injector.refused in DELETING, f"{at}: {left}"
        found = read(root)
        # A name may be the new one already when the disk refuses to make that last.
        assert found == after if done else found in (before, after), at
        write(root, "new, new")
        assert read(root) == after and not any(map(is_left, root.rglob("*"))), at
    assert not [path for path in open_files() if path.startswith(str(tmp_path))]


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_may_take_only_a_part(name: str, tmp_path: Path) -> None:
    write, read = WRITERS[name]
    after = read(written(write, tmp_path / "new", "new, new"))
    root = written(write, tmp_path / "root")
    with injecting(0, short=True):
        write(root, "new, new")
    assert read(root) == after


ROWS = [{"id": number, "text": "word " * 500} for number in range(3)]


@pytest.mark.parametrize("short", [False, True])
def test_added_rows(short: bool, tmp_path: Path) -> None:
    def add(path: Path) -> list[bool]:
        """Adds the rows; tells which of them arrived."""
        arrived = []
        with JsonlAppender(path) as file:
            for row in ROWS:
                try:
                    file.append(row)
                    arrived.append(True)
                except UserError as error:
                    assert error.place and error.hint
                    arrived.append(False)
        return arrived

    with injecting(0, short=short) as counting:
        assert all(add(tmp_path / "count" / "rows.jsonl"))
    for number in range(1, counting.count + 1):
        for kind in KINDS:
            path = tmp_path / f"{number}-{kind}" / "rows.jsonl"
            arrived: list[bool] = []
            with injecting(number, kind, short=short) as injector:
                try:
                    arrived = add(path)
                except UserError as error:
                    assert error.place and error.hint
            expected = [row for row, there in zip(ROWS, arrived, strict=False) if there]
            with JsonlAppender(path) as file:
                found = list(read_jsonl(path))
                if arrived:
                    assert found == expected, (number, injector.refused)
                file.append({"id": "next"})
            assert list(read_jsonl(path)) == [*found, {"id": "next"}]
