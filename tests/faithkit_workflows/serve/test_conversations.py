"""Conversations sent to /v1/check: the verdicts of `check(messages=...)`, or a refusal that names the message."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit import check
from faithkit_workflows.serve.schemas import STATUSES
from tests.faithkit_workflows.serve.running_server import RunningServer

pytestmark = pytest.mark.xdist_group("serve-conversations")
CHECK = "/v1/check"
CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 7}'}}
LOOK = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": '{"item": "mug", "unit_price": 12.5, "quantity": 2}'}
MESSAGES: list[dict[str, Any]] = [
    {"role": "assistant", "content": "Hello! How can I help?"},
    {"role": "user", "content": "What did I order?"},
    LOOK,
    RESULT,
    {"role": "assistant", "content": "You ordered 5 mugs at 15 euros each. I have sent the invoice."},
    {"role": "user", "content": [{"type": "text", "text": "How many?"}]},
    {"role": "assistant", "content": "2 mugs."},
]


def test_each_turn_gets_the_verdict_of_check_with_the_tool_of_its_evidence(server, default_file) -> None:
    status, _, reply = server.reply(CHECK, {"messages": MESSAGES})
    expected = check(messages=MESSAGES, by=f"default:{default_file}")
    assert status == 200 and reply["model"] == "tiny"
    assert [(one["turn"], one["message"]) for one in reply["verdicts"]] == [(2, 5), (3, 7)]
    assert len(expected) == 2
    for verdict, found in zip(reply["verdicts"], expected, strict=True):
        assert (verdict["label"], verdict["probability"]) == (found.label, found.score)
        spans = [(span["start"], span["end"], span["type"], span["text"]) for span in verdict["spans"]]
        assert spans == [(span.start, span.end, span.type, span.text) for span in found.spans]
        assert all(verdict["response"][span["start"] : span["end"]] == span["text"] for span in verdict["spans"])
    first = reply["verdicts"][0]
    assert {span["evidence"]["id"] for span in first["spans"] if span["evidence"]["text"]} == {"get_order"}
    (action,) = [span for span in first["spans"] if span["type"] == "unsupported_action"]
    assert (action["text"], action["evidence"]["reason"]) == ("I have sent the invoice", "no call of a tool does this")
    (note,) = reply["notes"]
    assert note.startswith("1 turns before any result of a tool") and "evidence" in note


def test_words_of_the_user_are_evidence_where_they_are_asked_for(server: RunningServer) -> None:
    body = {"messages": MESSAGES[1:2] + MESSAGES[-1:], "threshold": 0.0}
    assert server.reply(CHECK, body)[2]["verdicts"] == []
    (found,) = server.reply(CHECK, {**body, "evidence": ["user"]})[2]["verdicts"]
    assert (found["label"], found["threshold"]) == ("hallucinated", 0.0)
    assert {span["evidence"]["id"] for span in found["spans"] if span["evidence"]["text"]} <= {"user"}


DEEP = json.loads("[" * 900 + "]" * 900)
LONG = {"role": "assistant", "content": "It lasts. " * 6_000}


@pytest.mark.parametrize(
    ("body", "code", "field", "part"),
    [
        ({"messages": []}, "invalid_request", "messages", ""),
        ({"messages": "Hello"}, "invalid_request", "messages", ""),
        ({"messages": [LOOK, "Hello"]}, "invalid_request", "messages.1", ""),
        ({"messages": [{}] * 10_001}, "invalid_request", "messages", "10000"),
        ({"messages": MESSAGES, "response": "a"}, "invalid_request", "response", ""),
        ({"messages": MESSAGES, "stream": True}, "invalid_request", "stream", ""),
        ({"messages": MESSAGES, "evidence": ["assistant"]}, "invalid_request", "evidence.0", ""),
        ({"messages": MESSAGES, "model": "unknown"}, "unknown_model", "model", ""),
        ({"messages": [*MESSAGES, {"role": "narrator"}]}, "invalid_request", "messages", "message 8"),
        ({"messages": [*MESSAGES, {"role": ["user"]}]}, "invalid_request", "messages", "message 8"),
        ({"messages": [{"lc": 1, "id": 5, "kwargs": {}}]}, "invalid_request", "messages", "message 1"),
        ({"messages": [*MESSAGES, {"role": "user", "content": DEEP}]}, "invalid_request", "messages", "message 8"),
        ({"messages": [*MESSAGES, {"role": "user", "content": "\ud800"}]}, "invalid_request", "messages", "message 8"),
        ({"messages": [*MESSAGES, *[MESSAGES[-1]] * 39]}, "too_many_rows", "messages", "40"),
        ({"messages": [*MESSAGES, LONG]}, "row_too_large", "messages.7.content", ""),
    ],
)
def test_a_refusal_names_the_message(server: RunningServer, body: Any, code: str, field: str | None, part: str) -> None:
    status, headers, reply = server.reply(CHECK, body)
    error = reply["error"]
    assert (status, error["code"], error["field"]) == (STATUSES[code], code, field)
    assert part in error["message"] and error["help"] and error["request_id"] == headers["x-request-id"]


TEXT = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(
    ["\ud800", "{" * 40, "a,b\n1,2", "I sent it. "]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.just("DEEP"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ROLES = st.sampled_from(["user", "system", "tool", "assistant", "ai", "function_call_output", "tool_use"]) | VALUES
NAMES = ("content", "tool_calls", "tool_call_id", "name", "data", "kwargs", "id", "lc", "parts", "error", "output")
CALLS = st.lists(st.fixed_dictionaries({}, optional={"id": VALUES, "name": VALUES, "function": VALUES}), max_size=3)
MESSAGE = st.fixed_dictionaries({}, optional={"role": ROLES, "type": ROLES, **dict.fromkeys(NAMES, VALUES | CALLS)})
LIKELY = st.sampled_from(MESSAGES) | st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "tool", "assistant"]), "content": VALUES}
)


@settings(max_examples=40, deadline=None)
@given(st.lists(LIKELY | MESSAGE | VALUES, max_size=6), st.sampled_from([1, 1, 60]))
def test_any_messages_are_judged_or_refused(server: RunningServer, messages: list[Any], repeats: int) -> None:
    once = json.dumps(messages)[1:-1].replace('"DEEP"', json.dumps(DEEP))
    repeats = min(repeats, 100_000 // (len(once) + 2) + 1)  # larger bodies are refused unread
    body = f'{{"messages": [{", ".join([once] * repeats)}]}}'
    status, _, reply = server.reply(CHECK, body.encode())
    if status == 200:
        assert all(one["label"] in ("faithful", "hallucinated") for one in reply["verdicts"])
    else:
        assert STATUSES[reply["error"]["code"]] == status
        assert status in (400, 413, 422) and reply["error"]["message"]
