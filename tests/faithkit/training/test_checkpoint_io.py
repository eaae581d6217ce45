"""Checkpoint files: whole or refused, never executed, with no copy elsewhere."""

import logging
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.training.checkpoint_io import LINE_LENGTH, keep_previous, write_checkpoint
from faithkit.training.checkpoints import best_weights, check_fits, find_resume_point, read_checkpoint
from tests.faults.checkpoint_files import PLAIN, checkpoint_bytes, example_checkpoint, is_same


class Bomb:
    """Makes a file wherever it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("each", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_is_noticed_or_harmless(each: int, tmp_path: Path) -> None:
    data, rng, refused = checkpoint_bytes(), random.Random(0), 0
    for place in range(0, len(data), 1 if each > 1 else 11):
        for bit in rng.sample(range(8), each):
            (tmp_path / "file").write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
            try:
                assert is_same(read_checkpoint(tmp_path / "file"), example_checkpoint()), (place, bit)
            except UserError:
                refused += 1
    assert refused


@pytest.mark.parametrize("length", [0, 1, 100, 1000, -1, -LINE_LENGTH, -LINE_LENGTH - 1])
def test_a_file_cut_short_is_refused_with_place_and_hint(length: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(checkpoint_bytes()[:length])
    with pytest.raises(UserError, match="cut short or damaged") as caught:
        read_checkpoint(tmp_path / "file")
    assert caught.value.place == str(tmp_path / "file") and caught.value.hint


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    bomb = Bomb(tmp_path / "executed")
    write_checkpoint(tmp_path / "ours", {**example_checkpoint(), "more": bomb})
    torch.save({**example_checkpoint(), "more": bomb}, tmp_path / "torch")
    torch.save({**example_checkpoint(), "more": bomb}, tmp_path / "legacy", _use_new_zipfile_serialization=False)
    (tmp_path / "pickle").write_bytes(pickle.dumps(bomb))
    for name in ("ours", "torch", "legacy", "pickle"):
        with pytest.raises(UserError):
            read_checkpoint(tmp_path / name)
    assert not bomb.path.exists()


def test_other_programs_read_the_file_and_one_of_theirs_without_a_checksum_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_checkpoint(file, example_checkpoint())
    for options in ({}, {"mmap": True}):
        assert is_same(torch.load(file, weights_only=True, **options), example_checkpoint())
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
    torch.save(example_checkpoint(), file)
    with pytest.raises(UserError, match="its checksum is missing"):
        read_checkpoint(file)


@pytest.mark.parametrize("missing", [*PLAIN, "state_dict"])
def test_missing_parts_are_named(missing: str, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    write_checkpoint(run.last, {name: value for name, value in example_checkpoint().items() if name != missing})
    with pytest.raises(UserError, match="no weights" if missing == "state_dict" else missing):
        find_resume_point(run)


def save(run: RunFolder, step: int) -> None:
    keep_previous(run.last, run.previous)
    write_checkpoint(run.last, {**example_checkpoint(), "global_step": step})


def test_a_damaged_last_checkpoint_gives_way_to_the_one_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = RunFolder(tmp_path)
    assert find_resume_point(run) is None
    for step in (1, 2, 3):
        save(run, step)
    assert find_resume_point(run) == (run.last, 3, None)
    run.last.write_bytes(run.last.read_bytes()[:300])
    with caplog.at_level(logging.INFO, "faithkit"):
        logging.getLogger("faithkit").propagate = True
        point = find_resume_point(run)
        assert point is not None and point[:2] == (run.previous, 2)
    assert "last.ckpt: the checkpoint is cut short or damaged" in caplog.text and "step 2" in caplog.text
    run.last.unlink()
    assert find_resume_point(run) == (run.previous, 2, "it is missing")
    run.previous.write_bytes(b"")
    with pytest.raises(UserError, match="damaged"):
        find_resume_point(run)


def test_a_damaged_best_checkpoint_stops_a_resume_at_once(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    save(run, 1)
    run.best.write_bytes(b"")
    for use in (find_resume_point, best_weights):
        with pytest.raises(UserError, match="damaged") as caught:
            use(run)
        assert caught.value.place == str(run.best) and caught.value.hint


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "file", {**PLAIN, "state_dict": {"weight": torch.ones(3, 2), "bias": torch.ones(3)}})
    check_fits(tmp_path / "file", torch.nn.Linear(2, 3))
    for other in (torch.nn.Linear(3, 3), torch.nn.Linear(2, 3, bias=False), torch.nn.BatchNorm1d(3)):
        with pytest.raises(UserError, match="not the weights of this model"):
            check_fits(tmp_path / "file", other)


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt()])
def test_an_end_within_the_writing_leaves_the_old_file(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "file", example_checkpoint())
    before = (tmp_path / "file").read_bytes()

    class Digest:
        def update(self, data: Any) -> None:
            raise error

    monkeypatch.setattr("faithkit.training.checkpoint_io.hashlib.sha256", Digest)
    with pytest.raises(UserError if isinstance(error, OSError) else KeyboardInterrupt):
        write_checkpoint(tmp_path / "file", {**example_checkpoint(), "global_step": 8})
    assert (tmp_path / "file").read_bytes() == before and list(tmp_path.iterdir()) == [tmp_path / "file"]
