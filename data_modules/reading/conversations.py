"""Reads conversations with tools, in the formats that agents write, as one row for each turn of the assistant.

| format | recognised by |
|---|---|
| OpenAI's messages, chat or responses | `messages` with roles, `tool_calls`, `tool_call_id`; `function_call_output` |
| Anthropic's messages | content parts `tool_use` and `tool_result` |
| LangChain's message dictionaries | `type` human, ai, tool, flat or below `data` or `kwargs` |
| OpenTelemetry's gen_ai spans | attributes `gen_ai.input.messages` and `gen_ai.output.messages` |
| inspect_ai's logs as JSON | `samples` with `messages` |
| transcripts of coding agents | a line for each event, with `message` or `payload` |

The context of a turn is what came before it: the results of tools, the documents of the conversation, and with
`evidence` the words of the user or the system, never those of the assistant. The result of a call that is repeated
with the same arguments replaces the earlier one. Structured results become lines that name their place
(`data_modules.reading.messages`).
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from data_modules.reading.formats import parse_json
from data_modules.reading.messages import (
    SYSTEM,
    TOOL,
    USER,
    Call,
    Message,
    is_constructor,
    is_message,
    read_message,
    render,
)
from data_modules.reading.rows import REJECTED, BadRow, ReadReport, Row, check_text, read_rows
from faithkit.errors import UserError, shorten
from faithkit.records import CALLS, passage_text

TOOLS = "tools"
EVIDENCE = (TOOLS, SYSTEM, USER)
MAX_CALLS, MAX_RESULT = 100, 2_000  # calls that a turn keeps, and characters of the result of each
MAX_NAME, MAX_ARGUMENTS = 200, 4_000  # characters of a call: of long arguments the begin and the end
MAX_EVIDENCE = 200_000  # characters of a turn's context: the latest results count
_LISTS = ("messages", "conversation", "conversations", "input_messages")
_IDS = ("conversation_id", "conversation", "thread_id", "session_id", "sessionId", "trace_id", "traceId", "id")
HELPER = " helper"  # ends the id of the conversation of an agent that the agent of the session has started
NO_EVIDENCE = "turns before any result of a tool, not judged"
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"


def is_conversation(values: Mapping[str, Any]) -> bool:
    """Whether a row has a whole conversation."""
    lists = [values[name] for name in _LISTS if isinstance(values.get(name), list)]
    has_messages = any(is_message(one) or is_constructor(one) for messages in lists for one in messages)
    return has_messages or bool(_span_attributes(values))


def is_event(values: Mapping[str, Any]) -> bool:
    """Whether a row is one message or event: all rows of its session are one conversation."""
    inner = values.get("message", values.get("payload"))
    return is_message(values) or (isinstance(inner, Mapping) and ("type" in values or is_message(inner)))


def expand_conversations(rows: Iterator[Row], report: ReadReport) -> Iterator[Row]:
    """Yields a row for each turn of the assistant; the rows of other tables are yielded unchanged.

    A row has id, conversation, turn, message (its number), context (a list of passages), sources (the tool of each),
    question, answer, and calls: what the assistant had called before, as JSON.

    Raises:
        UserError: A row is wrong, and `report` does not skip it.
    """
    first = next(rows, None)
    if first is None:
        return
    rows = chain([first], rows)
    if isinstance(first.values.get("samples"), list) and "eval" in first.values:  # a log of inspect_ai
        rows = (
            replace(row, values=sample, number=number)
            for row in rows
            for number, sample in enumerate(row.items("samples"))
            if isinstance(sample, Mapping)
        )
    elif is_event(first.values):
        rows = _join_events(rows)
    elif not is_conversation(first.values):
        yield from rows
        return
    number, seen = 0, Counter[str]()
    for row in rows:
        turns: list[dict[str, Any]] = []
        with report.rejecting(row):
            turns = read_conversation(row, report)
        if turns:
            name = turns[0]["conversation"]
            seen[name] += 1
        for values in turns:
            if seen[name] > 1:  # an id that comes again is another conversation
                values["conversation"] = f"{name}#{seen[name]}"
                values["id"] = f"{values['conversation']}/{values['turn']}"
            yield replace(row, values=values, number=number, name=values["id"])
            number += 1
    if not number and not report.rejects:
        hint = "; ".join(f"{number} {outcome}" for outcome, number in report.counts.items())
        if NO_EVIDENCE in hint:
            hint += "; evidence=[tools,user,system] also takes what user and system say"
        raise UserError("no turn of the assistant can be judged", place=row.file, hint=hint)


def read_conversation_file(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the turns of a JSON file's conversations, and what was not judged.

    Raises:
        UserError: The file cannot be read, or has no turn to judge.
    """
    if path.suffix not in (".json", ".jsonl"):
        raise UserError("conversations are read from .json and .jsonl files", place=str(path), hint="name such a file")
    report = ReadReport("stop", "")
    rows = read_rows(path, report, parse_json)
    first = next(rows)
    if not (is_conversation(first.values) or is_event(first.values) or "samples" in first.values):
        raise UserError("no conversation in this file", place=str(path), hint="write it as [{role, content}, ...]")
    turns = [dict(row.values) for row in expand_conversations(chain([first], rows), report)]
    return turns, describe_left_out(report)


def describe_left_out(report: ReadReport) -> list[str]:
    """Describes what of the conversations was not judged, a text for each reason."""
    return [f"{number:,} {outcome}" for outcome, number in report.counts.items() if outcome != REJECTED]


def read_conversation(row: Row, report: ReadReport, max_turns: int | None = None) -> list[dict[str, Any]]:
    """Returns the values of each turn of a conversation that has evidence; `report` counts what is left out.

    Args:
        max_turns: The rest of the conversation is left out after so many.

    Raises:
        BadRow: A message is malformed.
    """
    name = next((str(row.values[key]) for key in _IDS if isinstance(row.values.get(key), str | int)), row.default_id)
    messages = list(_read_messages(row.values))
    unread = sum(message.unread for message in messages)
    if unread:
        report.count("images, sounds and files of conversations, not read", unread)
    passages: dict[Any, tuple[str, str]] = {}
    for key in ("documents", "context", "contexts", "retrieved_documents"):
        given = row.values.get(key)
        for one in [given] if isinstance(given, str | Mapping) else given if isinstance(given, list) else []:
            try:
                text = passage_text(one)
            except UserError as error:
                raise BadRow(f"documents: {error}", hint=error.hint) from error
            if isinstance(text, str) and text.strip():
                passages["document", len(passages)] = ("document", check_text(text, "documents"))
    calls: dict[str, Call] = {}
    found: list[dict[str, Any]] = []
    question, turns = "", 0
    for place, message in enumerate(messages):
        calls |= {call.id or f"call {place}.{n}": call for n, call in enumerate(message.calls)}
        if message.role == TOOL:
            call = calls.get(message.answers) or Call(id=message.answers, name=message.name, arguments=str(place))
            calls[message.answers or f"result {place}"] = replace(call, result=message.text, failed=message.failed)
            if message.text.strip() and TOOLS in report.evidence:
                passages.pop(call.key, None)
                passages[call.key] = (call.name or TOOL, render(message.text))
        elif message.role in (USER, SYSTEM):
            question = message.text if message.role == USER and message.text.strip() else question
            if message.role in report.evidence and message.text.strip():
                passages[message.role, place] = (message.role, message.text)
        elif message.text.strip() and message.calls:
            report.count("texts before a call, not judged")
        elif message.text.strip():
            turns += 1
            if not passages:
                report.count(NO_EVIDENCE)
                continue
            # The last distinct passages, as many as there is room for, and always one.
            distinct = [(source, text) for text, source in {text: source for source, text in passages.values()}.items()]
            room, begin = MAX_EVIDENCE, len(distinct)
            while begin and (room := room - len(distinct[begin - 1][1])) >= 0:
                begin -= 1
            kept = distinct[min(begin, len(distinct) - 1) :]
            done = [
                {
                    "name": c.name[:MAX_NAME],
                    "arguments": c.arguments
                    if len(c.arguments) <= MAX_ARGUMENTS
                    else f"{c.arguments[: MAX_ARGUMENTS // 2]} ... {c.arguments[-MAX_ARGUMENTS // 2 :]}",
                    "failed": c.failed,
                    "result": c.result[:MAX_RESULT],
                }
                for c in list(calls.values())[-MAX_CALLS:]
            ]
            found.append(
                {
                    "id": f"{name}/{turns}",
                    "conversation": name,
                    "turn": turns,
                    "message": message.number,
                    "context": [text for _, text in kept],
                    "sources": [source for source, _ in kept],
                    "question": question,
                    "answer": message.text,
                    CALLS: json.dumps(done, ensure_ascii=False),
                }
            )
            if len(found) == max_turns:
                break
    if not turns:
        report.count("conversations without a text of the assistant")
    return found


def _span_attributes(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the attributes of an OpenTelemetry span that has messages; none for other rows."""
    found = values.get("attributes")
    if isinstance(found, list):  # as OTLP writes them
        found = {
            one.get("key"): next(iter(one["value"].values()), None)
            for one in found
            if isinstance(one, Mapping) and isinstance(one.get("value"), Mapping)
        }
    return found if isinstance(found, Mapping) and (_INPUT in found or _OUTPUT in found) else {}


def _join_events(rows: Iterable[Row]) -> Iterator[Row]:
    """Joins the lines of each session; lines without a session belong to the file."""
    sessions: dict[str, tuple[Row, list[Any]]] = {}
    for row in rows:
        inner = row.values.get("message", row.values.get("payload"))
        event = inner if isinstance(inner, Mapping) else row.values
        key = next((str(row.values[name]) for name in _IDS[:-1] if isinstance(row.values.get(name), str)), "")
        if row.values.get("isSidechain"):
            key += HELPER
        if is_message(event):  # other events, such as summaries, are no messages
            sessions.setdefault(key, (row, []))[1].append(event)
    for key, (row, messages) in sessions.items():
        yield replace(row, values={"messages": messages, **({"conversation_id": key} if key else {})})


def _read_messages(values: Mapping[str, Any]) -> Iterator[Message]:
    attributes = _span_attributes(values)
    if attributes:
        begin = 0
        for name in ("gen_ai.system_instructions", _INPUT, _OUTPUT):
            listed = attributes.get(name)
            if isinstance(listed, str):
                try:
                    listed = json.loads(listed)
                except (ValueError, RecursionError) as error:
                    raise BadRow(f"{name} is no JSON") from error
            if name == "gen_ai.system_instructions" and listed:
                listed = [{"role": SYSTEM, "parts": listed}]
            yield from _read_list(listed or [], name, begin)
            begin += len(listed or [])
        return
    name = next((name for name in _LISTS if isinstance(values.get(name), list)), "")
    if not name:
        raise BadRow("no conversation: a list of messages is missing", hint="write it as messages: [{role, content}]")
    yield from _read_list(values[name], name)


def _read_list(messages: Any, name: str, begin: int = 0) -> Iterator[Message]:
    if not isinstance(messages, list):
        raise BadRow(f"{name} must be a list of messages, got {shorten(messages)}")
    for number, message in enumerate(messages, start=begin + 1):
        try:
            for one in read_message(message):
                parts = (part for call in one.calls for part in (call.id, call.name, call.arguments))
                for text in (one.text, one.name, one.answers, *parts):
                    check_text(text, "text", empty_ok=True)
                yield replace(one, number=number)
        except BadRow as error:
            raise error.within(f"message {number}") from error
        except RecursionError as error:
            raise BadRow(f"message {number} is nested too deeply", hint="give the result as a text") from error
