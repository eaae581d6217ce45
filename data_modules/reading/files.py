"""The files of a dataset: official ones in a folder, Parquet, splits on the hub, and folders of `save_to_disk`.

Files are read in batches and without running code.

A folder that `datasets` writes by `save_to_disk` has Arrow streams, `state.json` that lists them, and
`dataset_info.json` with the names of classes; a folder of several splits has one such folder for each, and
`dataset_dict.json`.
"""

import hashlib
import io
import json
import logging
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from data_modules.reading.formats import Parsed
from data_modules.reading.rows import ReadReport, Row, read_rows
from faithkit.errors import UserError, shorten
from faithkit.settings.config_files import EMBEDDED

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH = 1024  # rows that become Python's values at a time
STATE, INFO, SPLITS_FILE = "state.json", "dataset_info.json", "dataset_dict.json"
SAVE = "datasets.load_dataset(...).save_to_disk(FOLDER) writes such a folder; or give .parquet, .jsonl or .csv"
HUB = "hub"  # a value of `path` that is not a place on disk, like EMBEDDED
log = logging.getLogger("faithkit")
MAGIC = re.compile(r"[*?\[]")
Patterns = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSplit:
    """One split of a dataset on the hub, used like the path of a file.

    Args:
        dataset: Name on the hub, such as `stanfordnlp/snli`.
        split: Split on the hub.
        config: Part of the dataset, if it has several.
        data_file: Reads this JSON file of the repository, if loading the repository itself would need a script of it
            (`datasets` no longer runs those).
        revision: Commit, tag or branch.
        address: Of the official files, for the error if the hub cannot be reached.
    """

    dataset: str
    split: str
    address: str
    config: str | None = None
    data_file: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        return ":".join(part for part in ("hub", self.dataset, self.config, self.split) if part)

    @property
    def name(self) -> str:
        """Its name as a file would have one: ids are made of it."""
        return str(self)

    def open(self, mode: str = "rb") -> BinaryIO:
        """Bytes that change when the content changes: the encodings' key reads them as it reads a file's."""
        assert mode == "rb"
        identity = f"{self} {self.revision} {self.data_file} {self._load()._fingerprint}"
        return io.BytesIO(identity.encode())

    def rows(self) -> Iterator[Row]:
        """Yields the rows in the hub's order."""
        for number, values in enumerate(self._load()):
            yield Row(values, str(self), number, number + 1)

    def _load(self) -> Any:
        from datasets import load_dataset

        try:
            if self.data_file is None:
                name = (self.dataset, self.config) if self.config else (self.dataset,)
                return load_dataset(*name, split=self.split, revision=self.revision)
            url = f"hf://datasets/{self.dataset}@{self.revision or 'main'}/{self.data_file}"
            return load_dataset("json", data_files={self.split: url}, split=self.split)
        except Exception as error:  # whatever the network, the hub and the library raise: the user's remedy is the same
            raise UserError(
                f"cannot load from the hub: {type(error).__name__}: {shorten(str(error))}",
                place=str(self),
                hint=f"set data.path=FOLDER with the official files ({self.address}), or check the network",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSplit:
    """A folder of `save_to_disk`, used like the path of a file."""

    folder: Path

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def name(self) -> str:
        return self.folder.name

    def open(self, mode: str = "rb") -> BinaryIO:
        """Bytes that change when the content changes: the encodings' key reads them as it reads a file's."""
        assert mode == "rb"
        digest = hashlib.blake2b(digest_size=16)
        for path in (*self._shards(), self.folder / INFO):
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        return io.BytesIO(digest.digest())

    def rows(self) -> Iterator[Row]:
        """Yields the rows in their order, classes by their names."""
        import pyarrow as pa

        classes, number = _classes(_read(self.folder / INFO)), 0
        for path in self._shards():
            try:
                with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
                    for batch in stream:
                        for start in range(0, len(batch), BATCH):
                            for values in batch.slice(start, BATCH).to_pylist():
                                yield Row(_named(values, classes), str(self.folder), number, number + 1)
                                number += 1
            except (pa.ArrowException, OSError) as error:
                raise UserError(f"no Arrow stream: {error}", place=str(path), hint=SAVE) from error
        if not number:
            raise UserError("the folder has no rows", place=str(self.folder), hint="choose another split")

    def _shards(self) -> list[Path]:
        state = _read(self.folder / STATE)
        try:
            return [self.folder / Path(file["filename"]).name for file in state["_data_files"]]
        except (KeyError, TypeError) as error:
            raise UserError("not a folder that `datasets` saved", place=str(self.folder), hint=SAVE) from error


def _classes(info: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the names of the classes of each column that holds class numbers."""
    features = info.get("features")
    return {
        column: feature["names"]
        for column, feature in (features.items() if isinstance(features, Mapping) else ())
        if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }


def _named(values: dict[str, Any], classes: Mapping[str, list[str]]) -> dict[str, Any]:
    for column, names in classes.items():
        number = values.get(column)
        if number is not None:
            values[column] = names[number] if 0 <= number < len(names) else None  # -1: of a test set without labels
    return values


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot be read: {error}", place=str(path), hint=SAVE) from error
    if not isinstance(found, dict):
        raise UserError("not a folder that `datasets` saved", place=str(path), hint=SAVE)
    return found


def saved_splits(folder: Path) -> dict[str, SavedSplit]:
    """Returns the splits of a folder that `datasets` saved, by name (a single one is `all`); none of another folder.

    Raises:
        UserError: The folder is of the cache of `datasets`, or lists no splits.
    """
    if (folder / STATE).is_file():
        return {"all": SavedSplit(folder=folder)}
    if (folder / SPLITS_FILE).is_file():
        names = _read(folder / SPLITS_FILE).get("splits")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError("it lists no splits", place=str(folder / SPLITS_FILE), hint=SAVE)
        return {name: SavedSplit(folder=folder / Path(name).name) for name in names}
    if (folder / INFO).is_file() or any(folder.glob("*.arrow")):
        raise UserError(f"a folder of `datasets`, but not of save_to_disk: no {STATE}", place=str(folder), hint=SAVE)
    return {}


def parse_parquet(path: Path, start: int = 0) -> Iterator[Parsed]:
    """Parses the rows of a Parquet file, a batch at a time.

    Args:
        start: Rows before this one are passed over, all but the first: the columns are found by it. Groups of rows that
            end before it are not read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
                raise UserError("two columns have one name", place=str(path), hint="give each a different name")
            classes = _classes(_info_in(file.schema_arrow.metadata or {}))
            for begin, batch in _batches_from(file, start):
                for number, values in enumerate(batch.to_pylist(), start=begin + 1):
                    yield number, _named(values, classes)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.filename:
            raise
        hint = "write it again, or give the rows as .jsonl"
        raise UserError(f"no whole Parquet file: {error}", place=str(path), hint=hint) from error


def _batches_from(file: "pq.ParquetFile", start: int) -> "Iterator[tuple[int, pa.RecordBatch]]":
    """Yields the first row, then those from `start` on: in batches, each with the number of its first row."""
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    if start > 0:
        having = [group for group, size in enumerate(sizes) if size]
        yield from ((0, batch) for batch in islice(file.iter_batches(1, row_groups=having[:1]), 1))
    ends = list(accumulate(sizes))
    first = bisect_right(ends, start)  # the group that holds the row
    begin = ends[first - 1] if first else 0
    for batch in file.iter_batches(BATCH, row_groups=range(first, len(sizes))):
        passed_over = min(max(start - begin, 0), len(batch))
        if passed_over < len(batch):
            yield begin + passed_over, batch.slice(passed_over)
        begin += len(batch)


def _info_in(metadata: Mapping[bytes, bytes]) -> Mapping[str, Any]:
    """Returns the description that `datasets` gives of the columns of a Parquet file that it wrote."""
    try:
        found = json.loads(metadata.get(b"huggingface", b"{}"))["info"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


def arrow_schema(table: Path | SavedSplit) -> Any:
    """Returns the columns of a Parquet file or a saved split with their types; None for another file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(table, SavedSplit):
        with pa.memory_map(str(table._shards()[0])) as file, pa.ipc.open_stream(file) as stream:
            schema, classes = stream.schema, _classes(_read(table.folder / INFO))
    elif table.suffix == ".parquet":
        schema = pq.read_schema(table)
        classes = _classes(_info_in(schema.metadata or {}))
    else:
        return None
    return pa.schema([pa.field(each.name, pa.string() if each.name in classes else each.type) for each in schema])


class RowsFile(Protocol):
    """Rows that are used like the path of a file: a split on the hub, a saved split, a shard of another file system."""

    @property
    def name(self) -> str:
        """Its name as a file would have one: ids are made of it."""
        ...

    def open(self, mode: str = "rb") -> BinaryIO:
        """Bytes that change when the content changes: the encodings' key reads them as it reads a file's."""
        ...

    def rows(self) -> Iterator[Row]:
        """Yields the rows in their order."""
        ...


File = Path | RowsFile


def rows_of(file: File, report: ReadReport) -> Iterator[Row]:
    """Yields the rows of a file on disk, of a split on the hub or of a saved one."""
    if not isinstance(file, Path):
        return file.rows()
    return read_rows(file, report, parse_parquet if file.suffix == ".parquet" else None)


def find_files(path: str, *layouts: Patterns, address: str = "") -> dict[str, list[Path]]:
    """Returns the files of each split: a folder is searched by the official names, a file gets the split of its name.

    The folder may be the one above: where it has none of the files itself, its folders are searched, and exactly one
    must have some. Names that begin with a dot or `_` are ignored, as in `find_shards`: editors and Macs leave
    copies under such.

    Args:
        path: A file or folder.
        layouts: Official file names by split, as glob patterns relative to the folder. The first layout of which the
            folder has any file is used alone.
        address: Of the official files, for the error if they are missing.

    Returns:
        Split to files, only for splits that are there. A file of an unknown name belongs to `all`.
    """
    if path in (HUB, EMBEDDED):
        problem = "is not read from the hub" if path == HUB else "is not in the embedded corpus"
        raise UserError(f"this dataset {problem}", place=f"path={path}", hint=_hint("set data.path=FOLDER", address))
    root = Path(path).expanduser()
    if root.is_file():
        # The split of the first pattern that matches the file's path, else its name, else `all`.
        patterns = [(split, name) for layout in layouts for split, names in layout.items() for name in names]
        by_path = [split for split, name in patterns if root.match(name)]
        by_name = [split for split, name in patterns if root.match(Path(name).name)]
        return {next(iter(by_path or by_name), "all"): [root]}
    if not root.is_dir():
        raise UserError("no such file or folder", place=str(root), hint="set data.path (or benchmark.path) to it")
    if found := _search(root, layouts):
        return found
    below = {
        folder: _search(folder, layouts)
        for folder in sorted(root.iterdir())
        if folder.is_dir() and not is_hidden(folder.relative_to(root))
    }
    having = [folder for folder, found in below.items() if found]
    if len(having) == 1:
        return below[having[0]]
    if having:
        names = ", ".join(folder.name for folder in having[:8])
        raise UserError(f"several folders have such files: {names}", place=str(root), hint="set data.path to one")
    wanted = dict.fromkeys(name for patterns in layouts for names in patterns.values() for name in names)
    hint = _hint(f"looked for {', '.join(wanted)}", address)
    raise UserError("none of the dataset's files is here", place=str(root), hint=hint)


def _search(root: Path, layouts: Sequence[Patterns]) -> dict[str, list[Path]]:
    for patterns in layouts:
        found = {}
        for split, names in patterns.items():
            files = {file for name in names for file in root.glob(name) if file.is_file()}
            if seen := sorted(file for file in files if not is_hidden(file.relative_to(root))):
                found[split] = seen
        if found:
            return found
    return {}


@cache  # files are looked for several times
def log_missing(path: str, names: Sequence[str], found: Sequence[PurePath], address: str) -> None:
    """Logs once which files of a release a folder lacks; a part of them is read without an error."""
    missing = [name for name in names if not any(file.match(name) for file in found)]
    if missing and Path(path).expanduser().is_dir():
        log.info("%s: not here: %s; the official files: %s", path, ", ".join(missing), address)


def _hint(hint: str, address: str) -> str:
    return f"{hint}; the official files: {address}" if address else hint


def is_hidden(path: PurePath) -> bool:
    """Returns whether a path below the folder of the data has a name that begins with a dot or `_`."""
    return any(part.startswith((".", "_")) for part in path.parts)


def is_address(data: str) -> bool:
    """Returns whether data is an fsspec address (`s3://...`) rather than a path of this machine."""
    return "://" in data


def is_glob(data: str) -> bool:
    """Returns whether data is a pattern of paths, and no file has that name."""
    return bool(MAGIC.search(data)) and not Path(data).expanduser().exists()
