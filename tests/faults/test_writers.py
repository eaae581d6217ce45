"""A power cut, or a refused call, at any moment of a writer leaves the old content or the new one.

Each state of the disk that a power cut may leave is built, and each call of each writer is refused once.
"""

import contextlib
import errno
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder, write_json, write_text
from faithkit.files.jsonl import JsonlAppender, read_jsonl, write_jsonl
from faithkit.files.model_folder import Sidecar, write_folder
from faithkit.files.run_folder import RunFolder
from faithkit.training.checkpoint_io import keep_previous, write_checkpoint
from faithkit.training.checkpoints import find_resume_point, read_checkpoint
from tests.faults.checkpoint_files import example_checkpoint, is_same
from tests.faults.interception import ERRORS, Fault, Recorder, injected, recorded, write_state
from tests.process_groups import alone

DELETING = ("unlink", "rmdir", "open to read")  # where deleting is refused, something is left for the next writer


def write_file(root: Path, step: int) -> None:
    write_text(root / "deep" / "file", f"{step} " * 3000)


def write_rows(root: Path, step: int) -> None:
    write_jsonl(root / "deep" / "file", ({"text": f"{step} " * 1000} for _ in range(5)))


def write_tree(root: Path, step: int) -> None:
    with atomic_folder(root / "deep" / "folder", replace=True) as unfinished:
        (unfinished / "in").mkdir()
        (unfinished / "in" / "one").write_bytes(f"{step} ".encode() * 3000)
        write_json(unfinished / "two", step)


def write_step(root: Path, step: int) -> None:
    run = RunFolder(root)
    keep_previous(run.last, run.previous)
    write_checkpoint(run.last, example_checkpoint(step))


def write_sharded_step(root: Path, step: int) -> None:
    from faithkit.training.sharded_checkpoints import write_sharded

    with alone():
        run = RunFolder(root)
        write_sharded(run.last, example_checkpoint(step), previous=run.previous)


def is_left_over(path: Path) -> bool:
    """Recognises what a writer left that could not end in order."""
    return any(part.endswith((".tmp", ".old")) for part in path.parts)


def read_tree(root: Path) -> dict[str, bytes]:
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not is_left_over(path.relative_to(root))]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def read_step(root: Path) -> int | None:
    point = find_resume_point(RunFolder(root))
    if point is not None:
        assert is_same(read_checkpoint(point.path), example_checkpoint(point.step))
    return None if point is None else point.step


@dataclass(frozen=True)
class Writer:
    """A writer of steps, and how what it wrote is read; `has_gap` where a replaced folder may be absent."""

    write: Callable[[Path, int], None]
    read: Callable[[Path], Any]
    has_gap: bool = False

    def fill(self, root: Path, *steps: int) -> Path:
        root.mkdir()
        for step in steps:
            self.write(root, step)
        return root


WRITERS = {
    "file": Writer(write_file, read_tree),
    "rows": Writer(write_rows, read_tree),
    "folder": Writer(write_tree, read_tree, has_gap=True),
    "checkpoint": Writer(write_step, read_step),
    "sharded checkpoint": Writer(write_sharded_step, read_step),
}


def states_read(recorder: Recorder, folder: Path, read: Callable[[Path], Any]) -> tuple[list[Any], list[Any]]:
    """Reads each state that may be left: those of a cut during the writing, and those of one after it."""
    during: list[Any] = []
    after: list[Any] = []
    for number, (state, is_after) in enumerate(recorder.states):
        place = write_state(state, folder / f"state-{number}")
        (after if is_after else during).append(read(place))
        shutil.rmtree(place)
    return during, after


@pytest.mark.parametrize("old", [(), (1, 2)])
@pytest.mark.parametrize("name", WRITERS)
def test_a_power_cut_leaves_the_old_content_or_the_new(name: str, old: tuple[int, ...], tmp_path: Path) -> None:
    writer = WRITERS[name]
    root = writer.fill(tmp_path / "root", *old)
    before, missing = writer.read(root), writer.read(writer.fill(tmp_path / "empty"))
    with recorded(root) as recorder:
        writer.write(root, 3)
    after = writer.read(root)

    def read(folder: Path) -> Any:
        found = writer.read(folder)
        writer.write(folder, 3)  # what was left does not disturb the next writer
        assert writer.read(folder) == after
        return found

    during, ended = states_read(recorder, tmp_path, read)
    allowed = [before, after, *([missing] if writer.has_gap else [])]
    assert len(during) > 5 and all(found in allowed for found in during)
    assert before in during and after in during and all(found == after for found in ended)


def test_a_power_cut_leaves_a_models_folder_complete(tmp_path: Path, tiny_bert: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    root = tmp_path / "root"
    model, tokenizer = AutoModel.from_pretrained(tiny_bert), AutoTokenizer.from_pretrained(tiny_bert)
    sidecar = Sidecar(kind="critic", labels=[], layout={}, thresholds={}, origin={})
    write_folder(root / "hf", model, tokenizer, sidecar)
    old = read_tree(root)
    with torch.no_grad():
        next(iter(model.parameters())).add_(1)
    with recorded(root) as recorder:
        write_folder(root / "hf", model, tokenizer, sidecar)
    new = read_tree(root)
    during, after = states_read(recorder, tmp_path, read_tree)
    assert old != new and {f"hf/{name}" for name in ("model.safetensors", "faithkit.json")} <= new.keys()
    assert all(found in ({}, old, new) for found in during) and all(found == new for found in after)


def test_the_recorder_notices_a_writer_that_does_not_sync(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("old")
    with recorded(root) as recorder:
        (root / "new").write_text("new")
        (root / "new").rename(root / "file")
    during, _ = states_read(recorder, tmp_path, lambda folder: (folder / "file").read_text())
    assert "" in during and "\0\0\0" in during


def open_files() -> list[str]:
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them, and what other threads close
            found.append(str(handle.readlink()))
    return found


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("old", [(), (1, 2)])
@pytest.mark.parametrize("name", WRITERS)
def test_any_call_may_be_refused(
    name: str, old: tuple[int, ...], is_lasting: bool, stride: int, tmp_path: Path
) -> None:
    """The fast tests refuse every fourth call, from another one on in each case; the slow ones refuse all."""
    writer = WRITERS[name]
    before = writer.read(writer.fill(tmp_path / "old", *old))
    after = writer.read(writer.fill(tmp_path / "new", *old, 3))
    root = writer.fill(tmp_path / "count", *old)
    with injected(Fault(0)) as counting:
        writer.write(root, 3)
    assert counting.count > 5
    for number in range(1 + (len(old) + is_lasting) % stride, counting.count + 1, stride):
        kinds = ERRORS[:-1] if is_lasting else ERRORS  # an interrupted call is repeated, without end
        kind = kinds[number // stride % len(kinds)]
        root = writer.fill(tmp_path / f"{number}", *old)
        is_done = False
        with injected(Fault(number, kind, is_lasting)) as fault:
            try:
                writer.write(root, 3)
                is_done = True
            except UserError as error:
                assert error.place and error.hint, error
        at = f"call {number}, {fault.refused}, {errno.errorcode[kind]}"
        left = [path for path in root.rglob("*") if is_left_over(path.relative_to(root))]
        assert not left or fault.refused in DELETING, f"{at}: {left}"
        found = writer.read(root)
        # A name may be the new one already when the disk refuses to make that last.
        assert found == after if is_done else found in (before, after), at
        writer.write(root, 3)
        assert writer.read(root) == after, at
        assert not [path for path in root.rglob("*") if is_left_over(path.relative_to(root))], at
        shutil.rmtree(root)
    assert not [path for path in open_files() if path.startswith(str(tmp_path))]


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_may_take_only_a_part(name: str, tmp_path: Path) -> None:
    writer = WRITERS[name]
    root = writer.fill(tmp_path / "root")
    with injected(Fault(0, is_short=True)):
        writer.write(root, 3)
    assert writer.read(root) == writer.read(writer.fill(tmp_path / "new", 3))


ROWS = [{"id": number, "text": "word " * 1000} for number in range(4)]


def test_a_power_cut_never_loses_rows_that_were_synced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    synced, counts = [], []
    with recorded(root) as recorder, JsonlAppender(root / "rows.jsonl") as file:
        for number, row in enumerate(ROWS, 1):
            file.append(row)
            if number % 2 == 0:
                file.sync()
                synced.append((number, len(recorder.states)))

    def read(folder: Path) -> int:
        with JsonlAppender(folder / "rows.jsonl") as file:
            kept = list(read_jsonl(file.path))
            assert kept == ROWS[: len(kept)]
            for row in ROWS[len(kept) :]:
                file.append(row)
        assert list(read_jsonl(folder / "rows.jsonl")) == ROWS
        counts.append(len(kept))
        return len(kept)

    during, after = states_read(recorder, tmp_path, read)
    assert set(during) == {0, 1, 2, 3, 4} and set(after) == {4}
    assert all(min(counts[begin:]) >= count for count, begin in synced)


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize("kind", ERRORS, ids=errno.errorcode.get)
def test_appended_rows_are_complete_or_absent(kind: int, is_short: bool, tmp_path: Path) -> None:
    def append(path: Path) -> list[bool]:
        """Appends the rows; gives which of them arrived."""
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

    with injected(Fault(0, is_short=is_short)) as counting:
        assert all(append(tmp_path / "count" / "rows.jsonl"))
    for number in range(1, counting.count + 1):
        path = tmp_path / f"{number}" / "rows.jsonl"
        arrived: list[bool] = []
        with injected(Fault(number, kind, is_short=is_short)) as fault, contextlib.suppress(UserError):
            arrived = append(path)
        with JsonlAppender(path) as file:
            found = list(read_jsonl(path))
            if arrived:
                assert found == [row for row, there in zip(ROWS, arrived, strict=True) if there], fault
            file.append({"id": "next"})
        assert list(read_jsonl(path)) == [*found, {"id": "next"}]
