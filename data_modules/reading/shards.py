"""Finds the shards of a folder, a glob or an fsspec address, and detects whether one has changed.

A shard is a file of rows. Shards of this file system are read in place; others are copied while they are read.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from data_modules.reading.files import MAGIC, is_address, is_glob, is_hidden
from data_modules.reading.formats import SUFFIXES
from data_modules.reading.rows import Row
from faithkit.errors import UserError, shorten

# Properties of a file that change with its content; the first one that the file system has is used.
STAMPS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "CRC")
MOST_NAMES = 3  # in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A file of rows.

    Args:
        name: Its path below the folder, or below what the glob begins with.
        path: Its path in the file system of the data.
        size: In bytes.
        stamp: Changes where the file is written anew.
    """

    name: str
    path: str
    size: int
    stamp: str

    @property
    def output(self) -> str:
        """The name of the shard that is made of it."""
        return str(PurePosixPath(self.name).with_suffix(".parquet"))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain values."""
        return asdict(self)


def find_shards(data: str) -> tuple[list[Shard], list[str]]:
    """Lists the shards by name, and the names of files of other kinds, which are left out.

    Names that begin with `_` or a dot are ignored, as other readers of such folders do.

    Raises:
        UserError: There are none, or the address cannot be read.
    """
    with _reported(data):
        system, root = _open(data)
        if system.isfile(root):
            found, base = {root: system.info(root)}, root.rpartition("/")[0]
        elif system.isdir(root):
            found, base = system.find(root, detail=True), root
        else:
            found, base = system.glob(root, detail=True), MAGIC.split(root)[0].rpartition("/")[0]
    shards, others = [], []
    for path, info in sorted(found.items()):
        name = path.removeprefix(base).lstrip("/")
        if info.get("type") != "file" or is_hidden(PurePosixPath(name)):
            continue
        if PurePosixPath(name).suffix in SUFFIXES:
            shards.append(Shard(name=name, path=path, size=info.get("size") or 0, stamp=_stamp(info)))
        else:
            others.append(name)
    if not shards:
        hint = f"name a folder, 'FOLDER/*.parquet' or an address, of files of {', '.join(SUFFIXES)}"
        raise UserError("there are no shards", place=shown(data), hint=hint)
    return shards, others


def name_of(data: str) -> str:
    """Names data in tables and metrics: by their last folder, or by the file."""
    whole = data if is_address(data) else str(Path(data).expanduser().absolute())
    root = MAGIC.split(whole)[0].rpartition("/")[0] if is_glob(whole) else whole
    return PurePosixPath(shown(root)).stem


def shown(data: str) -> str:
    """Returns an address without the user and the password that it may hold."""
    return re.sub(r"://[^/@]*@", "://", data)


@contextmanager
def opened(data: str, shard: Shard) -> Iterator[Path]:
    """Returns the shard as a file of this machine; errors name the shard instead of this file, which may be a copy.

    Raises:
        UserError: It is gone, or it was written while it was read.
    """
    from fsspec.implementations.local import LocalFileSystem

    with _reported(data):
        system, _ = _open(data)
        before = _stat(system, shard)
    file = Path(shard.path)
    try:
        if isinstance(system, LocalFileSystem):
            yield file
            return
        with TemporaryDirectory() as folder:
            file = Path(folder, PurePosixPath(shard.name).name)
            with _reported(data):
                system.get_file(shard.path, str(file))
            yield file
    except UserError as error:
        place = (error.place or shard.name).replace(str(file), shard.name)
        raise UserError(error.problem, place=place, hint=error.hint) from error
    finally:  # a change may be what made reading fail
        with _reported(data):
            if _stat(system, shard) != before:
                problem = f"the shard {shorten(shard.name)} was written while it was read"
                raise UserError(problem, place=shown(data), hint="write a shard under another name, then rename it")


def some_names(names: list[str]) -> str:
    """Names the first of several files."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _open(data: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    system, root = url_to_fs(data if is_address(data) else str(Path(data).expanduser().absolute()))
    return system, root.rstrip("/")


def _stat(system: Any, shard: Shard) -> str:
    system.invalidate_cache()
    try:
        return _stamp(system.info(shard.path))
    except FileNotFoundError:
        hint = "put it back, then run the same command again"
        raise UserError(f"the shard {shorten(shard.name)} is gone", place=shard.path, hint=hint) from None


def _stamp(info: Mapping[str, Any]) -> str:
    known = next((f" {info[name]}" for name in STAMPS if info.get(name) is not None), "")
    return f"{info.get('size')}{known}"


@contextmanager
def _reported(data: str) -> Iterator[None]:
    """Reports errors of an address's file system, which may be of any class."""
    try:
        yield
    except UserError:
        raise
    except ImportError as error:  # fsspec names the package
        raise UserError(f"this address needs a package: {error}", place=shown(data), hint="pip install it") from error
    except Exception as error:
        problem = f"cannot be read: {shown(shorten(str(error) or type(error).__name__, 200))}"
        hint = "check the address and your account there" if is_address(data) else "check path"
        raise UserError(problem, place=shown(data), hint=hint) from error


def check_outputs(shards: list[Shard], data: str) -> None:
    """Refuses shards of which one file would be made."""
    names: dict[str, str] = {}
    for shard in shards:
        if ".." in PurePosixPath(shard.name).parts:
            raise UserError(f"a shard is named {shorten(shard.name)}", place=shown(data), hint="give it another name")
        if (other := names.setdefault(shard.output, shard.name)) != shard.name:
            problem = f"{other} and {shard.name} would both become {shard.output}"
            raise UserError(problem, place=shown(data), hint="take the kinds apart: 'FOLDER/*.jsonl'")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """A shard of another file system, copied while it is read and used like the path of a file."""

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
        """Returns a copy of it on this machine."""
        return opened(self.data, self.shard)

    @contextmanager
    def bytes(self) -> Iterator[BinaryIO]:
        """Returns its bytes where they are, for reading a part of them.

        Raises:
            UserError: It is gone, or cannot be read.
        """
        with _reported(self.data):
            system, _ = _open(self.data)
            _stat(system, self.shard)
            with system.open(self.shard.path, "rb") as file:
                yield file

    def open(self, mode: str = "rb") -> BinaryIO:
        assert mode == "rb"
        return io.BytesIO(f"{self.shard.name} {self.shard.size} {self.shard.stamp}".encode())

    def rows(self) -> Iterator[Row]:
        raise AssertionError("shards are read by read_table; the datasets of official files read folders alone")


def shard_files(data: str, stems: Mapping[str, Sequence[str]]) -> dict[str, list[Path | ShardFile]]:
    """Returns the shards of each split behind a glob or an address; those of this machine are plain files.

    Args:
        stems: How the names of each split's shards begin: `train.parquet`, `train-00001.parquet`. Where a shard has
            another name, all of them make one split, `all`.
    """
    found: dict[str, list[Path | ShardFile]] = {}
    shards, _ = find_shards(data)
    by_begin = {name: split for split, names in stems.items() for name in names}
    splits = [by_begin.get(PurePosixPath(shard.name).stem.split("-")[0]) for shard in shards]
    for shard, split in zip(shards, splits, strict=True):
        file = ShardFile(data=data, shard=shard) if is_address(data) else Path(shard.path)
        found.setdefault("all" if split is None or None in splits else split, []).append(file)
    return found
