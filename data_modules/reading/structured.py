"""Renders the results of tools (JSON, CSV, Markdown tables) as lines of text that detectors can compare.

Each record becomes one line that begins with its path in the result, so that the evidence of a mark names its place:

>>> print(render('{"order": {"id": "A-113", "items": [{"name": "Mug", "unit_price": 12.5}]}}'))
order: id: A-113.
order.items[0]: name: Mug, unit price: 12.5.

Prose, code and logs stay as they are.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_DEPTH = 20  # of nested objects: what is deeper is written as JSON
MAX_CELLS = 60  # of a row that is read as a table
MAX_STRUCTURED = 5_000_000  # characters: a longer text is read as prose
_RULE = re.compile(r"\|?\s*:?-{3,}:?\s*(?:\|\s*:?-{3,}:?\s*)*\|?\s*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENDS = (".", "!", "?")


def render(text: str) -> str:
    """Returns the lines of a tool's result; a text without structure is returned unchanged."""
    if len(text) > MAX_STRUCTURED:
        return text
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        try:
            return render_value(json.loads(stripped))
        except (ValueError, RecursionError):
            lines = stripped.splitlines()
            try:  # JSON lines
                return render_value([json.loads(line) for line in lines]) if len(lines) > 1 else text
            except (ValueError, RecursionError):
                return text
    lines = text.splitlines()
    parts: list[str] = []
    number = 0
    while number < len(lines):
        if number + 1 < len(lines) and "|" in lines[number] and _RULE.fullmatch(lines[number + 1].strip()):
            end = next((n for n in range(number + 2, len(lines)) if "|" not in lines[n]), len(lines))
            rows = [_split_cells(line) for line in [lines[number], *lines[number + 2 : end]]]
            parts += _table_lines(rows)
            number = end
        else:
            parts.append(lines[number])
            number += 1
    if parts != lines:
        return "\n".join(parts)
    table = _read_csv(text)
    return "\n".join(_table_lines(table)) if table else text


def render_value(value: Any) -> str:
    """Returns the lines of a value of JSON."""
    return "\n".join(_records(value, "", 0))


def _records(value: Any, path: str, depth: int) -> Iterator[str]:
    """Yields a line for the plain fields of each object, and for each list of plain values."""
    if depth > MAX_DEPTH:
        yield _line(path, json.dumps(value, ensure_ascii=False))
    elif isinstance(value, Mapping):
        plain = {name: one for name, one in value.items() if not isinstance(one, Mapping | list)}
        if plain:
            yield _line(path, ", ".join(f"{_words(name)}: {_text(one)}" for name, one in plain.items()))
        for name, one in value.items():
            if isinstance(one, Mapping | list):
                yield from _records(one, f"{path}.{name}" if path else str(name), depth + 1)
        if not value and path:
            yield _line(path, "empty")
    elif isinstance(value, list):
        if any(isinstance(one, Mapping | list) for one in value):
            for number, one in enumerate(value):
                yield from _records(one, f"{path}[{number}]", depth + 1)
        else:
            yield _line(path, ", ".join(map(_text, value)) or "empty")
    else:
        yield _line(path, _text(value))


def _line(path: str, text: str) -> str:
    """Writes a line as a sentence, so that a detector does not join it to the next one."""
    whole = f"{path}: {text}" if path else text
    return whole if whole.endswith(_ENDS) else f"{whole}."


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return value.strip() if isinstance(value, str) else str(value)


def _words(name: Any) -> str:
    """Writes a field's name as words: unit_price and unitPrice are `unit price`."""
    return _CAMEL.sub(" ", str(name)).replace("_", " ").replace("-", " ").strip().lower()


def _split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Writes each row below the header as `row 1: column: cell, ...`."""
    header, *body = rows
    lines = []
    for number, row in enumerate(body, start=1):
        cells = [f"{_words(name)}: {cell}" if name else cell for name, cell in zip(header, row, strict=False) if cell]
        lines.append(_line(f"row {number}", ", ".join([*cells, *row[len(header) :]])))
    return lines


def _read_csv(text: str) -> list[list[str]] | None:
    """Reads a text as CSV or TSV with a header; None if it is something else, such as prose with commas."""
    first, _, rest = text.strip().partition("\n")
    if not rest:
        return None
    for separator in (",", "\t", ";"):
        names = [name.strip().strip('"') for name in first.split(separator)]
        if not 1 < len(names) <= MAX_CELLS or len(set(names)) < len(names):
            continue
        if any(not name or len(name) > 40 or name.endswith(_ENDS) for name in names):
            continue
        try:
            rows = [row for row in csv.reader(io.StringIO(text.strip(), newline=""), delimiter=separator) if row]
        except csv.Error:
            continue
        is_table = len(rows) > 2 or any(character.isdigit() for cell in rows[-1] for character in cell)
        if is_table and all(len(row) == len(names) for row in rows):
            return [[cell.strip() for cell in row] for row in rows]
    return None
