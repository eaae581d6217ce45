"""Writes a checkpoint in parts, and reads one into sharded tensors; all processes do it together.

torch.distributed.checkpoint plans who writes and who reads which piece, at any two numbers of processes. The files are
ours in place of its own: those hold pickles, which run code where they are read, and no checksums.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder, delete
from faithkit.training.checkpoint_io import read_checksum, write_checkpoint
from faithkit.training.checkpoint_parts import (
    INDEX,
    Divided,
    Index,
    Parts,
    Piece,
    Place,
    divide,
    find,
    name_of,
    part_path,
    piece_name,
    read_index,
)

T = TypeVar("T")


def write_parts(path: Path, checkpoint: Mapping[str, Any], *, previous: Path | None) -> None:
    """Writes a checkpoint as a folder that takes its name in one step, when all parts are on the disk.

    Every process calls it, with its own shards. No process holds a whole tensor.

    Args:
        previous: The name that the checkpoint of before gets, then; None leaves it none.

    Raises:
        UserError: A process cannot write its part; every process raises it.
    """
    plain, tensors = divide(checkpoint)
    places = {name_of(place): place for place in tensors}
    with ExitStack() as stack:
        folder = _first_alone(lambda: stack.enter_context(_new_folder(path, previous)))
        with _first_failure():
            dcp.save(
                {name_of(place): value for place, value in tensors.items()},
                storage_writer=_Writer(folder, plain, places),
                planner=dcp.DefaultSavePlanner(flatten_state_dict=False),
            )
        _first_alone(stack.close)  # now the folder takes its name


def read_into(folder: Path, checkpoint: Any) -> None:
    """Fills the tensors of a checkpoint, sharded or not, from the parts of a folder; each process reads what it needs.

    Args:
        checkpoint: Has a tensor in each place where that of the folder has one.

    Raises:
        DamagedCheckpoint: A part is damaged or missing.
    """
    index = read_index(folder)
    with _first_failure():
        dcp.load(
            {name: find(checkpoint, tensor.place) for name, tensor in index.tensors.items()},
            storage_reader=_Reader(folder, index),
            planner=dcp.DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
        )


@contextmanager
def _new_folder(path: Path, previous: Path | None) -> Iterator[Path]:
    if previous is not None and path.exists():
        delete(previous)  # now, so that no more than two checkpoints are on the disk
    with atomic_folder(path, replace=True, kept=previous) as folder:
        yield folder


def _first_alone(work: Callable[[], T]) -> T:
    """Lets the first process work; every process gets what that gives, or raises the user's mistake that it raises."""
    found: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            found = [work()]
        except UserError as error:
            found = [error]
    dist.broadcast_object_list(found)
    if isinstance(found[0], UserError):
        raise found[0]
    return found[0]


@contextmanager
def _first_failure() -> Iterator[None]:
    """Raises, in every process, what the first one to fail has raised."""
    try:
        yield
    except dcp.CheckpointException as error:
        cause, _ = error.failures[min(error.failures)]
        raise cause from error


class _Writer(StorageWriter):
    """Writes the pieces that fall to this process into one file; the first process writes the index behind them."""

    def __init__(self, folder: Path, plain: dict[str, Any], places: Mapping[str, Place]):
        self.folder, self.plain, self.places = folder, plain, places

    def reset(self, checkpoint_id: Any = None) -> None:
        """Does nothing: a writer writes once."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the folder is there."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        number, results = dist.get_rank(), []
        if not self.folder.is_dir():
            problem = f"process {number} does not see the folder that the first process writes to"
            raise UserError(problem, place=str(self.folder), hint="run_dir= on a disk that all nodes see")
        if plan.items:
            found = {_name(item.index): planner.resolve_data(item) for item in plan.items}
            pieces = {name: _alone(value) for name, value in found.items() if isinstance(value, Tensor)}
            path = part_path(self.folder, number)
            write_checkpoint(path, {"state_dict": pieces})
            data = (number, read_checksum(path))
            results = [WriteResult(item.index, pieces[_name(item.index)].nbytes, data) for item in plan.items]
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        written = {(r.index.fqn, _offsets(r.index)): r.storage_data for some in results for r in some}
        tensors = {}
        for name, place in self.places.items():
            stored = metadata.state_dict_metadata[name]
            assert isinstance(stored, TensorStorageMetadata)
            pieces = tuple(
                Piece(tuple(chunk.offsets), tuple(chunk.sizes), written[name, tuple(chunk.offsets)][0])
                for chunk in stored.chunks
            )
            tensors[name] = Divided(place, tuple(stored.size), stored.properties.dtype, pieces)
        index = Index(self.plain, tensors, dict(sorted(written.values())))
        write_checkpoint(self.folder / INDEX, index.stored())

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return False  # it is given its folder


class _Reader(StorageReader):
    """Reads the pieces that this process needs."""

    def __init__(self, folder: Path, index: Index):
        self.index, self.parts = index, Parts(folder)
        self.pieces = {(n, piece.offsets): piece for n, tensor in index.tensors.items() for piece in tensor.pieces}

    def reset(self, checkpoint_id: Any = None) -> None:
        """Does nothing: a reader reads once."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata({name: _metadata(tensor) for name, tensor in self.index.tensors.items()})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the index has been read."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            name = item.storage_index.fqn
            piece = self.parts.read(name, self.index.tensors[name], self.pieces[name, _offsets(item.storage_index)])
            wanted = zip(item.storage_offsets, item.lengths, strict=True)
            target = planner.resolve_tensor(item)
            target.copy_(piece[tuple(slice(first, first + length) for first, length in wanted)])
            planner.commit_tensor(item, target)
        return _done(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return False  # it is given its folder


def _metadata(tensor: Divided) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.sizes)) for piece in tensor.pieces]
    return TensorStorageMetadata(TensorProperties(tensor.dtype), torch.Size(tensor.sizes), chunks)


def _name(index: MetadataIndex) -> str:
    return piece_name(index.fqn, _offsets(index))


def _offsets(index: MetadataIndex) -> tuple[int, ...]:
    return tuple(index.offset or ())


def _alone(tensor: Tensor) -> Tensor:
    """Gives a tensor without the rest of its storage, which would be written too."""
    tensor = tensor.detach()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
