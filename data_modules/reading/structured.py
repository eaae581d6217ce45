"""Renders the results of tools (JSON, CSV, Markdown tables) as lines of text that detectors can compare.

Each record becomes one line that begins with its path in the result, so that the evidence of a mark names its place.
Numbers get the unit that their field or a field `currency` names; a time is divided from its date.

>>> print(render('{"order": {"id": "A-1", "sent": "2026-05-03T08:00", "items": [{"name": "Mug", "weight_kg": 0.3}]}}'))
order: id: A-1, sent: 2026-05-03 08:00.
order.items[0]: name: Mug, weight: 0.3 kg.

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
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2})(?::\d{2}(?:\.\d+)?)?(Z|[+-]\d{2}:\d{2})?")
# Units at the end of a field's name, as they are written behind a number.
_UNITS = {
    **{name: name for name in "kb mb gb tb km cm mm kg mg ml seconds minutes hours days weeks months years".split()},
    **{"eur": "euros", "usd": "dollars", "gbp": "pounds", "percent": "%", "pct": "%", "kmh": "km/h", "c": "°C"},
    **{"f": "°F", "ms": "ms", "sec": "seconds", "secs": "seconds", "min": "minutes", "mins": "minutes"},
    **{"hrs": "hours", "m": "m", "g": "g", "l": "litres"},
}
_AMOUNTS = frozenset("total subtotal price amount balance cost sum fee value tax due paid".split())
_SHARES = frozenset("chance probability share ratio fraction coverage charge progress confidence humidity".split())


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
            rows = [
                [cell.strip() for cell in line.strip().strip("|").split("|")]
                for line in [lines[number], *lines[number + 2 : end]]
            ]
            parts += _table_lines(rows)
            number = end
        else:
            parts.append(lines[number])
            number += 1
    if parts != lines:
        return "\n".join(parts)
    # CSV or TSV with a header, and nothing else, such as prose with commas.
    first, _, rest = text.strip().partition("\n")
    for separator in (",", "\t", ";") if rest else ():
        names = [name.strip().strip('"') for name in first.split(separator)]
        if not 1 < len(names) <= MAX_CELLS or len(set(names)) < len(names):
            continue
        if any(not name or len(name) > 40 or name.endswith(_ENDS) for name in names):
            continue
        try:
            table = [row for row in csv.reader(io.StringIO(text.strip(), newline=""), delimiter=separator) if row]
        except csv.Error:
            continue
        is_table = len(table) > 2 or any(character.isdigit() for cell in table[-1] for character in cell)
        if is_table and all(len(row) == len(names) for row in table):
            return "\n".join(_table_lines([[cell.strip() for cell in row] for row in table]))
    return text


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
            currency = _UNITS.get(str(value.get("currency")).lower(), "")
            yield _line(path, ", ".join(_field(name, one, currency) for name, one in plain.items()))
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


def _field(name: Any, value: Any, currency: str) -> str:
    """Writes `name: value`, a number with its unit or in percent."""
    words, text = _words(name), _text(value)
    if isinstance(value, bool) or not re.fullmatch(r"-?\d+(\.\d+)?", text):
        return f"{words}: {text}" if words else text
    *before, last = words.split() or [""]
    if before and last in _UNITS:
        return f"{' '.join(before)}: {text} {_UNITS[last]}"
    if currency and _AMOUNTS & {*before, last}:
        return f"{words}: {text} {currency}"
    if 0 < float(text) < 1 and _SHARES & {*before, last}:
        return f"{words}: {text} ({100 * float(text):.3g}%)"
    return f"{words}: {text}"


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return _TIME.sub(r"\1 \2\3", value.strip()) if isinstance(value, str) else str(value)


def _words(name: Any) -> str:
    """Writes a field's name as words: unit_price and unitPrice are `unit price`."""
    return _CAMEL.sub(" ", str(name)).replace("_", " ").replace("-", " ").strip().lower()


def _table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Writes each row below the header as `row 1: column: cell, ...`."""
    header, *body = rows
    lines = []
    for number, row in enumerate(body, start=1):
        cells = [_field(name, cell, "") for name, cell in zip(header, row, strict=False) if cell]
        lines.append(_line(f"row {number}", ", ".join([*cells, *row[len(header) :]])))
    return lines
