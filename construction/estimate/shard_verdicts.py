"""Reads the verdicts of a shard of scored rows: a few columns, portion by portion, of which numbers alone are kept."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from construction.estimate.verdict_columns import score_names
from construction.estimate.verdict_tables import VERDICTS_HINT, label_of, verdict_of
from data_modules.encoding.cache import group_hash
from faithkit.errors import UserError, shorten
from faithkit.statistics.spread import Values

BATCH = 65_536  # rows that are held with their texts
MAX_VALUES = 10_000  # of the column to count by, in one shard
NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardColumns:
    """The columns that are read.

    Args:
        id: None names rows by their place, as `place_name` does.
        score: None where there is none: the verdicts stand for it.
        group: None: each row counts by itself.
        by: None counts all rows alone.
        is_named: The user named the score, which counts though some rows lack it.
    """

    id: str | None
    label: str
    score: str | None
    group: str | None
    by: str | None
    is_named: bool = False

    @classmethod
    def of(cls, file: Path, columns: Mapping[str, str | None], by: str | None) -> "ShardColumns":
        """Finds them in a first shard, those that are not named by their usual names.

        Where the data had a label or a probability of their own, those that scoring added are meant.
        """
        schema = _schema(file)
        label, names = label_of(str(columns["label"]), schema.names), set(schema.names)
        usual = (name for name in score_names(label, names) if name in names and _is_number(schema.field(name).type))
        score = columns["score"] or next(usual, None)
        group = columns["group"] or ("group" if "group" in schema.names else None)
        named = columns["score"] is not None
        return cls(id=columns["id"], label=label, score=score, group=group, by=by, is_named=named)

    def __str__(self) -> str:
        read = {"label": self.label, "score": self.score, "group": self.group, "by": self.by}
        return ", ".join(f"{key}={name}" for key, name in read.items() if name is not None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardVerdicts:
    """The verdicts of a shard.

    Args:
        called: 1 for hallucinated, 0 for faithful, NaN where there is no verdict [N].
        scores: P(hallucinated); NaN where there is none [N].
        groups: Numbers of the rows' groups, or hashes of their names [N].
        parts: Which of `names`, values of the column to count by, a row has [N].
        found: The rows that people labelled: where they stand, and their ids.
    """

    called: Values
    scores: Values
    groups: NDArray[np.uint64]
    parts: NDArray[np.int32]
    names: list[str]
    found: list[tuple[int, str]]

    def by_part(self) -> Iterator[tuple[str | None, NDArray[np.intp]]]:
        """Yields all rows under None, then those of each value."""
        yield None, np.arange(len(self.called))
        order = np.argsort(self.parts, kind="stable")
        ends = np.cumsum(np.bincount(self.parts, minlength=len(self.names)))
        for number, name in enumerate(self.names):
            yield name, order[ends[number - 1] if number else 0 : ends[number]]


def place_name(shard: str, place: int) -> str:
    """Names a row by its shard and its place there, from 0: `day=1/part-0:17`."""
    return f"{PurePosixPath(shard).with_suffix('')}:{place}"


def read_shard(file: Path, columns: ShardColumns, ids: Collection[str] | None, shard: str) -> ShardVerdicts:
    """Reads a shard.

    Args:
        shard: Its name below the data.
        ids: Of the rows that people labelled; with None the column of ids need not be there.

    Raises:
        UserError: A column is missing, or a value is no verdict.
    """
    wanted = {"label": columns.label, "score": columns.score, "group": columns.group, "by": columns.by}
    named = {key: name for key, name in wanted.items() if name is not None}
    named |= {"id": columns.id} if columns.id is not None and ids is not None else {}
    check_columns(file, named)
    labelled, numbers = pa.array(sorted(ids or ()), pa.string()), dict[str, int]()
    kept: dict[str, list[Any]] = {name: [] for name in ("called", "scores", "groups", "parts")}
    found: list[tuple[int, str]] = []
    start = 0
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(BATCH, columns=list(dict.fromkeys(named.values()))):
            column = {key: batch.column(name) for key, name in named.items()}
            kept["called"].append(_mapped(column["label"], _verdict_reader(named["label"]), np.float64, file))
            if "score" in named:
                kept["scores"].append(_scores(column["score"], named["score"], file))
            if "group" in named:
                kept["groups"].append(_mapped(column["group"], _group_reader(named["group"]), np.uint64, file))
            if "by" in named:
                kept["parts"].append(_mapped(column["by"], _numbering(numbers, named["by"]), np.int32, file))
            if "id" in named:
                texts = column["id"].cast(pa.string())
                places = np.flatnonzero(pc.is_in(texts, value_set=labelled).to_numpy(zero_copy_only=False))
                found += [(start + int(place), texts[int(place)].as_py()) for place in places]
            start += batch.num_rows
    if columns.id is None:
        named_here = ((_place_of(id_, shard), id_) for id_ in sorted(ids or ()))
        found = [(place, id_) for place, id_ in named_here if 0 <= place < start]
    called = _joined(kept["called"], np.float64)
    return ShardVerdicts(
        called=called,
        scores=called if columns.score is None else _joined(kept["scores"], np.float64),
        groups=np.arange(start, dtype=np.uint64) if columns.group is None else _joined(kept["groups"], np.uint64),
        parts=_joined(kept["parts"], np.int32),
        names=list(numbers),
        found=found,
    )


def _place_of(id_: str, shard: str) -> int:
    """Reads the place that `place_name` wrote; -1 of a row of another shard."""
    place = id_.rpartition(":")[2]
    return int(place) if place.isdecimal() and place.isascii() and id_ == place_name(shard, int(place)) else -1


def _schema(file: Path) -> Any:
    try:
        return pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        hint = "scored shards are Parquet: faithkit score ... engine=ray writes them"
        raise UserError("no file of Parquet", place=str(file), hint=hint) from error


def check_columns(file: Path, named: Mapping[str, str]) -> None:
    """Refuses a shard without a column, each given by what it holds.

    Raises:
        UserError: One is not there.
    """
    names = _schema(file).names
    for key, name in named.items():
        if name not in names:
            setting = "pipeline.by" if key == "by" else f"pipeline.columns.{key}"
            or_else = ", or null to name rows SHARD:PLACE" if key == "id" else ""
            hint = f"{setting}=NAME{or_else}; the shard has {shorten(', '.join(names), 200)[1:-1]}"
            raise UserError(f"there is no column {name!r}", place=str(file), hint=hint)


def _mapped(column: Any, read: Callable[[Any], float | int], kind: Any, file: Path) -> NDArray[Any]:
    """Reads each value of a column once, however often it stands there."""
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
        values = np.array([read(value) for value in encoded.dictionary.to_pylist()], kind)
    except (ValueError, NotImplementedError) as error:  # lists have no dictionary
        hint = "name a column of texts or numbers: pipeline.by, pipeline.columns"
        raise UserError(shorten(str(error), 200)[1:-1], place=str(file), hint=hint) from error
    return values[encoded.indices.to_numpy()] if len(values) else np.empty(0, kind)


def _scores(column: Any, name: str, file: Path) -> Values:
    hint = "a probability lies in 0..1: pipeline.columns.score=NAME"
    if not _is_number(column.type):
        raise UserError(f"column {name!r} holds no numbers, but {column.type}", place=str(file), hint=hint)
    scores = np.array(column.to_numpy(zero_copy_only=False), np.float64)
    scores[~np.isfinite(scores)] = NAN
    if ((scores < 0) | (scores > 1)).any():
        wrong = scores[(scores < 0) | (scores > 1)][0]
        raise UserError(f"column {name!r} has {wrong}", place=str(file), hint=hint)
    return scores


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _verdict_reader(name: str) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        try:
            return verdict_of(value)
        except ValueError as error:
            raise ValueError(f"column {name!r} has {error}: {VERDICTS_HINT}") from error

    return read


def _group_reader(name: str) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if value in (None, "") or isinstance(value, list | dict):
            raise ValueError(f"column {name!r} is missing or empty")
        return group_hash(str(value))

    return read


def _numbering(numbers: dict[str, int], name: str) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = numbers.setdefault(str(value), len(numbers))
        if number >= MAX_VALUES:
            raise ValueError(f"column {name!r} has more than {MAX_VALUES:,} values in one shard")
        return number

    return read


def _joined(parts: list[Any], kind: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, kind)
