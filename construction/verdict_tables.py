"""Reads a detector's verdicts on responses from a file, or from shards of Parquet, of which only numbers are kept."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.dataset import dataset
from tqdm.auto import tqdm

from construction.labels import LABEL, LABELS, newest_names, read_name, read_number, require_columns, score_names
from data_modules.reading.rows import ReadReport, Row, read_rows
from data_modules.reading.shards import Shard, find_shards, opened, shown
from faithkit import signals
from faithkit.errors import UserError, shorten
from faithkit.provenance.row_keys import group_hash
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.spread import Values

BATCH = 65_536  # rows of a shard in memory with their texts
MAX_VALUES = 10_000  # of the column to count by
TEXTS = ("knowledge", "history", "response", "text")  # shown to annotators if a row has them
PARQUET_HINT = "scored shards are Parquet: faithkit score ... engine=ray writes them"
SCORES_HINT = "a probability lies in 0..1: pipeline.columns.score=NAME"
UNIQUE_HINT = "give one row for each response: pipeline.columns.id=NAME of a column with unique values"
NAN = float("nan")
COLUMN_TYPES = {"label": np.float64, "score": np.float64, "group": np.uint64, "by": np.intp}  # of the columns of shards
Columns = Mapping[str, str | None]  # the block `pipeline.columns`


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerdictTable:
    """A detector's verdicts, one row for each response.

    Args:
        labels: 1 for hallucinated, 0 for faithful, NaN for an unreadable verdict [N].
        scores: P(hallucinated), or the labels if there is none; the mean replaces missing ones [N].
        groups: The dialogue or source of each row.
        parts: The place in `part_names` of each row's value of the column to count by [N]; None without a column.
        part_names: The values in the order of their names.
        labelled: The rows that people labelled, by id.
        num_unread: Rows without a score.
        show: Reads the id and the texts of some rows, for annotators.
        is_sharded: Whether the rows are of shards.
    """

    labels: Values
    scores: Values
    groups: Groups
    parts: NDArray[np.intp] | None
    part_names: Sequence[str]
    labelled: Mapping[str, int]
    num_unread: int
    uses_scores: bool
    has_groups: bool
    show: Callable[[Sequence[int]], list[dict[str, str]]]
    is_sharded: bool = False

    @property
    def num_rows(self) -> int:
        """Counts the rows."""
        return len(self.labels)


def read_file(
    path: str,
    columns: Columns,
    by: str | None,
    ids: Collection[str],
    facts: Mapping[str, Mapping[str, Any]] | None = None,
) -> VerdictTable:
    """Reads the verdicts of a file.

    Args:
        ids: Of the rows that people labelled.
        facts: Further columns from a dataset, by id.

    Raises:
        UserError: A column is missing, an id is repeated or not in the dataset, or a value is not a verdict.
    """
    id_name = str(columns["id"])
    rows = []
    for row in read_rows(Path(path), ReadReport()):
        if facts is not None and id_name in row.values:
            if (name := str(row.values[id_name])) not in facts:
                hint = "name the dataset, split and options that these verdicts are of"
                raise UserError(f"the dataset has no response {shorten(name)}", place=row.place, hint=hint)
            filled = {key: value for key, value in row.values.items() if value not in (None, "")}
            row = replace(row, values={**row.values, **facts[name], **filled})
        rows.append(row)
    group = columns["group"] or ("group" if all("group" in row.values for row in rows) else None)
    named = [(f"columns.{key}", name) for key, name in columns.items() if name]
    require_columns(rows[0], path, [*named, *([("by", by)] if by else [])])
    names = [read_name(row, id_name) for row in rows]
    places = {name: place for place, name in enumerate(names)}
    if len(places) < len(rows):
        twice = next(name for place, name in enumerate(names) if places[name] != place)
        raise UserError(f"id {shorten(twice)} is given twice", place=path, hint=UNIQUE_HINT)
    label = _label_column(str(columns["label"]), rows[0].values)
    labels = np.array([_read_value(row, label, parse_label) for row in rows])
    usual = score_names(label, rows[0].values)
    score = columns["score"] or next(
        (name for name in usual if all(read_number(row.values.get(name)) is not None for row in rows)), None
    )
    scores = labels if score is None else np.array([_read_value(row, score, parse_score) for row in rows])
    part_names, parts = np.unique([str(row.values.get(by or "")) for row in rows], return_inverse=True)

    def show(chosen: Sequence[int]) -> list[dict[str, str]]:
        return [{"id": names[row], **_texts(rows[row].values)} for row in chosen]

    return VerdictTable(
        labels=labels,
        scores=_filled(scores, path),
        groups=Groups.of(names if group is None else [read_name(row, group) for row in rows]),
        parts=parts if by else None,
        part_names=part_names.tolist(),
        labelled={name: places[name] for name in ids if name in places},
        num_unread=int(np.isnan(scores).sum()),
        uses_scores=score is not None,
        has_groups=group is not None,
        show=show,
    )


def _read_value(row: Row, name: str, parse: Callable[[Any], float]) -> float:
    try:
        return parse(row.values.get(name))
    except ValueError as error:
        raise UserError(f"column {name!r} has {error}", place=row.place, hint="pipeline.columns") from error


def parse_label(value: Any) -> float:
    """Reads a verdict: 1 for hallucinated, 0 for faithful, NaN for none.

    Raises:
        ValueError: It is something else.
    """
    text = "" if value is None else str(value).strip().lower()
    if text not in LABELS and text not in ("", UNPARSED):
        raise ValueError(f"{shorten(value)}: use {HALLUCINATED}, {FAITHFUL} or {UNPARSED} (or 1 and 0)")
    return LABELS.get(text, NAN)


def parse_score(value: Any) -> float:
    """Reads a probability; NaN for none.

    Raises:
        ValueError: It is outside 0 and 1.
    """
    number = read_number(value)
    if number is not None and not 0 <= number <= 1:
        raise ValueError(f"{number}: {SCORES_HINT}")
    return NAN if number is None else number


def _label_column(name: str, columns: Collection[str]) -> str:
    """Finds the column of the verdicts: the one that scoring added last, if the data had another label."""
    return newest_names(columns, [LABEL])[LABEL] if name == LABEL else name


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: text for name in TEXTS if isinstance(text := values.get(name), str) and text}


def _filled(scores: Values, place: str) -> Values:
    """Replaces missing scores by the mean of the others."""
    known = np.isfinite(scores)
    if not known.any():
        hint = "pipeline.columns.label=NAME or pipeline.columns.score=NAME"
        raise UserError("no verdict can be used", place=place, hint=hint)
    return np.where(known, scores, scores[known].sum() / known.sum())


def read_shards(data: str, columns: Columns, by: str | None, ids: Collection[str] | None) -> VerdictTable:
    """Reads the verdicts of all shards of a folder, a glob or an address.

    Columns that are not named are found in the first shard by their usual names. If the data had a label or a
    probability already, those that scoring added are used.

    Args:
        ids: Of the rows that people labelled; None if no ids are needed.

    Raises:
        UserError: There are no shards, a column is missing, a value is not a verdict, or a labelled id occurs twice.
    """
    shards = [shard for shard in find_shards(data)[0] if shard.name.endswith(".parquet")]
    if not shards:
        raise UserError("there are no shards of Parquet", place=shown(data), hint=PARQUET_HINT)
    with opened(data, shards[0]) as file:
        reader = _ShardReader(_schema(file), columns, by, ids)
    starts: dict[str, int] = {}
    num_rows = 0
    for shard in tqdm(shards, "reading", unit="shard"):
        signals.check()
        starts[shard.name] = num_rows
        with opened(data, shard) as file:
            num_rows += reader.read(file, shard.name, num_rows)
    labels = reader.column("label")
    scores = reader.column("score") if "score" in reader.names else labels
    # Scores are used if they are named, or every row has one; otherwise the labels.
    uses_scores = "score" in reader.names and (columns["score"] is not None or bool(np.isfinite(scores).all()))
    scores = scores if uses_scores else labels
    index: NDArray[np.intp] = np.arange(num_rows)
    if "group" in reader.names:
        _, index = np.unique(reader.column("group"), return_inverse=True)
    order = sorted(reader.parts)
    numbers = np.argsort(np.array([reader.parts[name] for name in order], np.intp))

    def show(chosen: Sequence[int]) -> list[dict[str, str]]:
        found: dict[int, dict[str, str]] = {}
        ends = [*list(starts.values())[1:], num_rows]
        for shard, end in zip(shards, ends, strict=True):
            if rows := sorted(row for row in chosen if starts[shard.name] <= row < end):
                with opened(data, shard) as file:
                    found |= reader.show(file, shard, starts[shard.name], end, rows)
        return [found[row] for row in chosen]

    return VerdictTable(
        labels=labels,
        scores=_filled(scores, shown(data)),
        groups=Groups(index, int(index.max(initial=-1)) + 1),
        parts=numbers[reader.column("by")] if by else None,
        part_names=order,
        labelled=reader.labelled,
        num_unread=int(np.isnan(scores).sum()),
        uses_scores=uses_scores,
        has_groups="group" in reader.names,
        show=show,
        is_sharded=True,
    )


class _ShardReader:
    """Reads the columns of shards, one shard after another.

    Args:
        schema: Of the first shard, in which columns without a name are found.
        ids: Of the rows that people labelled; None if no ids are needed.

    Attributes:
        names: The columns by what they contain.
        parts: Their numbers, by value of the column to count by.
    """

    def __init__(self, schema: Any, columns: Columns, by: str | None, ids: Collection[str] | None):
        self.id_column, self.ids = columns["id"], ids
        label, known = _label_column(str(columns["label"]), schema.names), set(schema.names)
        usual = (name for name in score_names(label, known) if name in known and _is_number(schema.field(name).type))
        score = columns["score"] or next(usual, None)
        group = columns["group"] or ("group" if "group" in known else None)
        names = {"label": label, "score": score, "group": group, "by": by}
        self.names = {key: name for key, name in names.items() if name is not None}
        self.parts: dict[str, int] = {}
        self.labelled: dict[str, int] = {}
        self._read: dict[str, list[NDArray[Any]]] = {key: [np.empty(0, kind)] for key, kind in COLUMN_TYPES.items()}
        self._shard_of: dict[str, str] = {}  # of labelled ids

    def column(self, key: str) -> NDArray[Any]:
        """Joins a column of all shards."""
        return np.concatenate(self._read[key])

    def read(self, file: Path, shard: str, start: int) -> int:
        """Reads a shard, and counts its rows.

        Args:
            start: The number of rows in the shards before.
        """
        with_id = {"id": self.id_column} if self.id_column is not None and self.ids is not None else {}
        found = _schema(file).names
        for key, name in {**self.names, **with_id}.items():
            if name not in found:
                setting = "pipeline.by" if key == "by" else f"pipeline.columns.{key}"
                or_null = ", or null to name rows SHARD:PLACE" if key == "id" else ""
                hint = f"{setting}=NAME{or_null}; the shard has {shorten(', '.join(found), 200)[1:-1]}"
                raise UserError(f"there is no column {name!r}", place=str(file), hint=hint)
        wanted = pa.array(sorted(self.ids or ()), pa.string())
        num_rows = 0
        columns = list(dict.fromkeys([*self.names.values(), *with_id.values()]))
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(BATCH, columns=columns):
                for key, name in self.names.items():
                    self._read[key].append(self._numbers(batch.column(name), key, file))
                for name in with_id.values():
                    texts = batch.column(name).cast(pa.string())
                    is_wanted = pc.is_in(texts, value_set=wanted).to_numpy(zero_copy_only=False)
                    for row in np.flatnonzero(is_wanted).tolist():
                        self._add_labelled(texts[row].as_py(), start + num_rows + row, shard)
                num_rows += batch.num_rows
        for id_ in (self.ids or ()) if self.id_column is None else ():
            place = id_.rpartition(":")[2]
            is_place = place.isdecimal() and place.isascii() and int(place) < num_rows
            if is_place and id_ == place_name(shard, int(place)):
                self._add_labelled(id_, start + int(place), shard)
        return num_rows

    def _add_labelled(self, id_: str, row: int, shard: str) -> None:
        if id_ in self.labelled:
            places = " and ".join(dict.fromkeys([self._shard_of[id_], shard]))
            raise UserError(f"id {shorten(id_)} is given twice", place=places, hint=UNIQUE_HINT)
        self.labelled[id_], self._shard_of[id_] = row, shard

    def _numbers(self, column: Any, key: str, file: Path) -> NDArray[Any]:
        """Reads labels, scores, hashes of groups or numbers of parts; each distinct value once."""
        try:
            if key == "score":
                if not _is_number(column.type):
                    raise ValueError(f"no numbers, but {column.type}")
                scores = np.array(column.to_numpy(zero_copy_only=False), np.float64)
                scores[~np.isfinite(scores)] = NAN
                if len(wrong := scores[(scores < 0) | (scores > 1)]):
                    raise ValueError(f"{wrong[0]}: {SCORES_HINT}")
                return scores
            encoded = column.dictionary_encode(null_encoding="encode")
            parsed: list[float] = []
            for value in encoded.dictionary.to_pylist():
                if key == "label":
                    parsed.append(parse_label(value))
                elif key == "by":
                    parsed.append(self.parts.setdefault(str(value), len(self.parts)))
                    if parsed[-1] >= MAX_VALUES:
                        raise ValueError(f"more than {MAX_VALUES:,} values")
                elif value in (None, "") or isinstance(value, list | dict):
                    raise ValueError("a row without a value")
                else:
                    parsed.append(group_hash(str(value)))
            values = np.array(parsed, COLUMN_TYPES[key])
        except (ValueError, NotImplementedError) as error:  # lists have no dictionary
            hint = "name a column of texts or numbers: pipeline.by, pipeline.columns"
            raise UserError(f"column {self.names[key]!r} has {error}", place=str(file), hint=hint) from error
        return values[encoded.indices.to_numpy()] if len(values) else values

    def show(self, file: Path, shard: Shard, start: int, end: int, rows: Sequence[int]) -> dict[int, dict[str, str]]:
        """Reads the ids and texts of some rows of a shard by their numbers.

        Raises:
            UserError: The shard has changed.
        """
        if pq.read_metadata(file).num_rows != end - start:
            hint = "run the same command again when the shards no longer change"
            raise UserError("the shard was written while it was read", place=shard.name, hint=hint)
        names = [name for name in _schema(file).names if name in (*TEXTS, self.id_column)]
        taken = dataset(file, format="parquet").take(pa.array(np.array(rows) - start), columns=names or None)
        found = {}
        for row, values in zip(rows, taken.to_pylist(), strict=True):
            id_ = str(values[self.id_column]) if self.id_column else place_name(shard.name, row - start)
            found[row] = {"id": id_, **_texts(values)}
        return found


def place_name(shard: str, row: int) -> str:
    """Names a row by its shard and its place there, from 0: `day=1/part-0:17`."""
    return f"{PurePosixPath(shard).with_suffix('')}:{row}"


def _schema(file: Path) -> Any:
    try:
        return pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError("no file of Parquet", place=str(file), hint=PARQUET_HINT) from error


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
