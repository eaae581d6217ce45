"""Reads shards of scored rows, and sums them by group and by the value of a column.

A shard is read in batches, and only numbers are kept. The sums are small where groups are large.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from construction.estimate.verdict_columns import score_names
from construction.estimate.verdict_tables import TEXTS, VERDICTS_HINT, label_column, parse_label, shown_texts
from data_modules.encoding.encoding_cache import group_hash
from faithkit.errors import UserError, shorten
from faithkit.statistics.spread import Values

BATCH = 65_536  # rows in memory with their texts
MAX_VALUES = 10_000  # of the column to count by, in one shard
NAN = float("nan")
ROWS, SCORED, SCORES, SQUARES, JUDGED, HALLUCINATED = range(6)  # columns of the sums


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardColumns:
    """The columns that are read.

    Args:
        id: None names rows by their place, as `place_name` does.
        score: None uses the labels.
        group: None makes each row a group.
        by: None counts all rows together.
        is_named: The user named the score, so it is used even if some rows lack it.
    """

    id: str | None
    label: str
    score: str | None
    group: str | None
    by: str | None
    is_named: bool = False

    @classmethod
    def of(cls, file: Path, columns: Mapping[str, str | None], by: str | None) -> "ShardColumns":
        """Finds them in a first shard: those that are named, and others by their usual names.

        If the data had a label or a probability already, those that scoring added are used.
        """
        schema = _read_schema(file)
        label, names = label_column(str(columns["label"]), schema.names), set(schema.names)
        usual = (name for name in score_names(label, names) if name in names and _is_number(schema.field(name).type))
        return cls(
            id=columns["id"],
            label=label,
            score=columns["score"] or next(usual, None),
            group=columns["group"] or ("group" if "group" in names else None),
            by=by,
            is_named=columns["score"] is not None,
        )

    def __str__(self) -> str:
        read = {"label": self.label, "score": self.score, "group": self.group, "by": self.by}
        return ", ".join(f"{key}={name}" for key, name in read.items() if name is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRow:
    """A row of a shard that is labelled, or drawn to be labelled.

    Args:
        id: None for a drawn row.
        score: NaN without one; so is `label`.
    """

    shard: str
    place: int
    id: str | None
    group: int
    part: str
    score: float
    label: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupSums:
    """Sums of rows by group and by the value of a column.

    Args:
        groups: Hashes of the groups [M].
        parts: The index of the value in `names` [M].
        sums: Of rows, scored rows, scores, squared scores, judged rows and hallucinated rows [M, 6].
    """

    names: list[str]
    groups: NDArray[np.uint64]
    parts: NDArray[np.int32]
    sums: Values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardSums:
    """What an estimate needs of a shard.

    Args:
        spreads: The sums of sqrt(p (1 - p)) of the scores and of the labels.
        labelled: Rows that people labelled.
        drawn: Rows with the lowest lots of a lottery among those without a label; the lowest of all shards are drawn.
    """

    num_rows: int
    sums: GroupSums
    spreads: tuple[float, float]
    labelled: list[ShardRow]
    drawn: list[tuple[int, ShardRow]]


def sum_groups(names: list[str], groups: NDArray[np.uint64], parts: NDArray[np.int32], values: Values) -> GroupSums:
    """Sums values [N, 6] by group and part, in the order of the rows."""
    if not len(groups):
        return GroupSums(names=names, groups=groups, parts=parts, sums=values)
    order = np.lexsort((parts, groups))
    groups, parts = groups[order], parts[order]
    changes = (groups[1:] != groups[:-1]) | (parts[1:] != parts[:-1])
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    sums = np.add.reduceat(values[order], starts, axis=0)
    return GroupSums(names=names, groups=groups[starts], parts=parts[starts], sums=sums)


def place_name(shard: str, place: int) -> str:
    """Names a row by its shard and its place there, from 0: `day=1/part-0:17`."""
    return f"{PurePosixPath(shard).with_suffix('')}:{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SumShard:
    """Sums up a shard.

    Args:
        ids: Of the rows that people labelled; None if no ids are needed.
        num_drawn: The number of rows to draw for labelling.
        seed: Of the draw.
    """

    columns: ShardColumns
    ids: frozenset[str] | None = None
    num_drawn: int = 0
    seed: int = 0

    def __call__(self, file: Path, shard: str) -> ShardSums:
        """Reads the shard.

        Raises:
            UserError: A column is missing, or a value is no verdict.
        """
        columns, ids = self.columns, self.ids or ()
        wanted = {"label": columns.label, "score": columns.score, "group": columns.group, "by": columns.by}
        named = {key: name for key, name in wanted.items() if name is not None}
        named |= {"id": columns.id} if columns.id is not None and self.ids is not None else {}
        check_columns(file, named)
        id_set, part_numbers = pa.array(sorted(ids), pa.string()), dict[str, int]()
        readers: dict[str, tuple[Callable[[Any], float | int], type]] = {
            "label": (_label_reader(columns.label), np.float64),
            "group": (_group_reader(columns.group), np.uint64),
            "by": (_part_reader(part_numbers, columns.by), np.int32),
        }
        read: dict[str, list[Any]] = {key: [] for key in named}
        places: list[tuple[int, str]] = []
        num_rows = 0
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(BATCH, columns=list(dict.fromkeys(named.values()))):
                for key, name in named.items():
                    column = batch.column(name)
                    if key == "score":
                        read[key].append(_read_scores(column, name, file))
                    elif key == "id":
                        texts = column.cast(pa.string())
                        found = np.flatnonzero(pc.is_in(texts, value_set=id_set).to_numpy(zero_copy_only=False))
                        places += [(num_rows + int(place), texts[int(place)].as_py()) for place in found]
                    else:
                        read[key].append(_map_values(column, *readers[key], file))
                num_rows += batch.num_rows
        if columns.id is None:
            by_name = ((_place_of(id_, shard), id_) for id_ in sorted(ids))
            places = [(place, id_) for place, id_ in by_name if 0 <= place < num_rows]
        labels = _concatenate(read["label"], np.float64)
        scores = _concatenate(read["score"], np.float64) if "score" in read else labels
        groups = _concatenate(read["group"], np.uint64) if "group" in read else _row_groups(shard, num_rows)
        parts = _concatenate(read["by"], np.int32) if "by" in read else np.zeros(num_rows, np.int32)
        names = list(part_numbers) or [""]

        def row_at(place: int, id_: str | None = None) -> ShardRow:
            return ShardRow(
                shard=shard,
                place=place,
                id=id_,
                group=int(groups[place]),
                part=names[parts[place]],
                score=float(scores[place]),
                label=float(labels[place]),
            )

        scored, judged = np.isfinite(scores), np.isfinite(labels)
        known, called = np.where(scored, scores, 0.0), np.where(judged, labels, 0.0)
        values = np.stack([np.ones(num_rows), scored, known, known * known, judged, called], axis=1)
        return ShardSums(
            num_rows=num_rows,
            sums=sum_groups(names, groups, parts, values),
            spreads=(float(np.sqrt(known * (1 - known)).sum()), float(np.sqrt(called * (1 - called)).sum())),
            labelled=[row_at(place, id_) for place, id_ in places],
            drawn=[(lot, row_at(place)) for lot, place in self._draw(shard, num_rows, [place for place, _ in places])],
        )

    def _draw(self, shard: str, num_rows: int, labelled: Sequence[int]) -> list[tuple[int, int]]:
        if not self.num_drawn:
            return []
        lots = np.random.default_rng([self.seed, group_hash(shard)]).integers(2**63, size=num_rows)
        unlabelled = np.ones(num_rows, bool)
        unlabelled[list(labelled)] = False
        places = np.flatnonzero(unlabelled)
        lowest = places[np.argsort(lots[places], kind="stable")[: self.num_drawn]]
        return [(int(lots[place]), int(place)) for place in lowest]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTexts:
    """Reads the ids and texts of some rows of a shard.

    Args:
        places: Of the rows, by shard.
        num_rows: That the shards had.
    """

    columns: ShardColumns
    places: Mapping[str, Sequence[int]]
    num_rows: Mapping[str, int]

    def __call__(self, file: Path, shard: str) -> dict[int, dict[str, str]]:
        """Reads the rows by their places.

        Raises:
            UserError: The shard has changed.
        """
        id_column = self.columns.id
        check_columns(file, {"id": id_column} if id_column else {})
        places, rows, start = np.array(sorted(self.places[shard])), dict[int, dict[str, str]](), 0
        with pq.ParquetFile(file) as opened:
            if opened.metadata.num_rows != self.num_rows[shard]:
                hint = "run the same command again when the shards no longer change"
                raise UserError("the shard was written while it was read", place=shard, hint=hint)
            names = [name for name in TEXTS if name in opened.schema_arrow.names] + ([id_column] if id_column else [])
            for batch in opened.iter_batches(BATCH, columns=list(dict.fromkeys([*names, self.columns.label]))):
                here = places[(places >= start) & (places < start + batch.num_rows)]
                for place, row in zip(here.tolist(), batch.take(pa.array(here - start)).to_pylist(), strict=True):
                    id_ = str(row[id_column]) if id_column else place_name(shard, place)
                    rows[place] = {"id": id_, **shown_texts(row)}
                start += batch.num_rows
        return rows


def _row_groups(shard: str, num_rows: int) -> NDArray[np.uint64]:
    """Makes each row a group, with numbers that are unique among shards up to collisions of hashes."""
    return np.arange(num_rows, dtype=np.uint64) + np.uint64(group_hash(shard))  # wraps around


def _place_of(id_: str, shard: str) -> int:
    """Reads the place that `place_name` wrote; -1 for a row of another shard."""
    place = id_.rpartition(":")[2]
    return int(place) if place.isdecimal() and place.isascii() and id_ == place_name(shard, int(place)) else -1


def _read_schema(file: Path) -> Any:
    try:
        return pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        hint = "scored shards are Parquet: faithkit score ... engine=ray writes them"
        raise UserError("no file of Parquet", place=str(file), hint=hint) from error


def check_columns(file: Path, named: Mapping[str, str]) -> None:
    """Refuses a shard without a column.

    Args:
        named: The columns by what they contain.

    Raises:
        UserError: One is missing.
    """
    names = _read_schema(file).names
    for key, name in named.items():
        if name not in names:
            setting = "pipeline.by" if key == "by" else f"pipeline.columns.{key}"
            or_null = ", or null to name rows SHARD:PLACE" if key == "id" else ""
            hint = f"{setting}=NAME{or_null}; the shard has {shorten(', '.join(names), 200)[1:-1]}"
            raise UserError(f"there is no column {name!r}", place=str(file), hint=hint)


def _map_values(column: Any, read: Callable[[Any], float | int], kind: type, file: Path) -> NDArray[Any]:
    """Reads each distinct value of a column once."""
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
        values: NDArray[Any] = np.array([read(value) for value in encoded.dictionary.to_pylist()], kind)
    except (ValueError, NotImplementedError) as error:  # lists have no dictionary
        hint = "name a column of texts or numbers: pipeline.by, pipeline.columns"
        raise UserError(shorten(str(error), 200)[1:-1], place=str(file), hint=hint) from error
    return values[encoded.indices.to_numpy()] if len(values) else np.empty(0, kind)


def _read_scores(column: Any, name: str, file: Path) -> Values:
    hint = "a probability lies in 0..1: pipeline.columns.score=NAME"
    if not _is_number(column.type):
        raise UserError(f"column {name!r} holds no numbers, but {column.type}", place=str(file), hint=hint)
    scores = np.array(column.to_numpy(zero_copy_only=False), np.float64)
    scores[~np.isfinite(scores)] = NAN
    if len(wrong := scores[(scores < 0) | (scores > 1)]):
        raise UserError(f"column {name!r} has {wrong[0]}", place=str(file), hint=hint)
    return scores


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _label_reader(name: str) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        try:
            return parse_label(value)
        except ValueError as error:
            raise ValueError(f"column {name!r} has {error}: {VERDICTS_HINT}") from error

    return read


def _group_reader(name: str | None) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if value in (None, "") or isinstance(value, list | dict):
            raise ValueError(f"column {name!r} is missing or empty")
        return group_hash(str(value))

    return read


def _part_reader(numbers: dict[str, int], name: str | None) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = numbers.setdefault(str(value), len(numbers))
        if number >= MAX_VALUES:
            raise ValueError(f"column {name!r} has more than {MAX_VALUES:,} values in one shard")
        return number

    return read


def _concatenate(parts: Collection[Any], kind: type) -> NDArray[Any]:
    return np.concatenate(list(parts)) if parts else np.empty(0, kind)
