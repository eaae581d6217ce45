"""Shards that stand where files stand: those behind a glob or an address of fsspec."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from data_modules.reading.shards import Shard, bytes_of, find_shards, is_address, opened, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """A shard of another file system, copied for as long as it is read; it stands where a file's path stands."""

    data: str
    shard: Shard

    def __str__(self) -> str:
        return f"{shown(self.data).partition('://')[0]}://{self.shard.path}"

    @property
    def name(self) -> str:
        return PurePosixPath(self.shard.name).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.shard.name).suffix

    def opened(self) -> AbstractContextManager[Path]:
        """Gives a copy of it on this machine."""
        return opened(self.data, self.shard)

    @contextmanager
    def bytes(self) -> Iterator[BinaryIO]:
        """Gives its bytes where they are, for what reads a part of them."""
        with bytes_of(self.data, self.shard) as file:
            yield file

    def open(self, mode: str = "rb") -> BinaryIO:
        """Bytes that change when the content changes: the encodings' key reads them as it reads a file's."""
        assert mode == "rb"
        return io.BytesIO(f"{self.shard.name} {self.shard.size} {self.shard.stamp}".encode())


def shard_files(data: str, stems: Mapping[str, Sequence[str]]) -> dict[str, list[Path | ShardFile]]:
    """The shards of each split behind a glob or an address; those of this machine are plain files.

    Args:
        stems: How the names of each split's shards begin: `train.parquet`, `train-00001.parquet`. Where a shard has
            another name, all of them make one split, `all`.
    """
    found: dict[str, list[Path | ShardFile]] = {}
    shards, _ = find_shards(data)
    names = {shard.name: _split_of(shard.name, stems) for shard in shards}
    for shard in shards:
        split = names[shard.name] if None not in names.values() else None
        file = ShardFile(data=data, shard=shard) if is_address(data) else Path(shard.path)
        found.setdefault(split or "all", []).append(file)
    return found


def _split_of(name: str, stems: Mapping[str, Sequence[str]]) -> str | None:
    begin = PurePosixPath(name).stem.split("-")[0]
    return next((split for split, names in stems.items() if begin in names), None)
