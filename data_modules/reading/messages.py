"""Messages of conversations with tools: texts, calls and results, in the formats of several libraries.

One reader takes all of them, since their fields have different names: OpenAI's, Anthropic's, LangChain's,
OpenTelemetry's and inspect_ai's (`data_modules.reading.conversations` has the table).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_modules.reading.rows import BadRow, check_text
from data_modules.reading.structured import render_value
from faithkit.errors import shorten

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
