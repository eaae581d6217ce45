"""Reads Parquet files, splits on the hub, and the folders that `datasets` writes by `save_to_disk`.

Files are read in batches and without running code.

A folder of `save_to_disk` has Arrow streams, `state.json` that lists them, and `dataset_info.json` with the names of
classes; a folder of several splits has one such folder for each, and `dataset_dict.json`.
"""

import hashlib
import io
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from data_modules.reading.formats import Parsed
from data_modules.reading.rows import Row
from faithkit.errors import UserError, shorten

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH = 1024  # rows that become Python's values at a time
STATE, INFO, SPLITS_FILE = "state.json", "dataset_info.json", "dataset_dict.json"
SAVE = "datasets.load_dataset(...).save_to_disk(FOLDER) writes such a folder; or give .parquet, .jsonl or .csv"


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
