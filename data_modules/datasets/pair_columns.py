"""Finds which column of a table of one's own holds what, as the settings say or by the usual names, and reads it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_modules.reading.fields import read_history
from data_modules.reading.rows import BadRow, Row, check_text
from faithkit.errors import UserError, nearest, shorten
from faithkit.passages import passage_text
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
            hint = f"name the field that has the text: {self.keys}columns.{name}={column}.{next(iter(value))}"
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
            raise BadRow(f"column {column!r} is missing or empty")
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
    """Finds the columns of a table by its first row.

    Args:
        given: What the settings say: a column, null for none, or `auto`, which is what is left out too.
        keys: How the keys of the settings begin that hints name.
        without: What is not looked for, and a table need not have.

    Raises:
        UserError: A column is not there, or several might hold the same.
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
    raise UserError(f"{keys}columns.{name}: there is no column {column!r}", place=row.file, hint=hint)


def _by_name(name: str, row: Row, keys: str) -> str | None:
    known = {_plain(column): column for column in reversed(list(row.values))}
    usual = NAMES[name]
    if usual[0] in known:
        return known[usual[0]]
    having = [known[one] for one in usual[1:] if one in known]
    if len(having) > 1:
        hint = f"{keys}columns.{name}={having[0]}"
        raise UserError(f"several columns may hold the {name}: {', '.join(having)}", place=row.file, hint=hint)
    if having or name not in REQUIRED:
        return having[0] if having else None
    hint = f"name it: {keys}columns.{name}=COLUMN; {have(row)}"
    raise UserError(f"no column holds the {name}", place=row.file, hint=hint)


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


def has_field(values: Mapping[str, Any], column: str) -> bool:
    """Tells whether a row has a column, or a field of an object in one."""
    return _find(values, column) is not None


def field_of(values: Mapping[str, Any], column: str | None) -> Any:
    """The value of a column, or of a field of an object in one; None where there is none."""
    found = _find(values, column) if column is not None else None
    return found[0] if found else None


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
