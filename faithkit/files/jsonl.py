"""Reads and writes JSON and JSON lines: atomic when written, checked with file and line when read.

`write_jsonl` (and `write_json`) replace a file in one step. `JsonlAppender` is for long work that may be interrupted:
each row is in the file when `append` returns, and reopening drops an incomplete row.
"""

import fcntl
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

from faithkit.errors import UserError, choice_hint, shorten
from faithkit.files.atomic import atomic_file, disk_errors, dumps, make_folder, sync
from faithkit.records import UNPARSED, Prediction

PREDICTIONS_HINT = (
    "predictions are JSON lines with id and label (docs/reference/formats.md); `faithkit score` keeps those of a table "
    "in RUN/predictions/"
)
SCORED = "faithkit_label"  # the column of `faithkit score` if the table already has a label
SPACE = " \t\r\n"  # JSON's white space; str.strip() removes more


def write_jsonl(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Writes rows as JSON lines, replacing the file in one step; the same rows give the same bytes.

    Returns:
        The number of rows.
    """
    count = 0
    with atomic_file(path) as file:
        for row in rows:
            with disk_errors(path):  # only the write: reading the rows may fail for other reasons
                file.write(f"{dumps(row)}\n".encode())
            count += 1
    return count


class JsonlAppender:
    """Appends rows to a JSON lines file, which it locks for one process.

    An interrupted run may leave an incomplete last line, and a power cut zero bytes: opening drops them and everything
    after them, and `dropped_bytes` counts it. A row that cannot be written completely (a full disk) is removed.
    """

    def __init__(self, path: str | Path):
        self.path, self.dropped_bytes = Path(path), 0
        with disk_errors(path):
            make_folder(self.path.parent)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with disk_errors(path):
                end = os.lseek(self._handle, 0, os.SEEK_END)
                self._size = _find_end(self._handle, end)
                self.dropped_bytes = end - self._size
                if self.dropped_bytes:
                    os.ftruncate(self._handle, self._size)
                sync(self.path.parent)
        except BlockingIOError as error:
            os.close(self._handle)
            hint = "wait for it to end, or set another run_dir"
            raise UserError("another process is writing this file", place=str(path), hint=hint) from error
        except BaseException:  # also at Ctrl-C: the lock must not remain
            os.close(self._handle)
            raise

    def append(self, row: Mapping[str, Any]) -> bytes:
        """Appends one row, which survives the end of this process (and after `sync` a power cut); returns its line."""
        line = f"{dumps(row)}\n".encode()
        data = memoryview(line)
        with disk_errors(self.path):
            try:
                if os.fstat(self._handle).st_size != self._size:  # an earlier row failed and could not be removed
                    os.ftruncate(self._handle, self._size)
                written = 0
                while written < len(data):
                    written += os.write(self._handle, data[written:])
            except BaseException:  # no incomplete row may remain
                with suppress(OSError):
                    os.ftruncate(self._handle, self._size)
                raise
        self._size += len(data)
        return line

    def sync(self) -> None:
        """Waits until all rows are on the disk itself."""
        with disk_errors(self.path):
            os.fsync(self._handle)

    def close(self) -> None:
        """Syncs and closes the file; closing twice is harmless."""
        if self._handle >= 0:
            try:
                self.sync()
            finally:
                os.close(self._handle)
                self._handle = -1

    def __enter__(self) -> "JsonlAppender":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _find_end(handle: int, end: int) -> int:
    """Finds the position after the last line break before any zero byte, which no row contains."""
    for start in range(0, end, 1 << 20):
        found = os.pread(handle, 1 << 20, start).find(b"\0")
        if found >= 0:
            end = start + found
            break
    while end > 0:  # backwards, in a file that may be large
        start = max(0, end - (1 << 16))
        found = os.pread(handle, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def parse_lines(path: str | Path) -> Iterator[tuple[int, str, Any]]:
    """Yields the number (from 1), text and value of each line of a JSON lines file.

    The value of an invalid line is the exception. Blank lines and a byte order mark are skipped.

    Raises:
        UnicodeDecodeError: The file is not UTF-8; its offset is relative to a block.
    """
    with Path(path).open(encoding="utf-8-sig", newline="\n") as file:
        for number, text in enumerate(file, start=1):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:  # ValueError: a number with thousands of digits
                if text.strip(SPACE) in ("", "\ufeff"):
                    continue
                value = error
            yield number, text, value


def read_jsonl(path: str | Path) -> Iterator[dict[str, Any]]:
    """Reads the rows of a JSON lines file; blank lines are skipped.

    Raises:
        UserError: The file is missing, or a line is not UTF-8, not JSON or not an object; with file and line.
    """
    for _, row in read_numbered_jsonl(path):
        yield row


def read_numbered_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Does the same as `read_jsonl`, with the number of each row's line, from 1."""
    if Path(path).exists() and not Path(path).is_file():  # a pipe may block, and a device never end
        raise UserError("cannot be read: it is not a regular file", place=str(path), hint="name a readable file")
    try:
        for line, text, value in parse_lines(path):
            place = f"{path}, line {line}"
            if isinstance(value, Exception):
                cut = "" if text.endswith("\n") else " (the last line: perhaps incomplete)"
                raise UserError(f"broken JSON{cut}: {value}", place=place, hint="correct or delete the line")
            if not isinstance(value, dict):
                problem = f"a row must be a JSON object, got {shorten(value)}"
                raise UserError(problem, place=place, hint="one object a line")
            yield line, value
    except UnicodeDecodeError as error:
        raise not_utf8(path) from error
    except FileNotFoundError as error:
        raise UserError("the file does not exist", place=str(path), hint="check the path") from error
    except (IsADirectoryError, PermissionError) as error:
        raise UserError(f"cannot be read: {error.strerror}", place=str(path), hint="name a readable file") from error


def find_other_byte(path: str | Path) -> tuple[int, int, bytes]:
    """Finds the first byte that is not UTF-8, which a decoder that reads blocks does not know.

    Returns:
        The number of its line, its index in the line, and the line.
    """
    with Path(path).open("rb") as file:
        for line, data in enumerate(file, start=1):
            try:
                data.decode()
            except UnicodeDecodeError as error:
                return line, error.start, data
    raise UserError("the file changed while it was read", place=str(path), hint="read it again")


def not_utf8(path: str | Path) -> UserError:
    """Makes the error for a file that is not UTF-8, with the place of the first other byte."""
    line, index, data = find_other_byte(path)
    problem = f"not UTF-8 text: byte {data[index]:#x} at position {index + 1} of the line"
    return UserError(problem, place=f"{path}, line {line}", hint="convert the file to UTF-8")


def read_predictions(path: str | Path) -> dict[str, Prediction]:
    """Reads and checks a predictions file by id; a line needs `id`, and `label` or `text`.

    Raises:
        UserError: A bad or missing value, a duplicate id, no rows, or a table; with file and line.
    """
    found: dict[str, Prediction] = {}
    lines: dict[str, int] = {}
    rows = read_numbered_jsonl(path)
    try:
        first = next(rows, None)
    except UserError as error:
        if ", line " not in (error.place or ""):  # a missing file is another error
            raise
        raise UserError(f"not a predictions file: {error.problem}", place=error.place, hint=PREDICTIONS_HINT) from error
    # A scored table may have a label column besides the detector's, which must not be read as a prediction.
    if first is not None and ("id" not in first[1] or SCORED in first[1]):
        problem = f"not predictions but a table: its columns are {shorten(list(first[1]))}"
        raise UserError(problem, place=f"{path}, line {first[0]}", hint=PREDICTIONS_HINT)
    for line, row in chain([first] if first else (), rows):
        place = f"{path}, line {line}"
        prediction = parse_prediction(row, place)
        if prediction.id in found:
            problem = f"id {shorten(prediction.id)} was already given on line {lines[prediction.id]}"
            raise UserError(problem, place=place, hint="keep one prediction an id")
        found[prediction.id], lines[prediction.id] = prediction, line
    if not found:
        raise UserError("the file contains no predictions", place=str(path), hint="check that it was written whole")
    return found


def parse_prediction(row: Mapping[str, Any], place: str) -> Prediction:
    """Builds a prediction from an untrusted row.

    Raises:
        UserError: A bad or missing value, with `place`.
    """
    try:
        # The types that `Prediction` itself does not check.
        needed = ("id",) if isinstance(row.get("text"), str) else ("id", "label")  # a response without a judgement
        missing = [key for key in needed if row.get(key) is None]
        if missing:
            raise ValueError(f"no {' and no '.join(repr(key) for key in missing)} (the row has: {shorten(list(row))})")
        _check_text("id", row["id"])
        if isinstance(row.get("score"), bool):
            raise ValueError(f"score must be a number, got {row['score']}")
        _check_text("text", row.get("text") or "")
        _check_text("reason", row.get("reason") or "")
        for span in row.get("spans") or ():
            if not isinstance(span, dict) or any(type(span.get(key)) is not int for key in ("start", "end")):
                raise ValueError(f"a span needs whole numbers start and end, got {shorten(span)}")
            _check_text("a span's label", span.get("label"))
            score = span.get("score")
            if score is not None and not (type(score) in (int, float) and 0 <= score <= 1):
                raise ValueError(f"a span's score must lie in 0..1, got {shorten(score)}")
            if span.get("text") is not None:
                _check_text("a span's text", span["text"])
            evidence = span.get("evidence")
            if evidence is None:
                continue
            if not isinstance(evidence, dict):
                raise ValueError(f"a span's evidence must be an object, got {shorten(evidence)}")
            for name in ("text", "reason"):
                _check_text(f"{name} of a span's evidence", evidence.get(name, ""))
            for name in ("start", "end", "passage"):
                value = evidence.get(name, 0)
                if type(value) is not int or value < 0:
                    problem = f"{name} of a span's evidence must be a whole number of 0 or more, got {shorten(value)}"
                    raise ValueError(problem)
        return Prediction.from_dict(row)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        hint = 'each line: {"id", "label": hallucinated|faithful|unparsed|null, "score": 0..1|null, "spans", "text"}'
        raise UserError(f"bad prediction: {error}", place=place, hint=hint) from error


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, got {shorten(value)}")


def read_strict_json(path: Path, *, hint: str) -> Any:
    """Reads one JSON document.

    Args:
        hint: What to type about a broken file.

    Raises:
        UserError: It is missing, empty, incomplete, not UTF-8, too deeply nested, or has NaN, infinity or a key twice.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise UserError("the file is missing", place=str(path), hint=hint) from error
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8: byte {error.start}", place=str(path), hint=hint) from error
    if not text.strip(" \t\r\n\0"):
        raise UserError("the file is empty", place=str(path), hint=hint)

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"the key {shorten(key)} occurs twice")
            found[key] = value
        return found

    def read_float(number: str) -> float:
        if number in ("NaN", "Infinity", "-Infinity"):
            raise ValueError(f"{number} is not a JSON number")
        if not math.isfinite(value := float(number)):
            raise ValueError(f"{shorten(number)} is too large")
        return value

    try:
        return json.loads(text, object_pairs_hook=read_object, parse_constant=read_float, parse_float=read_float)
    except json.JSONDecodeError as error:
        raise UserError(f"broken JSON: {error.msg}", place=f"{path}, line {error.lineno}", hint=hint) from error
    except RecursionError as error:
        raise UserError("broken JSON: nested too deeply", place=str(path), hint=hint) from error
    except ValueError as error:
        raise UserError(f"broken JSON: {error}", place=str(path), hint=hint) from error


ACCURATE, INACCURATE = VERDICTS = ("accurate", "inaccurate")
LABELS = (*VERDICTS, UNPARSED)


def read_annotations(path: str | Path) -> dict[str, str]:
    """Reads annotations of judgements, of people or models, as labels by id.

    Raises:
        UserError: A row without id or label, an unknown label, a duplicate id, or no rows.
    """
    found: dict[str, str] = {}
    for line, row in read_numbered_jsonl(path):
        place = f"{path}, line {line}"
        id_, label = row.get("id"), row.get("label")
        if not isinstance(id_, str) or not id_:
            raise UserError(f"id must be a text, got {shorten(id_)}", place=place, hint='{"id": "...", "label": "..."}')
        if label not in LABELS:
            raise UserError(f"label is {shorten(label)}", place=place, hint=choice_hint(label, LABELS))
        if id_ in found:
            raise UserError(f"id {shorten(id_)} was already given", place=place, hint="keep one label an id")
        found[id_] = label
    if not found:
        raise UserError("the file contains no labels", place=str(path), hint="check that it was written whole")
    return found


def write_annotations(path: Path, labels: Mapping[str, str], others: Sequence[Mapping[str, Any]]) -> None:
    """Writes annotations with further fields of each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(
        path, ({"id": id_, "label": label, **more} for (id_, label), more in zip(labels.items(), others, strict=True))
    )
