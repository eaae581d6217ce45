"""Writes rows as a table, one by one, in any format that is read; and rows of one's own with their verdicts."""

import codecs
import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from construction.estimate.verdict_columns import VERDICT, added_names
from data_modules.reading.saved_datasets import arrow_schema
from data_modules.reading.tables import text_format
from faithkit.files.atomic import atomic_file, disk_errors, dumps
from faithkit.records import Example, Prediction
from faithkit_workflows.tables.user_table import OwnRows

ADDED = VERDICT
ANSWER = "response"
Count = Callable[[Mapping[str, Any], Example | None, Prediction | None], object]
BATCH = 1024  # rows of Parquet that are written at a time


def write_scored(
    path: Path,
    rows: OwnRows,
    predictions: Iterable[Prediction],
    count: Count | None = None,
    added: Sequence[str] = ADDED,
) -> None:
    """Writes the rows as they were, in the format of the path's suffix, with label, probability and spans added.

    Columns of the file's own that have these names keep them, and ours have others
    (`construction.estimate.verdict_columns`).

    Args:
        predictions: Of the rows that can be judged, in their order.
        count: Is told each row, its example and its prediction.
        added: Columns that are added; with ANSWER among them the predictions are answers, and the spans are theirs.
    """
    names = names_added(rows, added)
    judged = _with_predictions(rows, iter(predictions), count)
    scored = (
        {**row, **{names[name]: value for name, value in _verdict(example, prediction, added).items()}}
        for row, example, prediction in judged
    )
    header = [*rows.kinds, *(names[name] for name in added)]
    if path.suffix == ".parquet":
        _write_parquet(path, scored, scored_schema(rows, added), rows.kinds)
        return
    delimiter, mark = ",", b""
    source = Path(rows.path)
    if path.suffix == source.suffix == ".csv":  # as who wrote the file reads it
        delimiter = text_format(source, rows.encoding).delimiter
        mark = codecs.BOM_UTF8 if _has_mark(source) else b""
    _write(path, chain([mark], _lines(path.suffix, scored, header, delimiter)))


def names_added(rows: OwnRows, added: Sequence[str] = ADDED) -> dict[str, str]:
    """Names the columns that are added to the rows; an answer's has its own number, whatever the verdicts have."""
    verdict = [name for name in added if name != ANSWER]
    return {**added_names(rows.kinds, [ANSWER]), **added_names(rows.kinds, verdict)}


def tell_names(names: Mapping[str, str]) -> None:
    """Says where the verdicts stand, unless their columns have the plain names."""
    if names["label"] != "label":
        told = ", ".join(names[name] for name in ADDED)
        print(f"note: the verdicts stand in {told}, since the table had some of {', '.join(ADDED)} already")


def scored_suffix(path: str) -> str:
    """The format in which the rows of a file are written back: its own, and Parquet for a saved dataset."""
    return ".parquet" if Path(path).expanduser().is_dir() else Path(path).suffix


def _has_mark(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(3).startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _with_predictions(
    rows: OwnRows, predictions: Iterator[Prediction], count: Count | None
) -> Iterator[tuple[Mapping[str, Any], Example | None, Prediction | None]]:
    for row, example in rows:
        prediction = None if example is None else next(predictions)
        assert prediction is None or example is None or prediction.id == example.id, "the order is that of the rows"
        if count is not None:
            count(row, example, prediction)
        yield row, example, prediction


def _verdict(example: Example | None, prediction: Prediction | None, added: Sequence[str]) -> dict[str, Any]:
    if example is None or prediction is None:
        return dict.fromkeys(added)
    judged = prediction.text if ANSWER in added else example.response
    spans = [
        {"start": s.start, "end": s.end, "text": judged[s.start : s.end], "label": s.label, "score": s.score}
        for s in prediction.spans
    ]
    found = {ANSWER: judged, "label": prediction.label, "probability": prediction.score, "spans": spans}
    return {name: found[name] for name in added}


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], delimiter: str) -> None:
    """Writes rows as .csv or .tsv, with the columns of them all in order of appearance."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    _write(path, _lines(".tsv" if delimiter == "\t" else ".csv", rows, header, delimiter))


def _write(path: Path, parts: Iterable[bytes]) -> None:
    with atomic_file(path) as file:
        for part in parts:
            with disk_errors(path):
                file.write(part)


def _lines(suffix: str, rows: Iterable[Mapping[str, Any]], header: Sequence[str], delimiter: str) -> Iterator[bytes]:
    if suffix == ".csv":
        return _csv_lines(rows, header, delimiter)
    if suffix == ".tsv":
        return _csv_lines(rows, header, "\t")
    return _json_list(rows) if suffix == ".json" else (f"{_json(row)}\n".encode() for row in rows)


def _csv_lines(rows: Iterable[Mapping[str, Any]], header: Sequence[str], delimiter: str) -> Iterator[bytes]:
    for cells in chain([list(header)], ([_cell(row.get(name)) for name in header] for row in rows)):
        text = io.StringIO(newline="")
        # csv quotes what holds the end of a line as it writes it, but takes a carriage return for one when it reads.
        quoting: Any = csv.QUOTE_ALL if any("\r" in cell for cell in cells) else csv.QUOTE_MINIMAL
        csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=quoting).writerow(cells)
        yield text.getvalue().encode()


def _json_list(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    before = "[\n"
    for row in rows:
        text = _json(row, indent=2).replace("\n", "\n  ")
        yield f"{before}  {text}".encode()
        before = ",\n"
    yield b"\n]\n" if before == ",\n" else b"[]\n"


def _json(row: Mapping[str, Any], indent: int | None = None) -> str:
    try:
        return dumps(row, indent=indent)
    except (TypeError, ValueError):  # dates, bytes and NaN of Parquet
        return dumps(_as_json(row), indent=indent)


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    plain = isinstance(value, str) or not isinstance(value, bool | int | float | list | dict)
    text = str(value) if plain else json.dumps(_as_json(value), ensure_ascii=False)
    return _whole(text)


def _whole(text: str) -> str:
    """A text with half a surrogate pair of a JSON file as its escape."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _write_parquet(path: Path, scored: Iterator[dict[str, Any]], schema: Any, own: Iterable[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [name for name in own if pa.types.is_string(schema.field(name).type)]
    with atomic_file(path) as file, disk_errors(path), pq.ParquetWriter(file, schema) as writer:
        while batch := list(islice(scored, BATCH)):
            for row in batch:
                row |= {name: _cell(row[name]) for name in texts if row.get(name) is not None}
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def scored_schema(rows: OwnRows, added: Sequence[str] = ADDED) -> Any:
    """The columns of the rows with those that are added, and their types, as Parquet has them."""
    import pyarrow as pa

    names = names_added(rows, added)
    own = arrow_schema(rows.table) or pa.schema([(name, _arrow_type(kinds)) for name, kinds in rows.kinds.items()])
    places: list[Any] = [("start", pa.int64()), ("end", pa.int64()), ("text", pa.string()), ("label", pa.string())]
    spans = pa.list_(pa.struct([*places, ("score", pa.float64())]))
    types = {ANSWER: pa.string(), "label": pa.string(), "probability": pa.float64(), "spans": spans}
    return pa.schema([*own, *(pa.field(names[name], types[name]) for name in added)])


def _arrow_type(kinds: set[type]) -> Any:
    import pyarrow as pa

    known = kinds - {type(None)}
    types = {frozenset({bool}): pa.bool_(), frozenset({float}): pa.float64(), frozenset({int, float}): pa.float64()}
    return types.get(frozenset(known), pa.string())  # whole numbers too: they may be of any size
