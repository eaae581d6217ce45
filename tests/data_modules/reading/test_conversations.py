"""Conversations with tools: every format gives the same turns, and what cannot be judged is counted."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.reading.conversations import expand_conversations, read_conversation, read_conversation_file
from data_modules.reading.messages import render
from data_modules.reading.rows import BadRow, ReadReport, Row
from faithkit.errors import UserError
from tests.data_modules.official_rows import write

RESULT = '{"items": [{"name": "Mug", "unit_price": 12.5}], "paid": true}'
LINES = "paid: yes.\nitems[0]: name: Mug, unit price: 12.5."
QUESTION, ANSWER = "What did I order?", "A mug for 12.50."
ARGUMENTS = {"id": 7}

CALLED = {"name": "get_order", "arguments": json.dumps(ARGUMENTS)}
OPENAI = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": CALLED}]},
    {"role": "tool", "tool_call_id": "c1", "content": RESULT},
    {"role": "assistant", "content": ANSWER},
]
RESPONSES = [
    {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
    {"type": "function_call", "call_id": "c1", **CALLED},
    {"type": "function_call_output", "call_id": "c1", "output": RESULT},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
]
ANTHROPIC = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "get_order", "input": ARGUMENTS}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": RESULT}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "..."}, {"type": "text", "text": ANSWER}]},
]
LANGCHAIN = [
    {"type": "human", "data": {"content": QUESTION}},
    {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "get_order", "args": ARGUMENTS, "id": "c1"}]}},
    {"type": "tool", "data": {"content": RESULT, "tool_call_id": "c1", "name": "get_order", "status": "success"}},
    {"type": "ai", "data": {"content": ANSWER}},
]
DUMPED = [
    {"lc": 1, "type": "constructor", "id": ["langchain_core", kind], "kwargs": one["data"]}
    for kind, one in zip(("HumanMessage", "AIMessage", "ToolMessage", "AIMessage"), LANGCHAIN, strict=True)
]
INSPECT_CALL = {"id": "c1", "function": "get_order", "arguments": ARGUMENTS, "type": "function"}
INSPECT = [
    {"role": "user", "content": QUESTION, "source": "input"},
    {"role": "assistant", "content": "", "tool_calls": [INSPECT_CALL]},
    {"role": "tool", "content": RESULT, "tool_call_id": "c1", "function": "get_order"},
    {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
]
GEN_AI_CALL = {"type": "tool_call", "id": "c1", "name": "get_order", "arguments": ARGUMENTS}
GEN_AI = {
    "gen_ai.input.messages": [
        {"role": "user", "parts": [{"type": "text", "content": QUESTION}]},
        {"role": "assistant", "parts": [GEN_AI_CALL]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": json.loads(RESULT)}]},
    ],
    "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}],
}
OTLP = [{"key": name, "value": {"stringValue": json.dumps(value)}} for name, value in GEN_AI.items()]
CLAUDE = [{"type": m["role"], "sessionId": "s", "message": m} for m in ANTHROPIC]
CODEX = [{"type": "session_meta", "payload": {"id": "s"}}]
CODEX += [{"type": "response_item", "payload": message} for message in RESPONSES]
FILES: dict[str, list[Any]] = {
    "OpenAI's messages": [{"id": "a", "messages": OPENAI}],
    "OpenAI's responses": [{"id": "a", "messages": RESPONSES}],
    "Anthropic's messages": [{"id": "a", "messages": ANTHROPIC}],
    "LangChain's dictionaries": [{"id": "a", "messages": LANGCHAIN}],
    "LangChain's dump": [{"id": "a", "messages": DUMPED}],
    "OpenTelemetry's span": [{"attributes": GEN_AI}],
    "OpenTelemetry's span as OTLP": [{"attributes": OTLP}],
    "inspect's log": [{"eval": {}, "samples": [{"id": 1, "messages": INSPECT}]}],
    "a coding agent's transcript": CLAUDE,
    "another coding agent's transcript": CODEX,
    "a line for each message": OPENAI,
    "a JSON list of messages": OPENAI,
}


def turns_of(messages: Any, **others: Any) -> tuple[list[dict[str, Any]], ReadReport]:
    report = ReadReport("stop", "", evidence=others.pop("evidence", ("tools",)))
    return read_conversation(Row({"messages": messages, **others}, "chat.jsonl", 0, 1), report), report


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_turn(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "chat.jsonl", FILES[name], as_list=name == "a JSON list of messages")
    (turn,), _ = read_conversation_file(path)
    assert (turn["question"], turn["answer"], turn["context"]) == (QUESTION, ANSWER, [LINES])
    assert turn["sources"] == ["get_order"] and turn["id"] == f"{turn['conversation']}/1"
    (call,) = json.loads(turn["calls"])
    assert call["name"] == "get_order" and json.loads(call["arguments"]) == ARGUMENTS and not call["failed"]


def test_a_turn_rests_on_what_came_before_it_and_never_on_the_assistant() -> None:
    later = [
        {"role": "user", "content": "And the date?"},
        {"role": "tool", "tool_call_id": "c9", "content": "date: 3 May"},
        {"role": "assistant", "content": "On 3 May."},
    ]
    (first, second), _ = turns_of([*OPENAI, *later])
    assert first["context"] == [LINES] and second["context"] == [LINES, "date: 3 May"]
    assert second["question"] == "And the date?"
    (turn, _), _ = turns_of([*OPENAI, *later], evidence=("user", "system"))
    assert turn["context"] == ["Be short.", QUESTION]
    messages = [{"role": "user", "content": "How long?"}, {"role": "assistant", "content": "24 months."}]
    (turn,), _ = turns_of(messages, documents=[{"text": "The warranty lasts 24 months."}, "Returns are free."])
    assert turn["context"] == ["The warranty lasts 24 months.", "Returns are free."]


def test_the_result_of_a_repeated_call_replaces_the_earlier_one() -> None:
    again = [
        {"role": "assistant", "tool_calls": [{"id": "c2", "function": {"name": "get_order", "arguments": ARGUMENTS}}]},
        {"role": "tool", "tool_call_id": "c2", "content": "paid: no"},
        {"role": "assistant", "content": "It is not paid."},
    ]
    _, last = turns_of([*ANTHROPIC, *again])[0]
    assert last["context"] == ["paid: no"]


def test_what_is_not_judged_is_counted(tmp_path: Path) -> None:
    messages = [
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {}}]},
        {**OPENAI[2], "content": "Let me look."},
        {"role": "tool", "tool_call_id": "unknown", "content": "a result without a call"},
        {"role": "assistant", "content": ANSWER},
    ]
    (turn,), report = turns_of(messages)
    assert turn["turn"] == 2 and turn["context"] == ["a result without a call"]
    assert sorted(report.counts.values()) == [1, 1, 1]
    assert turns_of([{"role": "user", "content": "Hi"}])[0] == []
    with pytest.raises(UserError, match="no turn"):
        read_conversation_file(write(tmp_path / "chat.jsonl", [{"messages": messages[:1]}]))


@pytest.mark.parametrize(
    "message",
    [{"role": "narrator", "content": "x"}, {"role": "user", "content": 3}, "text", {"role": "user", "content": [4]}],
)
def test_a_malformed_message_is_named_by_its_number(message: Any) -> None:
    with pytest.raises(BadRow, match="message 2"):
        turns_of([OPENAI[0], message])


def test_the_other_conversations_of_a_file_are_read_and_repeated_ids_kept_apart() -> None:
    conversations = [("a", OPENAI), ("b", [{"role": "x"}, *OPENAI]), ("a", LANGCHAIN)]
    rows = [{"id": name, "messages": messages} for name, messages in conversations]
    report = ReadReport("skip", "")
    raw = (Row(values, "chat.jsonl", number, number + 1) for number, values in enumerate(rows))
    assert [row.name for row in expand_conversations(raw, report)] == ["a/1", "a#2/1"]
    assert report.rejects[0]["line"] == 2


def test_ten_thousand_turns_and_a_large_result_stay_bounded() -> None:
    many = [OPENAI[1], {"role": "tool", "tool_call_id": "c", "content": "word " * 1_000_000}]
    for number in range(3000):
        many += [{"role": "tool", "tool_call_id": f"r{number}", "content": f"row {number}: " + "x" * 500}, OPENAI[4]]
    turns, _ = turns_of(many)
    assert len(turns) == 3000 and max(sum(map(len, turn["context"])) for turn in turns[1:]) <= 200_000


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


MESSAGES = st.fixed_dictionaries({"role": st.sampled_from(["user", "tool", "assistant"]), "content": JSON_VALUES})


@settings(max_examples=80, deadline=None)
@given(st.lists(MESSAGES, max_size=6))
def test_any_content_is_read_or_refused(messages: list[dict[str, Any]]) -> None:
    try:
        turns, _ = turns_of(messages)
    except BadRow:
        return
    assert all(turn["answer"].strip() and turn["context"] for turn in turns)


@settings(max_examples=80, deadline=None)
@given(JSON_VALUES)
def test_every_number_and_text_of_a_result_is_in_its_lines(value: Any) -> None:
    def leaves(one: Any) -> list[str]:
        if isinstance(one, dict):
            return [leaf for inner in one.values() for leaf in leaves(inner)]
        if isinstance(one, list):
            return [leaf for inner in one for leaf in leaves(inner)]
        return [] if isinstance(one, bool) or one is None else [str(one).strip()]

    lines = render(json.dumps({"value": value}))
    assert all(leaf in lines for leaf in leaves(value))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("name,price\nMug,12.50\n", "row 1: name: Mug, price: 12.50."),
        ("| Name | Price |\n|---|---:|\n| Mug | 12.50 |", "row 1: name: Mug, price: 12.50."),
        ('{"a": 1}\n{"a": 2}', "[0]: a: 1.\n[1]: a: 2."),
        ("Dear all, hello.\nYours, Ann", "Dear all, hello.\nYours, Ann"),
        ("2 failed, 14 passed in 1.20s", "2 failed, 14 passed in 1.20s"),
        ("{not json", "{not json"),
    ],
)
def test_tables_become_lines_and_prose_stays(text: str, lines: str) -> None:
    assert render(text) == lines
