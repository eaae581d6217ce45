"""A power cut at any moment of a writer leaves the old content or the new: every state that may be left is built."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from faithkit.files.atomic import atomic_folder, write_text
from faithkit.files.jsonl import JsonlAppender, read_jsonl
from faithkit.files.model_folder import Sidecar, write_folder
from faithkit.files.run_folder import RunFolder
from faithkit.training.checkpoint_io import keep_previous, read_checkpoint, write_checkpoint
from faithkit.training.checkpoints import find_resume_point
from tests.faults.power_cut import Recorder, lay_out, recording
from tests.process_groups import alone

Content = Any


def contents_after(recorder: Recorder, place: Path, read: Callable[[Path], Content]) -> tuple[list, list]:
    """Reads each state: those during the writing, and those after it had returned."""
    during, after = [], []
    for number, (state, is_after) in enumerate(recorder.states):
        folder = lay_out(state, place / f"{number}")
        (after if is_after else during).append(read(folder))
        shutil.rmtree(folder)
    return during, after


def tree(folder: Path) -> Content:
    """All files of a folder with their content, without what unfinished writers left; None where there is none."""
    if not folder.exists():
        return None
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def states(tmp_path: Path) -> Path:
    (tmp_path / "states").mkdir()
    return tmp_path / "states"


@pytest.mark.parametrize("old", [None, "old " * 3000])
def test_a_file(old: str | None, root: Path, states: Path) -> None:
    if old is not None:
        (root / "deep" / "er").mkdir(parents=True)
        (root / "deep" / "er" / "file").write_text(old)
    new = "new " * 5000

    def read(folder: Path) -> str | None:
        file = folder / "deep" / "er" / "file"
        found = file.read_text() if file.exists() else None
        write_text(file, "again")  # and whatever was left does not trouble the next writer
        assert [path.name for path in file.parent.iterdir()] == ["file"] and file.read_text() == "again"
        return found

    with recording(root) as recorder:
        write_text(root / "deep" / "er" / "file", new)
    during, after = contents_after(recorder, states, read)
    assert set(during) == {old, new} and set(after) == {new}
    assert len(during) > 5


@pytest.mark.parametrize("replace", [False, True])
def test_a_folder(replace: bool, root: Path, states: Path) -> None:
    def fill(folder: Path, text: str) -> None:
        (folder / "deep").mkdir()
        (folder / "deep" / "one").write_text(text * 3000)
        (folder / "two").write_text(text)

    old = None
    if replace:
        (root / "folder").mkdir()
        fill(root / "folder", "old")
        old = tree(root / "folder")
    with recording(root) as recorder, atomic_folder(root / "folder", replace=replace) as unfinished:
        fill(unfinished, "new")
    during, after = contents_after(recorder, states, lambda folder: tree(folder / "folder"))
    new = tree(root / "folder")
    assert all(found in (None, old, new) for found in during) and all(found == new for found in after)
    assert new in during and (old in during)


def test_the_folder_of_a_model(root: Path, states: Path, tiny_bert: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(tiny_bert), AutoTokenizer.from_pretrained(tiny_bert)
    sidecar = Sidecar(kind="critic", labels=[], layout={}, thresholds={}, origin={})
    write_folder(root / "hf", model, tokenizer, sidecar)
    old = tree(root / "hf")
    with torch.no_grad():
        next(iter(model.parameters())).add_(1)
    with recording(root) as recorder:
        write_folder(root / "hf", model, tokenizer, sidecar)
    new = tree(root / "hf")
    during, after = contents_after(recorder, states, lambda folder: tree(folder / "hf"))
    assert old != new and {"model.safetensors", "tokenizer.json", "faithkit.json"} <= new.keys()
    assert all(found in (None, old, new) for found in during) and all(found == new for found in after)


def checkpoint(step: int) -> dict[str, Any]:
    plain = {"epoch": 0, "loops": {}, "callbacks": {}, "optimizer_states": [], "lr_schedulers": []}
    return {
        **plain,
        "global_step": step,
        "pytorch-lightning_version": "2.6",
        "state_dict": {"weight": torch.full((50, 50), float(step))},
    }


def test_checkpoints(root: Path, states: Path) -> None:
    run = RunFolder(root)
    run.checkpoints.mkdir()

    def save(step: int) -> None:
        write_checkpoint(run.best, checkpoint(step))
        keep_previous(run.last, run.previous)
        write_checkpoint(run.last, checkpoint(step))

    def read(folder: Path) -> tuple[int, int, str]:
        point = find_resume_point(RunFolder(folder))
        assert point is not None
        stored = read_checkpoint(point.path)
        best = read_checkpoint(RunFolder(folder).best)
        assert all(bool((one["state_dict"]["weight"] == one["global_step"]).all()) for one in (stored, best))
        return point.step, best["global_step"], point.path.name

    save(1)
    save(2)
    with recording(root) as recorder:
        save(3)
    during, after = contents_after(recorder, states, read)
    assert set(during) == {(2, 2, "last.ckpt"), (2, 3, "last.ckpt"), (3, 3, "last.ckpt")}
    assert set(after) == {(3, 3, "last.ckpt")}


def test_sharded_checkpoints(root: Path, states: Path) -> None:
    from faithkit.training.sharded_checkpoints import write_sharded

    run = RunFolder(root)
    run.checkpoints.mkdir()

    def read(folder: Path) -> tuple[int, str]:
        point = find_resume_point(RunFolder(folder))
        assert point is not None
        stored = read_checkpoint(point.path)
        assert bool((stored["state_dict"]["weight"] == stored["global_step"]).all())
        return point.step, point.path.name

    with alone():
        for step in (1, 2):
            write_sharded(run.last, checkpoint(step), previous=run.previous)
        with recording(root) as recorder:
            write_sharded(run.last, checkpoint(3), previous=run.previous)
    during, after = contents_after(recorder, states, read)
    assert set(during) == {(2, "last.ckpt"), (2, "previous.ckpt"), (3, "last.ckpt")}
    assert set(after) == {(3, "last.ckpt")}


def test_added_rows(root: Path, states: Path) -> None:
    rows = [{"id": number, "text": "word " * 2000} for number in range(4)]
    path = root / "new" / "rows.jsonl"
    num_synced = []
    with recording(root) as recorder, JsonlAppender(path) as file:
        for number, row in enumerate(rows):
            file.append(row)
            if number % 2:
                file.sync()
                num_synced.append((number + 1, len(recorder.states)))

    found = []

    def read(folder: Path) -> int:
        with JsonlAppender(folder / "new" / "rows.jsonl") as file:
            kept = list(read_jsonl(file.path))
            assert kept == rows[: len(kept)]
            for row in rows[len(kept) :]:
                file.append(row)
        assert list(read_jsonl(folder / "new" / "rows.jsonl")) == rows
        found.append(len(kept))
        return len(kept)

    during, after = contents_after(recorder, states, read)
    assert set(during) == {0, 1, 2, 3, 4} and set(after) == {4}
    for count, begin in num_synced:
        assert min(found[begin:]) >= count, "rows that were synced are never lost"


def test_the_harness_notices_a_writer_that_does_not_sync(root: Path, states: Path) -> None:
    (root / "file").write_text("old")
    with recording(root) as recorder:
        (root / "beside").write_text("new")
        (root / "beside").rename(root / "file")
    during, _ = contents_after(recorder, states, lambda folder: (folder / "file").read_text())
    assert "" in during and "\0\0\0" in during, json.dumps(during)
