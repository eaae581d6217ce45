"""Checkpoints in parts: a folder with a file of every process that wrote it, which any number of processes reads.

Each part is a checkpoint file of its own, with its checksum (`checkpoint_io`). So is `index.ckpt`, which is written
last: all that is no large tensor, where the pieces of each tensor lie, and the checksums of the parts, so that a part
of another checkpoint is not taken for one of this. `part_storage` writes them, and reads them into sharded tensors.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faithkit.training.checkpoint_io import DamagedCheckpoint, check_file, read_checkpoint, read_checksum

INDEX = "index.ckpt"
LAYOUT = "parts"  # in the index: the key of what is said of the parts
Place = tuple[str | int, ...]  # the keys that lead to a tensor within a checkpoint


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tensor: where it begins, its size, and the number of the file that holds it."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    part: int

    def of(self, whole: Tensor) -> Tensor:
        """Gives the place of the piece within its tensor."""
        return whole[tuple(slice(first, first + size) for first, size in zip(self.offsets, self.sizes, strict=True))]


@dataclass(frozen=True, slots=True)
class Divided:
    """A tensor that lies in pieces."""

    place: Place
    sizes: tuple[int, ...]
    dtype: torch.dtype
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """The index of a folder.

    Args:
        plain: The checkpoint without the tensors that lie in parts.
        tensors: By their names, the places as one text.
        checksums: Of the parts, by their numbers.
    """

    plain: dict[str, Any]
    tensors: dict[str, Divided]
    checksums: dict[int, str]

    def stored(self) -> dict[str, Any]:
        """Gives it as plain values, which a file holds."""
        tensors = {name: asdict(tensor) for name, tensor in self.tensors.items()}
        return {**self.plain, LAYOUT: {"tensors": tensors, "checksums": self.checksums}}


class Parts:
    """The parts of a folder, each opened when a piece of it is asked for; only what is used is read."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._opened: dict[int, Mapping[str, Any]] = {}

    def read(self, name: str, tensor: Divided, piece: Piece) -> Tensor:
        """Reads a piece of the tensor with this name."""
        if piece.part not in self._opened:
            path = part_path(self.folder, piece.part)
            self._opened[piece.part] = read_checkpoint(path, map_location="cpu", mmap=True)["state_dict"]
        found = self._opened[piece.part].get(piece_name(name, piece.offsets))
        if not isinstance(found, Tensor) or (found.shape, found.dtype) != (torch.Size(piece.sizes), tensor.dtype):
            raise DamagedCheckpoint(self.folder, f"part {piece.part} has no such piece of {name} as its index says")
        return found


def part_path(folder: Path, number: int) -> Path:
    """Gives the file of the process with this number."""
    return folder / f"part-{number}.ckpt"


def piece_name(name: str, offsets: tuple[int, ...]) -> str:
    """Gives the name of a piece within its part."""
    return f"{name} at {','.join(map(str, offsets))}"


def name_of(place: Place) -> str:
    """Gives the name of a tensor among the parts."""
    return " ".join(map(str, place))


def divide(checkpoint: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Place, Tensor]]:
    """Takes the weights and the optimizers' moments out of a checkpoint; they are what lies in parts."""
    tensors: dict[Place, Tensor] = {("state_dict", name): value for name, value in checkpoint["state_dict"].items()}
    optimizers = []
    for number, optimizer in enumerate(checkpoint["optimizer_states"]):
        kept: dict[str, dict[str, Any]] = {}
        for parameter, moments in optimizer["state"].items():
            kept[parameter] = {}
            for moment, value in moments.items():
                if isinstance(value, Tensor):
                    tensors["optimizer_states", number, "state", parameter, moment] = value
                else:
                    kept[parameter][moment] = value
        optimizers.append({**optimizer, "state": kept})
    return {**checkpoint, "state_dict": {}, "optimizer_states": optimizers}, tensors


def find(checkpoint: Any, place: Place) -> Any:
    """Finds what stands in a place."""
    for key in place:
        checkpoint = checkpoint[key]
    return checkpoint


def read_parts(folder: Path, *, map_location: Any = "cpu") -> dict[str, Any]:
    """Reads a folder as the checkpoint that one process would have written; on `meta` the shapes alone.

    Raises:
        DamagedCheckpoint: A part is damaged or missing, or belongs to another checkpoint.
    """
    index, parts = read_index(folder), Parts(folder)
    is_meta = str(map_location) == "meta"
    for name, tensor in index.tensors.items():
        whole = torch.empty(tensor.sizes, dtype=tensor.dtype, device="meta" if is_meta else "cpu")
        for piece in () if is_meta else tensor.pieces:
            piece.of(whole).copy_(parts.read(name, tensor, piece))
        find(index.plain, tensor.place[:-1])[tensor.place[-1]] = whole
    return index.plain


def read_index(folder: Path) -> Index:
    """Reads what a folder says of itself, after a check of each of its files.

    Raises:
        DamagedCheckpoint: One is damaged or missing, or belongs to another checkpoint.
    """
    path = folder / INDEX
    try:
        index = _index(read_checkpoint(path), path)
        for number, checksum in index.checksums.items():
            path = part_path(folder, number)
            check_file(path)
            if read_checksum(path) != checksum:
                raise DamagedCheckpoint(path, "it belongs to another checkpoint")
    except FileNotFoundError:
        raise DamagedCheckpoint(folder, f"{path.name} is missing") from None
    except DamagedCheckpoint as error:
        raise DamagedCheckpoint(folder, f"{path.name}: {error.reason}") from error
    return index


def _index(stored: Mapping[str, Any], path: Path) -> Index:
    try:
        layout = stored[LAYOUT]
        plain = {name: value for name, value in stored.items() if name != LAYOUT}
        index = Index(plain, {str(n): _divided(v) for n, v in layout["tensors"].items()}, dict(layout["checksums"]))
        for tensor in index.tensors.values():
            find(plain, tensor.place[:-1])
            if not _is_whole(tensor) or not {piece.part for piece in tensor.pieces} <= index.checksums.keys():
                raise ValueError(tensor.place)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DamagedCheckpoint(path, "it does not describe parts") from error
    return index


def _divided(value: Mapping[str, Any]) -> Divided:
    pieces = tuple(Piece(**piece) for piece in value["pieces"])
    return Divided(**{**value, "sizes": tuple(value["sizes"]), "pieces": pieces})


def _is_whole(tensor: Divided) -> bool:
    """Tells whether the pieces lie within the tensor and are as many numbers as it has."""
    within = all(
        len(piece.offsets) == len(piece.sizes) == len(tensor.sizes)
        and all(
            0 <= first <= first + size <= end
            for first, size, end in zip(piece.offsets, piece.sizes, tensor.sizes, strict=True)
        )
        for piece in tensor.pieces
    )
    return within and sum(math.prod(piece.sizes) for piece in tensor.pieces) == math.prod(tensor.sizes)
