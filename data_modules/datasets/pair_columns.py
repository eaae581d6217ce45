"""Finds the columns of a user's table, by the settings or by usual names, and reads their values and labels.

Labels are words with one possible meaning, or what the settings say. 1 and 0 (true and false, yes and no) have no
meaning by themselves: in a column `hallucinated` 1 is hallucinated, in a column `supported` it is faithful, and in a
column `label` it could be either.
"""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_modules.reading import BadRow, Row, check_text, read_history
from faithkit.errors import UserError, nearest, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, TEXT_KEYS, Turn, passage_text

AUTO = "auto"  # the column is found by its name
REQUIRED = {  # the columns that a table must have, as errors describe them
    "knowledge": "the knowledge (the context that the answer must rest on: passages, documents)",
    "response": "the response (the answer that is checked)",
}

# Names by which a column is found, in any case and with any of _, - and space between words. The first one takes
# precedence; of the others a table may have one.
COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "knowledge": (
        *("knowledge", "context", "source", "document", "evidence", "premise", "passage", "reference text"),
        *("contexts", "retrieved contexts", "documents", "passages", "retrieved documents", "retrieved passages"),
        *("retrieved context", "retrieval context", "chunks"),
    ),
    "response": (
        *("response", "answer", "output", "claim", "hypothesis", "reply", "summary", "completion"),
        *("generated answer", "generated text", "model answer", "model output", "actual output"),
    ),
    "label": (
        *("label", "verdict", "hallucinated", "hallucination", "is hallucination", "is hallucinated"),
        *("faithful", "is faithful", "supported", "is supported", "unfaithful", "unsupported"),
    ),
    "history": ("history", "question", "query", "dialogue", "turns", "user input", "user query", "user question"),
    "id": ("id",),
    "group": ("group", "group id", "conversation", "dialogue id", "document id", "source id"),
    "spans": ("spans",),
}

MAX_LISTED = 12  # columns in an error
TEXT_FILES = (".csv", ".tsv", ".txt")  # their cells are texts, lists too
PYTHON_LISTS = ("['", '["', "[{'", '[{"')  # beginnings of a list of passages that Python, and so pandas, wrote as text
WORDS = {
    **dict.fromkeys(("hallucinated", "hallucination", "hallucinating", "unsupported", "not supported"), HALLUCINATED),
    **dict.fromkeys(("unfaithful", "not faithful", "ungrounded", "not grounded", "unattributable"), HALLUCINATED),
    **dict.fromkeys(("not attributable", "inconsistent"), HALLUCINATED),
    **dict.fromkeys(("faithful", "not hallucinated", "non hallucinated", "no hallucination"), FAITHFUL),
    **dict.fromkeys(("supported", "grounded", "attributable", "consistent"), FAITHFUL),
}
TRUE, FALSE = ("1", "1.0", "true", "yes", "t", "y"), ("0", "0.0", "false", "no", "f", "n")
MAX_VALUES = 6  # labels in an error
LEFT_OUT = "left_out"
BY_LABEL = {HALLUCINATED: HALLUCINATED, FAITHFUL: FAITHFUL, LEFT_OUT: None}
PLAIN_KEY = re.compile(r"(?!null\b)[a-z_][a-z0-9_./%?+-]*( [a-z0-9_./%?+-]+)*|0|-?[1-9]\d{0,8}|\d\.\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of a table by their meaning; None for a missing one. `a.b` is the field b of an object a.

    Args:
        keys: The prefix of the settings' keys in hints.
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
        """Yields each meaning with its column."""
        return ((name, column) for name in COLUMN_NAMES if (column := getattr(self, name)) is not None)

    def __str__(self) -> str:
        return " ".join(name if name == column else f"{name}={column}" for name, column in self.items())

    def text(self, row: Row, name: str) -> str:
        """Reads the text of a column, which must not be empty."""
        column = getattr(self, name)
        value = field_of(row.values, column)
        if isinstance(value, str) and value.strip():
            return check_text(value, column)
        if isinstance(value, Mapping) and value:
            texts = [key for key in value if isinstance(value[key], str)]
            inner = next((key for key in TEXT_KEYS if key in texts), next(iter([*texts, *value])))
            hint = f"name the field that has the text: {self.keys}columns.{name}={column}.{inner}"
            fields = shorten(", ".join(map(str, value)))[1:-1]
            raise BadRow(f"column {column!r} holds an object with {fields}", hint=hint)
        if value is None or isinstance(value, str):
            raise BadRow(f"column {column!r} is empty" if has_field(row.values, column) else f"no column {column!r}")
        raise BadRow(f"column {column!r} must be text, got {shorten(value)}")

    def texts(self, row: Row, name: str) -> list[str]:
        """Reads the text of a column, or its list of distinct passages.

        A passage is a text or an object with one. The cell of a CSV or TSV may hold the list as JSON.
        """
        column = getattr(self, name)
        value = field_of(row.values, column)
        if isinstance(value, str) and row.file.endswith(TEXT_FILES):
            # A text may be such as `[1]` or `[1, 2]`; a Python list's brackets and quotes would be judged as knowledge.
            parsed, stripped = parse_list(value), value.strip()
            if parsed is None and stripped.startswith(PYTHON_LISTS) and stripped.endswith("]"):
                hint = "write JSON lists, json.dumps(passages), or Parquet; these are Python lists written as text"
                raise BadRow(f"column {column!r} holds a list that is not JSON: {shorten(stripped, 60)}", hint=hint)
            has_passages = parsed is not None and any(isinstance(one, str | list | Mapping) for one in parsed)
            value = parsed if has_passages or parsed == [] else None
        if not isinstance(value, list):
            return [self.text(row, name)]
        texts = []
        for number, passage in enumerate(value):
            place = f"{column}[{number}]"
            try:
                text = passage_text(passage)
            except UserError as error:
                raise BadRow(f"field {place!r} is {error.problem}", hint=error.hint) from error
            texts.append(check_text(text, place, empty_ok=True))
        if not any(text.strip() for text in texts):
            raise BadRow(f"column {column!r} is empty")
        return list(dict.fromkeys(texts))

    def name(self, row: Row, name: str) -> str | None:
        """Reads the id or group of a row; None if no column has it."""
        column = getattr(self, name)
        if column is None:
            return None
        value = field_of(row.values, column)
        if value in (None, ""):
            hint = f"correct the row, or set {self.keys}columns.{name}=null, or {self.keys}on_bad_row=skip"
            raise BadRow(f"column {column!r} is missing or empty", hint=hint)
        if isinstance(value, list | dict):
            raise BadRow(f"column {column!r} must hold texts or numbers, got {shorten(value)}")
        return check_text(str(value), column)

    def turns(self, row: Row) -> tuple[Turn, ...]:
        """Reads the history: a list of texts or of {speaker, text}, also as JSON, or the last turn as a text."""
        history = field_of(row.values, self.history)
        if isinstance(history, str):
            history = parse_list(history) or [history]
        if isinstance(history, list):
            history = [turn for turn in history if not isinstance(turn, str) or turn.strip()]
        if not history:
            return ()
        try:
            turns = read_history(history, "")
        except UserError as error:
            raise BadRow(f"column {self.history!r}: {error.problem}") from error
        for turn in turns:
            check_text(turn.text, str(self.history))
        return turns


def find_columns(
    given: Mapping[str, str | None], row: Row, *, keys: str = "data.", without: Sequence[str] = ()
) -> Columns:
    """Finds the columns of a table.

    Args:
        given: The settings: a column, None for no column, or `auto` (the default).
        row: The first row. Rows of JSON may have different columns: there, a row with all of them.
        keys: The prefix of the settings' keys in hints.
        without: Meanings that are not looked for.

    Raises:
        UserError: A column is not found, or several columns could have one meaning.
    """
    columns: dict[str, list[str]] = {}  # by their normal names
    for column in row.values:
        columns.setdefault(normalise(column), []).append(column)
    found: dict[str, str | None] = {}
    for name, (first, *others) in COLUMN_NAMES.items():
        wanted = given.get(name, AUTO)
        if name in without or (wanted is None and name not in REQUIRED):
            continue
        if wanted not in (AUTO, None):
            if not has_field(row.values, str(wanted)):
                close = nearest(str(wanted), row.values, 1)
                hint = f"did you mean {keys}columns.{name}={close[0]}?" if close else list_columns(row)
                raise UserError(f"{keys}columns.{name}: there is no column {wanted!r}", place=row.file, hint=hint)
            found[name] = str(wanted)
            continue
        having = columns.get(first) or [column for other in others for column in columns.get(other, ())]
        if len(having) > 1:
            problem = f"several columns may hold the {name}: {', '.join(having)}"
            raise UserError(problem, place=row.file, hint=f"{keys}columns.{name}={having[0]}")
        if not having and name in REQUIRED:
            hint = f"name it: {keys}columns.{name}=COLUMN; {list_columns(row)}"
            raise UserError(f"no column holds {REQUIRED[name]}", place=row.file, hint=hint)
        found[name] = having[0] if having else None
    return Columns(**found, keys=keys)  # type: ignore[arg-type]


def list_columns(row: Row) -> str:
    """Lists the columns of a row, for a hint."""
    names = list(row.values)
    listed = ", ".join(shorten(name, 40)[1:-1] for name in names[:MAX_LISTED])
    return f"the file has {listed}{', ...' if len(names) > MAX_LISTED else ''}"


def check_column(row: Row, column: str, key: str) -> None:
    """Refuses a row without a column that results are counted by; `key` names the setting in the hint."""
    if not has_field(row.values, column):
        hint = f"{key}; {list_columns(row)}"
        raise BadRow(f"there is no column {column!r} to count by; {list_columns(row)}", hint=hint)


def normalise(value: object) -> str:
    """Normalises a name or a label: in lower case, with single spaces for _ and -; None gives an empty text."""
    return "" if value is None else " ".join(str(value).replace("_", " ").replace("-", " ").lower().split())


def has_field(values: Mapping[str, Any], column: str) -> bool:
    """Returns whether a row has a column, or a field of an object in one."""
    return _find(values, column) is not None


def field_of(values: Mapping[str, Any], column: str | None) -> Any:
    """Returns the value of a column, or of a field of an object in one; None if it is missing or NaN."""
    found = _find(values, column) if column is not None else None
    return none_if_nan(found[0]) if found else None


def none_if_nan(value: Any) -> Any:
    """Replaces NaN, as which pandas writes a missing value, by None."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _find(values: Mapping[str, Any], column: str) -> tuple[Any] | None:
    if column in values:
        return (values[column],)
    outer, _, inner = column.partition(".")
    inside = values.get(outer)
    return _find(inside, inner) if inner and isinstance(inside, Mapping) else None


def parse_list(text: str) -> list[Any] | None:
    """Parses a text that is a JSON list, such as the cell of a CSV; None for other text."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


@dataclass(slots=True)
class LabelReader:
    """Reads the labels of one column.

    Args:
        column: Its name, which may show what 1 and 0 mean.
        given: The settings: for each value hallucinated, faithful, or None to leave it out.
        keys: The prefix of the settings' keys in hints.
    """

    column: str
    given: Mapping[Any, Any] | None = None
    keys: str = "data."
    _meanings: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.given is not None:
            self._meanings = read_meanings(self.given, self.keys)
            return
        self._meanings = dict(WORDS)
        last = normalise(self.column.rpartition(".")[2]).removeprefix("is ").removeprefix("has ")
        if (truth := WORDS.get(last)) is not None:
            other = FAITHFUL if truth == HALLUCINATED else HALLUCINATED
            self._meanings |= {**dict.fromkeys(TRUE, truth), **dict.fromkeys(FALSE, other)}

    def knows(self, value: Any) -> bool:
        """Returns whether the value has a meaning."""
        return normalise(value) in self._meanings

    def read(self, value: Any) -> str | None:
        """Returns the label of a value with a meaning; None if its rows are left out."""
        return self._meanings[normalise(value)]

    def refuse(self, values: Iterable[Any], place: str) -> UserError:
        """Makes the error for a value without a meaning; the labels of `values`, the whole column, are counted."""
        counts: Counter[str] = Counter()
        for value in values:
            text = normalise(value)
            counts[text if text in counts or len(counts) < 1000 else "other"] += 1  # so many values are counted
        del counts[""]
        listed = ", ".join(f"{shorten(text)[1:-1]} ({count:,})" for text, count in counts.most_common(MAX_VALUES))
        more = f" and {len(counts) - MAX_VALUES:,} more" if len(counts) > MAX_VALUES else ""
        if len(counts) > 2:
            problem = f"column {self.column!r} holds {len(counts):,} labels, by rows: {listed}{more}"
            then = "; null leaves such rows out"
        else:
            problem = f"column {self.column!r} does not say what its labels mean, by rows: {listed}"
            then = ", or the other way round" if set(counts) <= {*TRUE, *FALSE} else ""
        # The setting is a guess; an unknown value takes a label that no other value has.
        guesses = {**dict.fromkeys(TRUE, HALLUCINATED), **dict.fromkeys(FALSE, FAITHFUL), **self._meanings}
        common = [value for value, _ in counts.most_common(MAX_VALUES)]
        taken = {guesses.get(value) for value in common}
        free = iter([label for label in (HALLUCINATED, FAITHFUL) if label not in taken])
        guessed = [(value, guesses.get(value) or next(free, None)) for value in common]
        setting = shlex.quote(f"{self.keys}labels={_as_setting(guessed)}")
        return UserError(problem, place=place, hint=f"{setting}{then}")


def read_meanings(given: Mapping[Any, Any], keys: str) -> dict[str, str | None]:
    """Reads the settings: `{1: hallucinated, 0: faithful, unsure: null}`, or by label `{hallucinated: [1], ...}`.

    Raises:
        UserError: They define neither hallucinated nor faithful.
    """
    usage = f"'{keys}labels={{1: hallucinated, 0: faithful}}'; null leaves rows of a label out"
    found: dict[str, str | None] = {}
    if not isinstance(given, Mapping):
        raise UserError(f"{keys}labels is {shorten(given)}", hint=usage)
    for value, label in given.items():
        if isinstance(label, list):
            if value not in BY_LABEL:
                raise UserError(f"{keys}labels: a list for {shorten(value)}", hint=usage)
            found |= {normalise(one): BY_LABEL[value] for one in label}
        elif label in (HALLUCINATED, FAITHFUL, None):
            found[normalise(value)] = label
        else:
            raise UserError(f"{keys}labels: {value} is {shorten(label)}", hint=usage)
    if not any(found.values()):
        raise UserError(f"{keys}labels names neither hallucinated nor faithful", hint=usage)
    return found


def _as_setting(pairs: Sequence[tuple[str, str | None]]) -> str:
    """Writes labels as Hydra reads them: a key cannot be quoted there, so unusual ones go into lists."""
    if all(PLAIN_KEY.fullmatch(value) for value, _ in pairs):
        inside = [f"{value}: {label or 'null'}" for value, label in pairs]
        return f"{{{', '.join(inside)}}}"
    by_label: dict[str, list[str]] = {}
    for value, label in pairs:
        quoted = re.sub(r'(\\*)("|$)', r"\1\1\2", value).replace('"', '\\"')  # backslashes count before a quote alone
        by_label.setdefault(label or LEFT_OUT, []).append(f'"{quoted}"')
    inside = [f"{label}: [{', '.join(values)}]" for label, values in by_label.items()]
    return f"{{{', '.join(inside)}}}"
