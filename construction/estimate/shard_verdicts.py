"""Reads shards of scored rows, and sums them by group and by the value of a column.

A shard is read in batches, and only numbers are kept. The sums are small where groups are large.
"""

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from construction.estimate.verdict_columns import score_names
from construction.estimate.verdict_tables import (
    CALLED,
    JUDGED,
    ROWS,
    SCORED,
    SCORES,
    TEXTS,
    VERDICTS_HINT,
    ScoredRow,
    VerdictTable,
    label_column,
    mean_score,
    parse_label,
    shown_texts,
    sum_rows,
)
from data_modules.encoding.encoding_cache import group_hash
from faithkit.errors import UserError, shorten
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.label_sampling import RANDOM, Wave
from faithkit.statistics.spread import Values

BATCH = 65_536  # rows in memory with their texts
MAX_VALUES = 10_000  # of the column to count by, in one shard
NAN = float("nan")
Texts = Mapping[str, Mapping[int, dict[str, str]]]  # with `id`, by shard and place


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardSums:
    """What an estimate needs of a shard; cells are the rows of a group with one value of the column to count by.

    Args:
        sums: As in `VerdictTable` [M, 6]; of the labels, if there is no column of scores.
        groups: Hashes of the groups [M]; None where each row is one.
        parts: The place in `part_names` [M].
        spreads: The sums of sqrt(p (1 - p)) of the scores and of the labels.
        labelled: Rows that people labelled, with their ids.
        drawn: Rows with the lowest lots of a lottery among those without a label; the lowest of all shards are drawn.
    """

    sums: Values
    groups: NDArray[np.uint64] | None
    parts: NDArray[np.int32]
    part_names: list[str]
    spreads: tuple[float, float]
    num_rows: int
    labelled: list[tuple[str, ScoredRow]]
    drawn: list[tuple[int, ScoredRow]]


def join_shards(
    columns: ShardColumns, shards: Mapping[str, ShardSums], read_texts: Callable[[Mapping[str, list[int]]], Texts]
) -> VerdictTable:
    """Joins the sums of shards in the order of their names; a group in several shards is one group.

    Args:
        read_texts: Reads the ids and texts of some rows, by shard and place.

    Raises:
        UserError: A labelled id occurs twice, or no verdict can be used.
    """
    ordered = [shards[name] for name in sorted(shards)]
    sums = np.concatenate([shard.sums for shard in ordered])
    # The scores are used if they are named, or every row has one; otherwise the labels.
    has_all = sums[:, SCORED].sum() == sums[:, ROWS].sum()
    uses_scores = columns.score is not None and (columns.is_named or bool(has_all))
    if not uses_scores:  # labels are scores of 0 and 1
        sums = sums[:, [ROWS, JUDGED, CALLED, CALLED, JUDGED, CALLED]]
    mean, num_rows = mean_score(sums), sums[:, ROWS].sum()
    num_unread = num_rows - sums[:, SCORED].sum()
    spread = sum(shard.spreads[0 if uses_scores else 1] for shard in ordered)
    if columns.group is None:
        groups = Groups(np.arange(len(sums)), len(sums))
    else:
        hashes, index = np.unique(np.concatenate([shard.groups for shard in ordered]), return_inverse=True)
        groups = Groups(index, len(hashes))
    part_names = sorted({name for shard in ordered for name in shard.part_names})
    numbers = {name: number for number, name in enumerate(part_names)}
    parts = [np.array([numbers[name] for name in shard.part_names], np.int32)[shard.parts] for shard in ordered]
    ends = np.cumsum([len(shard.sums) for shard in ordered])
    starts = {name: int(end) - len(shards[name].sums) for name, end in zip(sorted(shards), ends, strict=True)}

    def located(row: ScoredRow) -> ScoredRow:
        return replace(row, cell=starts[row.shard] + row.cell, score=row.score if uses_scores else row.label)

    labelled: dict[str, ScoredRow] = {}
    for shard in ordered:
        for id_, row in shard.labelled:
            if (other := labelled.setdefault(id_, row)) is not row:
                hint = "give one row for each response: pipeline.columns.id=NAME of a column with unique values"
                places = " and ".join(sorted({other.shard, row.shard}))
                raise UserError(f"id {shorten(id_)} is given twice", place=places, hint=hint)
    lots = [(lot, row.shard, row.place, row) for shard in ordered for lot, row in shard.drawn]

    def draw(count: int, rule: str, seed: int) -> tuple[list[ScoredRow], Wave]:
        assert rule == RANDOM, "other rules weigh all rows"
        drawn = [located(row) for *_, row in heapq.nsmallest(count, lots, key=lambda one: one[:3])]
        if (left := len(drawn)) < count:
            problem = f"{count:,} responses are to be labelled, and {left:,} are left without a label"
            raise UserError(problem, hint=f"ask for fewer: {left} at most")
        return drawn, Wave(RANDOM, float(count / (num_rows - len(labelled))))

    def texts(rows: Sequence[ScoredRow]) -> list[dict[str, str]]:
        places: dict[str, list[int]] = {}
        for row in rows:
            places.setdefault(row.shard, []).append(row.place)
        found = read_texts(places)
        return [found[row.shard][row.place] for row in rows]

    return VerdictTable(
        sums=sums,
        groups=groups,
        parts=None if columns.by is None else np.concatenate(parts),
        part_names=part_names,
        labelled={id_: located(row) for id_, row in labelled.items()},
        mean=mean,
        uses_scores=uses_scores,
        has_groups=columns.group is not None,
        mean_spread=float((spread + num_unread * np.sqrt(mean * (1 - mean))) / num_rows),
        draw=draw,
        texts=texts,
    )


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
        places: list[tuple[str, int]] = []
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
                        places += [(texts[int(place)].as_py(), num_rows + int(place)) for place in found]
                    else:
                        read[key].append(_map_values(column, *readers[key], file))
                num_rows += batch.num_rows
        if columns.id is None:
            by_name = ((id_, _place_of(id_, shard)) for id_ in sorted(ids))
            places = [(id_, place) for id_, place in by_name if 0 <= place < num_rows]
        labels = _concatenate(read["label"], np.float64)
        scores = _concatenate(read["score"], np.float64) if "score" in read else labels
        parts = _concatenate(read["by"], np.int32) if "by" in read else np.zeros(num_rows, np.int32)
        hashes = _concatenate(read["group"], np.uint64) if "group" in read else None
        cells = first = np.arange(num_rows)
        if hashes is not None:
            _, index = np.unique(hashes, return_inverse=True)
            number = index * max(1, len(part_numbers)) + parts
            _, first, cells = np.unique(number, return_index=True, return_inverse=True)

        def row_at(place: int) -> ScoredRow:
            score, label = float(scores[place]), float(labels[place])
            return ScoredRow(shard=shard, place=place, cell=int(cells[place]), score=score, label=label)

        sums = sum_rows(labels, scores)
        return ShardSums(
            sums=Groups(cells, len(first)).sums(sums),
            groups=None if hashes is None else hashes[first],
            parts=parts[first],
            part_names=list(part_numbers) or [""],
            num_rows=num_rows,
            spreads=(_spread(sums[:, SCORES]), _spread(sums[:, CALLED])),
            labelled=[(id_, row_at(place)) for id_, place in places],
            drawn=[(lot, row_at(place)) for lot, place in self._draw(shard, num_rows, [place for _, place in places])],
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
        num_rows: The rows that the shards had.
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


def _spread(scores: Values) -> float:
    return float(np.sqrt(scores * (1 - scores)).sum())


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
