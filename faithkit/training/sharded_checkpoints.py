"""Writes and reads sharded checkpoints: folders of torch.distributed.checkpoint (DCP), for any number of processes.

Every process writes its shards as safetensors. `index.ckpt`, a checkpoint file with its checksum, is written last. It
holds everything that is not a large tensor, the shape of each tensor, and the SHA-256 of each file.
DCP's default storage is not used: it holds pickles, which run code when they are read, and no checksums.
"""

import math
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.tensor import DTensor

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder, delete, disk_errors, hash_files
from faithkit.training.checkpoint_io import DamagedCheckpoint, read_file, write_checkpoint

INDEX, LAYOUT = "index.ckpt", "sharded"  # the file, and its key with the shapes and checksums
FILE_BYTES = 1 << 30  # tensors of about this size together become one file, which is built in memory
Keys = tuple[str | int, ...]  # the keys that lead to a tensor within a checkpoint
T = TypeVar("T")


def write_sharded(path: Path, checkpoint: Mapping[str, Any], *, previous: Path | None) -> None:
    """Writes a checkpoint as a folder that appears in one step, once all of its files are on the disk.

    Every process calls it with its shards; none holds a whole model.

    Args:
        previous: Where the previous checkpoint is kept; None keeps none.

    Raises:
        UserError: A process cannot write its files; every process raises it.
    """
    plain, tensors = split_tensors(checkpoint)
    named, numbers, layout = {}, {}, {}
    known: set[int] = set()  # places in memory of tensors so far
    size = 0
    for keys, tensor in tensors.items():
        name = " ".join(map(str, keys))
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        memory = local.untyped_storage().data_ptr()
        # A copy where memory is shared, as by tied embeddings: safetensors refuses it.
        named[name] = tensor.clone() if memory in known and local.numel() else tensor
        known.add(memory)
        numbers[name] = 1 + size // FILE_BYTES
        size += tensor.numel() * tensor.element_size() // dist.get_world_size()
        layout[name] = keys, tuple(tensor.shape), tensor.dtype
    with ExitStack() as stack:
        is_first = dist.get_rank() == 0
        folder, *_ = _together(lambda: stack.enter_context(_new_folder(path, previous)) if is_first else path)
        _together(lambda: _check_visible(folder))
        writer = dcp.HuggingFaceStorageWriter(str(folder), numbers, save_distributed=True)
        with _first_failure(path):
            planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
            dcp.save(named, storage_writer=writer, planner=planner)
        written = [path.name for path in folder.glob(f"shard-{dist.get_rank() + 1:05d}-*.safetensors")]
        checksums = dict(ChainMap(*_together(lambda: hash_files(folder, written))))
        index = {**plain, LAYOUT: {"tensors": layout, "checksums": dict(sorted(checksums.items()))}}
        _together(lambda: write_checkpoint(folder / INDEX, index) if is_first else None)
        _together(stack.close)  # the folder takes its final name


def read_sharded(folder: Path, *, map_location: Any = "cpu") -> dict[str, Any]:
    """Reads a folder as the checkpoint that a single process would have written; on `meta` only the shapes.

    Raises:
        DamagedCheckpoint: A file is damaged or missing, or belongs to another checkpoint.
    """
    plain: Any
    plain, layout = _read_index(folder)
    device = "meta" if str(map_location) == "meta" else "cpu"
    try:
        tensors = {name: torch.empty(shape, dtype=dtype, device=device) for name, (_, shape, dtype) in layout.items()}
        if device == "cpu":
            _load(folder, tensors, no_dist=True)
        for name, (keys, _, _) in layout.items():
            place = reduce(getitem, keys[:-1], plain)
            place[keys[-1]] = tensors[name]
    except (dcp.CheckpointException, RuntimeError, ValueError, TypeError, KeyError, IndexError) as error:
        raise DamagedCheckpoint(folder, f"{INDEX} does not describe its files") from error
    return dict(plain)


def read_into(folder: Path, checkpoint: Any) -> None:
    """Fills the tensors of a checkpoint, sharded or not, from a folder; each process reads what it needs.

    Args:
        checkpoint: Has a tensor under the same keys as the folder's checkpoint.

    Raises:
        DamagedCheckpoint: A file is damaged or missing.
    """
    _, layout = _read_index(folder)
    with _first_failure(folder):
        _load(folder, {name: reduce(getitem, keys, checkpoint) for name, (keys, _, _) in layout.items()})


def split_tensors(checkpoint: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Keys, Tensor]]:
    """Separates the weights and the optimizers' moments from the rest of a checkpoint."""
    tensors: dict[Keys, Tensor] = {("state_dict", name): value for name, value in checkpoint["state_dict"].items()}
    optimizers = []
    for number, optimizer in enumerate(checkpoint["optimizer_states"]):
        others: dict[str, dict[str, Any]] = {}
        for parameter, moments in optimizer["state"].items():
            others[parameter] = {name: value for name, value in moments.items() if not isinstance(value, Tensor)}
            for name in moments.keys() - others[parameter].keys():
                tensors["optimizer_states", number, "state", parameter, name] = moments[name]
        optimizers.append({**optimizer, "state": others})
    return {**checkpoint, "state_dict": {}, "optimizer_states": optimizers}, dict(sorted(tensors.items(), key=str))


def _load(folder: Path, tensors: dict[str, Any], *, no_dist: bool = False) -> None:
    reader = dcp.HuggingFaceStorageReader(str(folder))
    planner = dcp.DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # as `no_dist` asks for
        dcp.load(tensors, storage_reader=reader, planner=planner, no_dist=no_dist)


def _read_index(folder: Path) -> tuple[dict[str, Any], dict[str, tuple[Keys, tuple[int, ...], torch.dtype]]]:
    """Reads the index after verifying every file: the checkpoint without its tensors, and keys, shapes and types."""
    try:
        plain = read_file(folder / INDEX)
        layout = plain.pop(LAYOUT)
        checksums = dict(layout["checksums"])
        tensors = {
            str(name): (tuple(keys), tuple(shape), dtype) for name, (keys, shape, dtype) in layout["tensors"].items()
        }
    except FileNotFoundError:
        raise DamagedCheckpoint(folder, f"{INDEX} is missing") from None
    except DamagedCheckpoint as error:
        raise DamagedCheckpoint(folder, f"{INDEX}: {error.reason}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedCheckpoint(folder, f"{INDEX} does not describe its files") from error
    names = {path.name for path in folder.glob("*.safetensors")}
    if different := names ^ checksums.keys():
        name = min(map(str, different))
        raise DamagedCheckpoint(folder, f"{name} " + ("is missing" if name not in names else "is not part of it"))
    for name, checksum in hash_files(folder, names).items():
        if checksum != checksums[name]:
            raise DamagedCheckpoint(folder, f"{name} was changed, or belongs to another checkpoint")
    # The tensors that are stored completely, by the headers of the files.
    metadata: Any = dcp.HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    stored = {
        name: (tuple(one.size), one.properties.dtype)
        for name, one in metadata.items()
        if sum(math.prod(chunk.sizes) for chunk in one.chunks) == math.prod(one.size)
    }
    if stored != {name: (shape, dtype) for name, (_, shape, dtype) in tensors.items()}:
        raise DamagedCheckpoint(folder, f"{INDEX} does not describe its files")
    return plain, tensors


def _check_visible(folder: Path) -> None:
    if not folder.is_dir():
        problem = f"process {dist.get_rank()} does not see the folder that the first process writes to"
        raise UserError(problem, place=str(folder), hint="set run_dir= to a disk that all nodes share")


@contextmanager
def _new_folder(path: Path, previous: Path | None) -> Iterator[Path]:
    if previous is not None and path.exists():
        delete(previous)  # now, so that at most two checkpoints are on the disk
    with atomic_folder(path, replace=True, kept=previous) as folder:
        yield folder


def _together(work: Callable[[], T]) -> list[T]:
    """Runs a function on every process; returns all results, or raises the first process's `UserError` everywhere."""
    result: Any
    try:
        result = work()
    except UserError as error:
        result = error
    results: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    for result in results:
        if isinstance(result, UserError):
            raise result
    return results


@contextmanager
def _first_failure(path: Path) -> Iterator[None]:
    """Raises in every process the error of the first process that failed."""
    try:
        yield
    except dcp.CheckpointException as error:
        cause, _ = error.failures[min(error.failures)]
        with disk_errors(path):
            raise cause from error
