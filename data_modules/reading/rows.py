"""Raw rows with their place in a file, and a report that counts every row that is dropped or rejected.

A dataset takes values from a row by name. A value that is missing or wrong raises `BadRow`, which stops the run with
file, line, field and hint; with `on_bad_row=skip` it is counted and kept in the report's rejects.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from data_modules.reading.formats import XLSX, Broken, Parsed, parse_csv, parse_json, parse_tsv, parse_xlsx
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import not_utf8

Parser = Callable[[Path], Iterator[Parsed]]
READERS: Mapping[str, Parser] = {
    **{".jsonl": parse_json, ".json": parse_json},
    **{".tsv": parse_tsv, ".txt": parse_tsv, ".csv": parse_csv},
    XLSX: parse_xlsx,
}
LINED = READERS.keys() - {XLSX}  # files that have lines
NO_ROWS = "the file has no data rows"
EMPTY = "empty shards, left out"
REJECTED = "rejected: bad row"
MAX_REJECTS = 10_000  # that a report keeps: files of any size are read in flat memory


class BadRow(ValueError):
    """A row that is wrong; its place is added where the error is caught.

    Args:
        hint: None: to correct the row, or to leave it out.
    """

    def __init__(self, problem: str, *, hint: str | None = None):
        super().__init__(problem)
        self.hint = hint

    @classmethod
    def of(cls, error: ValueError) -> "BadRow":
        """Returns the error as a bad row: a record that refused to be built raises a plain `ValueError`."""
        return error if isinstance(error, cls) else cls(str(error))

    def within(self, part: str) -> "BadRow":
        """Returns the same problem with the part of the row that has it before it, for example `utterance 3`."""
        return BadRow(f"{part}: {self}", hint=self.hint)


@contextmanager
def reading(part: str) -> Iterator[None]:
    """Adds the part of a row that is read, for example `turn 3`, to the problem of a `BadRow`."""
    try:
        yield
    except BadRow as error:
        raise error.within(part) from error


@dataclass(frozen=True, slots=True)
class Row:
    """One raw row.

    Args:
        values: The row as its file has it.
        file: Path of the file, or `hub:NAME:SPLIT`.
        number: Position among the data rows, from 0: the same for everyone who reads the file.
        line: Line in the file, from 1; of files without lines the number of the row.
        name: Its id where rows are made of parts of a line, such as the turns of a conversation.
    """

    values: Mapping[str, Any]
    file: str
    number: int
    line: int
    name: str = ""

    @property
    def default_id(self) -> str:
        """`<file stem>:<row>`, for corpora without ids."""
        return self.name or f"{_stem(self.file)}:{self.number}"

    @property
    def place(self) -> str:
        return place_of(self.file, self.line)

    def layout(self, layouts: Mapping[str, Sequence[str]]) -> str:
        """Returns the name of the first layout of which the row has all fields."""
        for name, fields in layouts.items():
            if all(wanted in self.values for wanted in fields):
                return name
        wanted = "; or ".join(", ".join(fields) for fields in layouts.values())
        hint = "check that the path leads to this dataset's official files"
        raise BadRow(f"not a row of this dataset: looked for {wanted}; found {_names(self.values)}", hint=hint)

    def inside(self, values: object) -> "Row":
        """Returns an object within this row (for example an utterance) as a row with the same place."""
        if not isinstance(values, Mapping):
            raise BadRow(f"must be a JSON object, got {shorten(values)}")
        return replace(self, values=values)

    def items(self, name: str) -> list[Any]:
        """Returns the list under `name`."""
        value = self.values.get(name)
        if not isinstance(value, list):
            raise BadRow(f"field {name!r} must be a list, got {shorten(value)}")
        return value

    def texts(self, name: str) -> list[str]:
        """Returns the list of texts under `name`; they may be empty."""
        return [check_text(value, f"{name}[{index}]", empty_ok=True) for index, value in enumerate(self.items(name))]

    def text(self, name: str, *, empty_ok: bool = False) -> str:
        """Returns the text under `name`; it must be there, be text and, unless `empty_ok`, hold a visible character."""
        value = self.values.get(name)
        if value is None and empty_ok:
            return ""
        return check_text(value, name, empty_ok=empty_ok, have=self.values)

    def choice(self, name: str, choices: Mapping[str, Any]) -> Any:
        """Returns the value in `choices` for the text under `name` (outer spaces and case do not matter)."""
        key = " ".join(str(self.values.get(name)).split()).lower()
        if key not in choices:
            known = ", ".join(repr(choice) for choice in choices)
            raise BadRow(f"field {name!r} is {shorten(self.values.get(name))}; known: {known}")
        return choices[key]


@lru_cache(maxsize=8)  # rows of one file come one after the other
def _stem(file: str) -> str:
    return Path(file).stem


def place_of(file: str, line: int) -> str:
    """Describes a row's place: by its line, or by its number in files without lines."""
    suffix = Path(file).suffix
    return f"{file}, {'line' if suffix in LINED or file.startswith('hub:') else 'row'} {line}"


def _names(values: Mapping[str, Any]) -> str:
    return " ".join(", ".join(values).split())[:160] or "nothing"  # other files may "name" their whole text


def check_text(value: object, name: str, *, empty_ok: bool = False, have: Mapping[str, Any] | None = None) -> str:
    """Returns a value that must be text.

    Args:
        name: Its name in errors.
        have: The row; errors list its fields.
    """
    if not isinstance(value, str):
        row_has = f" (the row has: {_names(have)})" if have else ""
        raise BadRow(f"field {name!r} must be text, got {shorten(value)}{row_has}")
    if not empty_ok and not value.strip():
        raise BadRow(f"field {name!r} is empty")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:  # a lone "\ud83d" escape: no tokenizer and no file would take it
            raise BadRow(f"field {name!r} is not valid text: half a surrogate pair at {error.start}") from error
    return value


@dataclass(slots=True)
class ReadReport:
    """Counts what became of the rows that were read, and keeps the first rejected ones with their place.

    Args:
        on_bad_row: `stop` raises at the first bad row; `skip` counts it and goes on.
        keys: How the keys of the settings begin that hints name.
        evidence: What is the context of a conversation's turn: tools, user, system.
    """

    on_bad_row: str = "stop"
    keys: str = "data."
    evidence: Sequence[str] = ("tools",)
    counts: Counter[str] = field(default_factory=Counter)
    rejects: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.on_bad_row not in ("stop", "skip"):
            raise UserError(f"{self.keys}on_bad_row is {self.on_bad_row!r}", hint="use stop or skip")

    def count(self, outcome: str, by: int = 1) -> None:
        """Counts an outcome, for example `dropped: generic`."""
        self.counts[outcome] += by

    def reject(self, file: str, line: int, error: BadRow, values: object = None) -> None:
        """Stops the run, or counts and keeps the row, as `on_bad_row` says."""
        if self.on_bad_row == "stop":
            hint = error.hint or f"correct the row, or set {self.keys}on_bad_row=skip to leave it out"
            raise UserError(str(error), place=place_of(file, line), hint=hint) from error
        self.count(REJECTED)
        if len(self.rejects) < MAX_REJECTS:
            self.rejects.append({"file": file, "line": line, "problem": str(error), "row": shorten(values, 2000)})

    @contextmanager
    def rejecting(self, row: Row, part: str = "", values: object = None) -> Iterator[None]:
        """Rejects the row if what is read of it is bad, or refuses to be built.

        Args:
            part: The part of the row that is read, as `reading` adds it, which alone is rejected.
            values: That part.
        """
        try:
            yield
        except UserError:
            raise
        except ValueError as error:
            bad = BadRow.of(error)
            self.reject(row.file, row.line, bad.within(part) if part else bad, values if part else row.values)


def read_rows(path: Path, report: ReadReport, parse: Parser | None = None) -> Iterator[Row]:
    """Yields rows of a file by its suffix: .jsonl or .json (list or lines), .tsv (unquoted), .csv (quoted), .xlsx.

    Args:
        parse: Replaces the parser of its suffix.

    Raises:
        UserError: The file is missing, empty, not UTF-8 or of another layout.
    """
    if parse is None and path.suffix not in READERS:
        raise UserError(f"cannot read files of kind {path.suffix!r}", place=str(path), hint="use " + ", ".join(READERS))
    number = -1
    if path.exists() and not path.is_file():
        hint = "write it into a file first" if not path.is_dir() else "name a file in it"
        raise UserError("cannot read: it is not a plain file", place=str(path), hint=hint)
    try:
        for number, (line, values) in enumerate((parse or READERS[path.suffix])(path)):
            if isinstance(values, Broken):
                report.reject(str(path), line, BadRow(values.problem), values.raw)
            else:
                yield Row(values, str(path), number, line)
    except UnicodeDecodeError as error:
        raise not_utf8(path) from error
    except OSError as error:
        problem = (
            "the file does not exist" if isinstance(error, FileNotFoundError) else f"cannot read: {error.strerror}"
        )
        raise UserError(problem, place=str(path), hint=f"check {report.keys}path") from error
    if number < 0:
        hint = f"write rows into it, or set {report.keys}path to another file; a download may be incomplete"
        raise UserError(NO_ROWS, place=str(path), hint=hint)
