"""Finds which column of a table of one's own holds what, as the settings say or by the usual names, and reads it."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_modules.reading.fields import read_history
from data_modules.reading.rows import BadRow, Row, check_text
from faithkit.errors import UserError, nearest, shorten
from faithkit.passages import TEXT_KEYS, passage_text
from faithkit.records import Turn

AUTO = "auto"  # the column is found by its name
REQUIRED = ("knowledge", "response")
# Names by which a column is found, in any case and with any of _, - and space between words. The first one counts
# alone where a table has it; of the others a table may have one.
NAMES: Mapping[str, tuple[str, ...]] = {
    "knowledge": (
        *("knowledge", "context", "source", "document", "evidence", "premise", "passage", "reference text"),
        *("contexts", "retrieved contexts", "documents", "passages"),
    ),
    "response": ("response", "answer", "output", "claim", "hypothesis", "reply", "summary", "completion"),
    "label": (
        *("label", "verdict", "hallucinated", "hallucination", "is hallucination", "is hallucinated"),
        *("faithful", "is faithful", "supported", "is supported", "unfaithful", "unsupported"),
    ),
    "history": ("history", "question", "query", "dialogue", "turns", "user input"),
    "id": ("id",),
    "group": ("group", "group id", "dialogue id", "document id", "source id"),
    "spans": ("spans",),
}
MOST_NAMES = 12  # of columns, in an error
CELLS = (".csv", ".tsv", ".txt")  # files whose cells are texts, lists too
PYTHON_LISTS = ("['", '["', "[{'", '[{"')  # how a list of passages begins that Python, and so pandas, wrote as text


class NoColumn(UserError):
    """A column that the settings name is not there; a further row of JSON may have it."""

    def __init__(self, problem: str, *, column: str, place: str, hint: str):
        super().__init__(problem, place=place, hint=hint)
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of a table by what they hold; None where there is none. `a.b` is the field b of an object a.

    Args:
        keys: How the keys of the settings begin that hints name.
    """

    knowledge: str
    response: str | None = None
    label: str | None = None
    history: str | None = None
    id: str | None = None
    group: str | None = None
    spans: str | None = None
    keys: str = "data."

    def items(self) -> Iterator[tuple[str, str]]:
        """Yields what there is, with its column."""
        return ((name, column) for name in NAMES if (column := getattr(self, name)) is not None)

    def __str__(self) -> str:
        return " ".join(name if name == column else f"{name}={column}" for name, column in self.items())

    def text(self, row: Row, name: str) -> str:
        """The text of a column, which must be there and not be empty."""
        column = getattr(self, name)
        value = field_of(row.values, column)
        if isinstance(value, str) and value.strip():
            return check_text(value, column)
        if isinstance(value, Mapping) and value:
            texts = [key for key in value if isinstance(value[key], str)]
            inner = next((key for key in TEXT_KEYS if key in texts), next(iter([*texts, *value])))
            hint = f"name the field that has the text: {self.keys}columns.{name}={column}.{inner}"
            inside = shorten(", ".join(map(str, value)))[1:-1]
            raise BadRow(f"column {column!r} holds an object with {inside}", hint=hint)
        if value is None or isinstance(value, str):
            raise BadRow(f"column {column!r} is empty" if has_field(row.values, column) else f"no column {column!r}")
        raise BadRow(f"column {column!r} must be text, got {shorten(value)}")

    def texts(self, row: Row, name: str) -> list[str]:
        """The text of a column, or its list of passages; one that stands there twice counts once.

        A passage is a text or an object with one. The cell of a CSV or TSV may hold the list as JSON.
        """
        column = getattr(self, name)
        value = field_of(row.values, column)
        if isinstance(value, str) and row.file.endswith(CELLS):
            value = _passages_in(value, column)
        if not isinstance(value, list):
            return [self.text(row, name)]
        texts = [_read_passage(passage, f"{column}[{place}]") for place, passage in enumerate(value)]
        if not any(text.strip() for text in texts):
            raise BadRow(f"column {column!r} is empty")
        return list(dict.fromkeys(texts))

    def name(self, row: Row, name: str) -> str | None:
        """The id or group that a row names; None where no column has it."""
        column = getattr(self, name)
        if column is None:
            return None
        value = field_of(row.values, column)
        if value in (None, ""):
            without = f"{self.keys}columns.{name}=null to do without the column"
            hint = f"correct the row, or set {without}, or {self.keys}on_bad_row=skip to leave such rows out"
            raise BadRow(f"column {column!r} is missing or empty", hint=hint)
        if isinstance(value, list | dict):
            raise BadRow(f"column {column!r} must hold texts or numbers, got {shorten(value)}")
        return check_text(str(value), column)

    def turns(self, row: Row) -> tuple[Turn, ...]:
        """The history: a list of texts or of {speaker, text}, also as JSON, or the last turn as a text."""
        said = field_of(row.values, self.history)
        if isinstance(said, str):
            said = list_in(said) or [said]
        if isinstance(said, list):
            said = [turn for turn in said if not isinstance(turn, str) or turn.strip()]
        if not said:
            return ()
        try:
            turns = read_history(said, "")
        except UserError as error:
            raise BadRow(f"column {self.history!r}: {error.problem}") from error
        for turn in turns:
            check_text(turn.text, str(self.history))
        return turns


def find_columns(
    given: Mapping[str, str | None], row: Row, *, keys: str = "data.", without: Sequence[str] = ()
) -> Columns:
    """Finds the columns of a table by a row that has them all.

    Args:
        given: What the settings say: a column, null for none, or `auto`, which is what is left out too.
        row: The first row; of JSON, whose rows have names of their own each, one with the names of many.
        keys: How the keys of the settings begin that hints name.
        without: What is not looked for, and a table need not have.

    Raises:
        NoColumn: A column that the settings name is not there.
        UserError: A column that must be there is not found, or several might hold the same.
    """
    found: dict[str, str | None] = {}
    for name in NAMES:
        wanted = given.get(name, AUTO)
        if name in without or (wanted is None and name not in REQUIRED):
            continue
        found[name] = _by_name(name, row, keys) if wanted in (AUTO, None) else _given(name, str(wanted), row, keys)
    return Columns(**found, keys=keys)  # type: ignore[arg-type]


def _given(name: str, column: str, row: Row, keys: str) -> str:
    if has_field(row.values, column):
        return column
    close = nearest(column, row.values, 1)
    hint = f"did you mean {keys}columns.{name}={close[0]}?" if close else have(row)
    problem = f"{keys}columns.{name}: there is no column {column!r}"
    raise NoColumn(problem, column=column, place=row.file, hint=hint)


def _by_name(name: str, row: Row, keys: str) -> str | None:
    known: dict[str, list[str]] = {}
    for column in row.values:
        known.setdefault(_plain(column), []).append(column)
    usual = NAMES[name]
    having = known.get(usual[0]) or [column for one in usual[1:] for column in known.get(one, ())]
    if len(having) > 1:
        hint = f"{keys}columns.{name}={having[0]}"
        raise UserError(f"several columns may hold the {name}: {', '.join(having)}", place=row.file, hint=hint)
    if having or name not in REQUIRED:
        return having[0] if having else None
    hint = f"name it: {keys}columns.{name}=COLUMN; {have(row)}"
    raise UserError(f"no column holds the {name}", place=row.file, hint=hint)


def late_column(column: str, row: Row, columns: Columns) -> UserError:
    """The error for a column with a usual name that is met when the columns are chosen already.

    Args:
        row: The row that has it.
        columns: Those that are chosen.
    """
    name = next(name for name, usual in NAMES.items() if _plain(column) in usual)
    chosen, key = getattr(columns, name), f"{columns.keys}columns.{name}"
    without = f"read {chosen!r} alone" if chosen else "do without it"
    hint = f"set {key}={column} to read it, or {key}={chosen or 'null'} to {without}"
    problem = f"column {column!r} may hold the {name}, but the first rows lack it"
    return UserError(problem, place=row.place, hint=hint)


def is_usual(column: object) -> bool:
    """Tells whether a column could be found by its name."""
    return _plain(column) in _USUAL


def have(row: Row) -> str:
    """Lists the columns of a row, for a hint."""
    names = list(row.values)
    listed = ", ".join(shorten(name, 40)[1:-1] for name in names[:MOST_NAMES])
    return f"the file has {listed}{', ...' if len(names) > MOST_NAMES else ''}"


def check_column(row: Row, column: str, key: str) -> None:
    """Refuses a row without a column that rows are told apart by.

    Args:
        key: Names it, as a hint has it.

    Raises:
        BadRow: There is none.
    """
    if not has_field(row.values, column):
        raise BadRow(f"there is no column {column!r} to count by; {have(row)}", hint=f"{key}; {have(row)}")


def _plain(name: object) -> str:
    return " ".join(str(name).replace("_", " ").replace("-", " ").lower().split())


_USUAL = frozenset(one for usual in NAMES.values() for one in usual)


def has_field(values: Mapping[str, Any], column: str) -> bool:
    """Tells whether a row has a column, or a field of an object in one."""
    return _find(values, column) is not None


def field_of(values: Mapping[str, Any], column: str | None) -> Any:
    """The value of a column, or of a field of an object in one; None where there is none, or NaN."""
    found = _find(values, column) if column is not None else None
    return none_if_nan(found[0]) if found else None


def none_if_nan(value: Any) -> Any:
    """Gives None for NaN, as which pandas writes a value that is missing; any other value as it is."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _find(values: Mapping[str, Any], column: str) -> tuple[Any] | None:
    if column in values:
        return (values[column],)
    outer, _, inner = column.partition(".")
    inside = values.get(outer)
    return _find(inside, inner) if inner and isinstance(inside, Mapping) else None


def _passages_in(cell: str, column: str) -> list[Any] | None:
    """The list of passages that a cell holds as JSON; None of a text, brackets around a number or two included.

    Raises:
        BadRow: It is a list that Python wrote: its brackets and quotes would be judged as knowledge.
    """
    found = list_in(cell)
    if found is not None:
        return found if not found or any(isinstance(one, str | list | Mapping) for one in found) else None
    stripped = cell.strip()
    if stripped.startswith(PYTHON_LISTS) and stripped.endswith("]"):
        hint = "write JSON lists, json.dumps(passages), or Parquet; these are Python lists written as text"
        raise BadRow(f"column {column!r} holds a list that is no JSON: {shorten(stripped, 60)}", hint=hint)
    return None


def _read_passage(passage: Any, place: str) -> str:
    try:
        text = passage_text(passage)
    except UserError as error:
        raise BadRow(f"field {place!r} is {error.problem}", hint=error.hint) from error
    return check_text(text, place, empty_ok=True)


def list_in(text: str) -> list[Any] | None:
    """The list that a text holds as JSON, as a cell of a CSV does; None of a text that only begins like one."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None
