"""Messages of conversations with tools, in the formats of several libraries, and results of tools as lines of text.

One reader takes all of them, since their fields have different names: OpenAI's, Anthropic's, LangChain's,
OpenTelemetry's and inspect_ai's (`data_modules.reading.conversations` has the table).

The lines of results (JSON, CSV, Markdown tables) are such that detectors can compare them: each record becomes one that
begins with its path in the result, so that the evidence of a mark names its place. Numbers get the unit that their
field or a field `currency` names; a time is divided from its date. Prose, code and logs stay as they are.

>>> print(render('{"order": {"id": "A-1", "sent": "2026-05-03T08:00", "items": [{"name": "Mug", "weight_kg": 0.3}]}}'))
order: id: A-1, sent: 2026-05-03 08:00.
order.items[0]: name: Mug, weight: 0.3 kg.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_modules.reading.rows import BadRow, check_text
from faithkit.errors import shorten

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
SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
_ROLES = {
    **dict.fromkeys(("assistant", "ai", "model", "gpt", "AIMessage", "AIMessageChunk"), ASSISTANT),
    **dict.fromkeys(("user", "human", "HumanMessage"), USER),
    **dict.fromkeys(("system", "developer", "SystemMessage"), SYSTEM),
    **dict.fromkeys(("tool", "function", "ToolMessage", "FunctionMessage"), TOOL),
}
_TEXT_PARTS = ("text", "input_text", "output_text")
_RESULT_PARTS = ("tool_result", "tool_call_response", "function_call_output")
_CALL_PARTS = ("tool_use", "tool_call", "function_call")
_SKIPPED_PARTS = ("thinking", "redacted_thinking", "reasoning", "refusal")


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
    # unit_price and unitPrice are `unit price`.
    words = _CAMEL.sub(" ", str(name)).replace("_", " ").replace("-", " ").strip().lower()
    text = _text(value)
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


def _table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Writes each row below the header as `row 1: column: cell, ...`."""
    header, *body = rows
    lines = []
    for number, row in enumerate(body, start=1):
        cells = [_field(name, cell, "") for name, cell in zip(header, row, strict=False) if cell]
        lines.append(_line(f"row {number}", ", ".join([*cells, *row[len(header) :]])))
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a tool, with its result once there is one.

    Args:
        arguments: As the agent wrote them, JSON as a text.
        failed: The result says that the call failed.
    """

    id: str
    name: str
    arguments: str
    result: str = ""
    failed: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The same for calls that are repeated with the same arguments."""
        return self.name, self.arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a conversation: a text, calls of the assistant, or the result of a call."""

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    answers: str = ""  # the id of the call that a tool answers
    name: str = ""  # of the tool
    failed: bool = False
    unread: int = 0  # images, sounds and files
    number: int = 0  # in the conversation, from 1


def is_message(value: Any) -> bool:
    """Whether a value is a message: it has a known role and a content, or is a call or a result."""
    if not isinstance(value, Mapping):
        return False
    role = value.get("role", value.get("type", value.get("from")))
    has_text = any(name in value for name in ("content", "parts", "data", "value", "tool_calls", "kwargs"))
    return isinstance(role, str) and ((role in _ROLES and has_text) or role in (*_RESULT_PARTS, *_CALL_PARTS))


def is_constructor(value: Any) -> bool:
    """Whether a value is a message as LangChain's dumpd writes it."""
    return isinstance(value, Mapping) and value.get("lc") == 1 and isinstance(value.get("kwargs"), Mapping)


def read_message(message: Any) -> Iterator[Message]:
    """Reads one message of any of the formats; a message with results of several calls becomes several.

    Raises:
        BadRow: It is malformed.
    """
    if not isinstance(message, Mapping):
        raise BadRow(f"must be an object with role and content, got {shorten(message)}")
    role = message.get("role", message.get("type", message.get("from")))
    if is_constructor(message):  # as LangChain's dumpd writes it
        names, message = message.get("id"), message["kwargs"]
        role = names[-1] if isinstance(names, list) and names else None
    elif isinstance(message.get("data"), Mapping):
        message = message["data"]
    if role in (*_RESULT_PARTS, *_CALL_PARTS):
        yield from _read_parts(ASSISTANT, [{**message, "type": role}])
        return
    if not isinstance(role, str) or role not in _ROLES:
        raise BadRow(f"unknown role {shorten(role)}", hint=f"roles are {', '.join(sorted(set(_ROLES.values())))}")
    role = _ROLES[role]
    content = message.get("content", message.get("parts", message.get("value")))
    listed = message.get("tool_calls")
    if listed is not None and not (isinstance(listed, list) and all(isinstance(one, Mapping) for one in listed)):
        raise BadRow(f"tool_calls must be a list of objects, got {shorten(listed)}")
    calls = tuple(_read_call(call) for call in listed or ())
    if role == TOOL:
        answers = message.get("tool_call_id", message.get("call_id", message.get("id"))) or ""
        name = message.get("name") or message.get("function") or ""
        parts = content if isinstance(content, list) else []
        if any(isinstance(part, Mapping) and part.get("type") in _RESULT_PARTS for part in parts):
            yield from _read_parts(role, parts)
            return
        failed = bool(message.get("error") or message.get("is_error")) or message.get("status") == "error"
        text = _text_of(content)
        error = message.get("error")
        if isinstance(error, Mapping) and isinstance(error.get("message"), str):
            text = text or error["message"]
        yield Message(role=TOOL, text=text, answers=str(answers), name=str(name), failed=failed or _says_failed(text))
        return
    if isinstance(content, list):
        yield from _read_parts(role, content, calls)
    elif content is None or isinstance(content, str):
        yield Message(role=role, text=content or "", calls=calls)
    else:
        raise BadRow(f"content must be text or a list of parts, got {shorten(content)}")


def _read_parts(role: str, parts: Sequence[Any], calls: tuple[Call, ...] = ()) -> Iterator[Message]:
    texts: list[str] = []
    unread = 0
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            raise BadRow(f"a part of the content must be an object, got {shorten(part)}")
        kind = part.get("type")
        if kind in _TEXT_PARTS:
            text = part.get("text", part.get("content"))
            texts.append(check_text(text, "text", empty_ok=True))
        elif kind in _CALL_PARTS:
            calls = (*calls, _read_call(part))
        elif kind in _RESULT_PARTS:
            text = _text_of(part.get("content", part.get("response", part.get("result", part.get("output")))))
            answers = part.get("tool_use_id", part.get("id", part.get("call_id"))) or ""
            failed = part.get("is_error") is True or _says_failed(text)
            yield Message(role=TOOL, text=text, answers=str(answers), failed=failed)
        elif kind not in _SKIPPED_PARTS:
            unread += 1
    if texts or calls or unread:
        yield Message(role=role, text="\n".join(texts), calls=calls, unread=unread)


def _read_call(call: Mapping[str, Any]) -> Call:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {"name": function} if isinstance(function, str) else call
    name = function.get("name", call.get("name"))
    if not isinstance(name, str):
        raise BadRow(f"a call must have the name of its tool, got {shorten(call)}")
    given: Any = next(
        (one[key] for one in (function, call) for key in ("arguments", "input", "args") if key in one), {}
    )
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, sort_keys=True)
    identifier = call.get("call_id") or call.get("id") or call.get("tool_call_id") or ""
    return Call(id=str(identifier), name=name, arguments=arguments)


def _text_of(content: Any) -> str:
    """Returns the text of a tool's result: a text, parts with texts, or a value of JSON as lines."""
    if content is None:
        return ""
    if isinstance(content, str):
        return check_text(content, "the result", empty_ok=True)
    if isinstance(content, list) and all(isinstance(part, Mapping) and "type" in part for part in content):
        return "\n".join(str(part.get("text", part.get("content", ""))) for part in content)
    return render_value(content)


def _says_failed(text: str) -> bool:
    """Whether a result is an error by its words or its fields."""
    begin = text.lstrip()[:300].lower()
    return begin.startswith(("error", "traceback", "exception", "failed")) or any(
        mark in begin.replace(" ", "") for mark in ('"error":"', '"error":{', '"success":false', '"status":"error"')
    )
