"""Checkpoints, whole or in shards: read by any number of processes or refused by file name, never executed."""

import logging
import os
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils._pytree import tree_map_only

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.training.checkpoint_io import LINE_LENGTH, DamagedCheckpoint, keep_previous, write_checkpoint
from faithkit.training.checkpoints import best_weights, check_fits, drop_checkpoints, find_resume_point, read_checkpoint
from faithkit.training.sharded_checkpoints import INDEX, LAYOUT, read_into, write_sharded
from faithkit.training.trainer import DurableCheckpoints
from tests.faults.checkpoint_files import PLAIN, checkpoint_bytes, example_checkpoint, is_same
from tests.process_groups import alone, in_processes


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
    content = {**example_checkpoint(), "more": bomb}
    write_checkpoint(tmp_path / "ours", content)
    torch.save(content, tmp_path / "torch")
    torch.save(content, tmp_path / "legacy", _use_new_zipfile_serialization=False)
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


SHAPES = ((7, 3), (2,), (1, 4), ())
FIRST = "shard-00001-model-00001-of-00001.safetensors"


@pytest.fixture
def group() -> Iterator[None]:
    with alone():
        yield


def whole(step: int = 1) -> dict[str, Any]:
    """The checkpoint that one process would write: seven rows over three processes leave some with less, or nothing."""
    weights = {f"w{n}": torch.arange(float(torch.Size(s).numel())).reshape(s) + step for n, s in enumerate(SHAPES)}
    weights["tokens"] = torch.arange(5)
    moments = {name: {"exp_avg": value / 3, "step": torch.tensor(step / 1)} for name, value in weights.items()}
    optimizer = {"state": moments, "param_groups": [{"lr": 0.1, "params": [*weights]}]}
    return {**PLAIN, "global_step": step, "state_dict": weights, "optimizer_states": [optimizer]}


def sharded(checkpoint: dict[str, Any]) -> Any:
    """The same with every tensor of rows over all processes."""

    def shard(value: torch.Tensor) -> torch.Tensor:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        return distribute_tensor(value, mesh, [Shard(0)]) if value.ndim else value

    return tree_map_only(torch.Tensor, shard, checkpoint)


def save_shards(run: RunFolder, step: int) -> None:
    write_sharded(run.last, sharded(whole(step)), previous=run.previous)


def write_here(path: str) -> None:
    write_sharded(Path(path), sharded(whole()), previous=None)


def read_here(path: str) -> None:
    checkpoint = tree_map_only(torch.Tensor, lambda value: torch.full_like(value, -1), sharded(whole()))
    read_into(Path(path), checkpoint)
    for found, wanted in zip(_tensors(checkpoint), _tensors(whole()), strict=True):
        assert torch.equal(found.full_tensor() if isinstance(found, DTensor) else found, wanted)


def _tensors(checkpoint: Mapping[str, Any]) -> list[Any]:
    moments = checkpoint["optimizer_states"][0]["state"].values()
    return [*checkpoint["state_dict"].values(), *(value for each in moments for value in each.values())]


@pytest.mark.slow
def test_three_processes_write_what_one_two_and_four_read(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    in_processes(3, write_here, str(path))
    names = {file.name for file in path.iterdir()}
    assert names == {INDEX, *(FIRST.replace("shard-00001", f"shard-0000{number}") for number in (1, 2, 3))}
    assert is_same(read_checkpoint(path), whole())
    with alone():
        read_here(str(path))
    for number in (2, 4):
        in_processes(number, read_here, str(path))


def test_the_shapes_alone_are_read_without_the_weights(group: None, tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def state_dict(self, *_: Any, **__: Any) -> Any:
            return whole()["state_dict"]

    save_shards(RunFolder(tmp_path), 3)
    found = read_checkpoint(RunFolder(tmp_path).last, map_location="meta")
    assert all(value.is_meta for value in _tensors(found)) and found["global_step"] == 3
    check_fits(RunFolder(tmp_path).last, Module())
    with pytest.raises(UserError, match="not the weights of this model"):
        check_fits(RunFolder(tmp_path).last, torch.nn.Linear(2, 3))
    assert RunFolder(tmp_path).has_work()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-300]),
    "changed": lambda path: path.write_bytes(path.read_bytes().replace(b"e", b"f", 1)),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "from another checkpoint": lambda path: shutil.copy(path.parent.with_name("previous.ckpt") / path.name, path),
}


@pytest.mark.parametrize(
    ("damage", "name"),
    [(damage, INDEX) for damage in DAMAGES] + [("cut", FIRST), ("changed", FIRST), ("missing", FIRST)],
)
def test_a_damaged_file_is_named_and_the_previous_checkpoint_is_used(
    damage: str, name: str, group: None, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path)
    for step in (1, 2, 3):
        save_shards(run, step)
    assert find_resume_point(run) == (run.last, 3, None)
    assert {path.name for path in run.checkpoints.iterdir()} == {"last.ckpt", "previous.ckpt"}
    DAMAGES[damage](run.last / name)
    point = find_resume_point(run)
    assert point is not None and point[:2] == (run.previous, 2) and point.problem
    assert name in point.problem or damage == "from another checkpoint"  # then the other files do not fit the index
    DAMAGES["cut"](run.previous / name)
    with pytest.raises(UserError, match="damaged") as caught:
        find_resume_point(run)
    assert caught.value.place == str(run.last) and caught.value.hint


def test_nothing_in_a_folder_is_executed(group: None, tmp_path: Path) -> None:
    bomb = Bomb(tmp_path / "executed")
    run = RunFolder(tmp_path / "run")
    save_shards(run, 1)
    stored = dict(torch.load(run.last / INDEX, weights_only=True))
    write_checkpoint(run.last / INDEX, {**stored, "more": bomb})
    with pytest.raises(UserError, match="damaged"):
        read_checkpoint(run.last)
    assert not bomb.path.exists()


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ((LAYOUT,), None),
        *(((LAYOUT, "checksums"), value) for value in ({}, {"../x.safetensors": ""})),
        ((LAYOUT, "tensors", "state_dict w0"), None),
        ((LAYOUT, "tensors", "state_dict w0"), (("state_dict", "w0"), (8, 3), torch.float32)),
        ((LAYOUT, "tensors", "state_dict w0"), (("state_dict", "w0"), (7, 3), torch.float64)),
        ((LAYOUT, "tensors", "state_dict w0"), (("nowhere", "w0"), (7, 3), torch.float32)),
    ],
)
def test_an_index_that_does_not_describe_its_files_is_refused(
    keys: tuple[str, ...], value: Any, group: None, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path)
    save_shards(run, 1)
    stored: Any = dict(torch.load(run.last / INDEX, weights_only=True))
    block = stored
    for key in keys[:-1]:
        block = block[key]
    block[keys[-1]] = value
    write_checkpoint(run.last / INDEX, stored)
    with pytest.raises(UserError, match="damaged"):
        read_checkpoint(run.last)


def test_files_and_folders_give_way_to_each_other(group: None, tmp_path: Path) -> None:
    run, files = RunFolder(tmp_path), DurableCheckpoints()
    files.save_checkpoint(whole(1), run.last)
    save_shards(run, 2)
    assert find_resume_point(run) == (run.last, 2, None) and is_same(read_checkpoint(run.previous), whole(1))
    files.save_checkpoint(whole(3), run.last, run.previous)
    assert find_resume_point(run) == (run.last, 3, None) and is_same(read_checkpoint(run.previous), whole(2))
    save_shards(run, 4)
    (run.last / INDEX).unlink()
    files.save_checkpoint(whole(5), run.last)  # after resuming from the previous checkpoint, which stays
    assert find_resume_point(run) == (run.last, 5, None) and is_same(read_checkpoint(run.previous), whole(3))
    run.last.write_bytes(b"")
    write_sharded(run.last, sharded(whole(6)), previous=None)
    assert find_resume_point(run) == (run.last, 6, None) and is_same(read_checkpoint(run.previous), whole(3))
    drop_checkpoints(run, "none")
    assert not list(run.checkpoints.iterdir())


def one_cannot_write(path: str) -> None:
    """The second of two processes cannot write its shards."""
    run = RunFolder(path)
    save_shards(run, 1)
    if dist.get_rank() == 1:

        def refuse(*_: Any) -> None:
            raise DamagedCheckpoint(run.last, "no space left")  # an error with its own pickling

        pytest.MonkeyPatch().setattr("torch.distributed.checkpoint.HuggingFaceStorageWriter.write_data", refuse)
    with pytest.raises(UserError, match="no space left"):
        save_shards(run, 2)
    dist.barrier()
    point = find_resume_point(run)
    assert point == (run.last, 1, None) and [p.name for p in run.checkpoints.iterdir()] == ["last.ckpt"]


@pytest.mark.slow
def test_all_processes_raise_the_error_of_one_and_the_old_folder_stays(tmp_path: Path) -> None:
    in_processes(2, one_cannot_write, str(tmp_path))


def test_tied_weights_are_written_and_read(group: None, tmp_path: Path) -> None:
    checkpoint = sharded(whole())
    checkpoint["state_dict"]["tied"] = checkpoint["state_dict"]["w0"]
    write_sharded(tmp_path / "last.ckpt", checkpoint, previous=None)
    assert torch.equal(read_checkpoint(tmp_path / "last.ckpt")["state_dict"]["tied"], whole()["state_dict"]["w0"])
