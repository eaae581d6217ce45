"""Whatever a server does wrong, each request ends in one reply or one problem, or all of them in one error."""

import time
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.inference.text import Reply
from tests.faithkit.inference.asking import GREEDY, SECRET, engine_for, one_reply, questions
from tests.faithkit.inference.server import FAILED, HALF, LIMITED, ChatServer, Fault, answering, refusal

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.mark.parametrize(
    "fault",
    [
        LIMITED,
        FAILED,
        Fault(disconnect=True),
        Fault(body=HALF),
        Fault(body=HALF, missing=50),
        Fault(seconds=0.7),
        Fault(body=b"<html>busy</html>", headers={"Content-Type": "text/html"}),
        Fault(body=b'{"choices": []}'),
        Fault(body=b'{"choices": [{"message": "text"}]}'),
        Fault(body=b"[" * 100_000),
        Fault(body=b"\xff\xfe"),
    ],
    ids=lambda fault: f"{fault.status}-{(fault.body or b'')[:30]!r}-{fault.missing}-{fault.seconds}",
)
def test_what_fails_for_a_while_is_asked_again(fault: Fault) -> None:
    with ChatServer(fault, fault) as server:
        reply = one_reply(server, timeout_seconds=0.5 if fault.seconds else 60.0)
    assert (reply.texts, reply.finished, reply.problem) == (("question 0",), (True,), "")
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("fault", "tries", "problem"),
    [
        (LIMITED, 3, "limits the rate"),
        (FAILED, 3, "the server answered 500: 'something broke'"),
        (Fault(disconnect=True), 3, "no answer after 3 tries"),
        (Fault(seconds=0.7), 3, "no answer after 3 tries: ReadTimeout"),
        (Fault(body=HALF), 3, "is not JSON"),
        (Fault(body=b'{"choices": []}'), 3, "is not a chat completion"),
        (answering(), 1, "the answer is empty"),
        (answering(message={"role": "assistant", "content": " \n"}), 1, "the answer is empty"),
        (answering(finish_reason="length"), 1, "max_new_tokens were spent"),
        (answering(finish_reason="content_filter"), 1, "content filter withholds"),
        (answering(message={"role": "assistant", "content": None, "refusal": "no"}), 1, "refuses to answer"),
        (refusal(400, "it is odd"), 1, "the server answered 400: 'it is odd'"),
        (refusal(413, "too big"), 1, "the server answered 413"),
        (refusal(400, "no", code="context_length_exceeded", param="messages"), 1, "does not fit into the model's"),
        (refusal(400, "This model's maximum context length is 8 tokens."), 1, "does not fit"),
        (refusal(400, "max_tokens is too large for the context window", param="max_tokens"), 1, "does not fit"),
    ],
)
def test_what_keeps_failing_is_that_requests_problem(fault: Fault, tries: int, problem: str) -> None:
    def fails_at_2(body: dict[str, Any]) -> Fault | None:
        return fault if body["messages"][-1]["content"] == "question 2" else None

    with ChatServer(always=fails_at_2) as server:
        engine = engine_for(server, timeout_seconds=0.5 if fault.seconds else 60.0, concurrency=2)
        replies = {reply.id: reply for reply in engine.generate(questions(4), GREEDY)}
    assert problem in replies["id 2"].problem and not replies["id 2"].texts
    assert [replies[f"id {i}"].texts for i in (0, 1, 3)] == [(f"question {i}",) for i in (0, 1, 3)]
    assert server.contents.count("question 2") == tries
    assert (engine.usage.failed, engine.usage.answered) == (1, 3)


@pytest.mark.parametrize(
    ("fault", "problem", "hint"),
    [
        (refusal(401, f"Incorrect key: {SECRET}"), "refuses the key of OPENAI_API_KEY", "export OPENAI_API_KEY="),
        (
            refusal(403, f"{SECRET} may not"),
            "refuses the key of OPENAI_API_KEY: '*** may not'",
            "export OPENAI_API_KEY=",
        ),
        (refusal(404, "no model"), "has no model 'small'", "engine.model=smaller (it has 'large, smaller')"),
        (refusal(429, "pay", code="insufficient_quota"), "no credit left", "add credit"),
        (refusal(400, "no", param="temperature"), "refuses temperature", "decoding.temperature=1"),
        (refusal(400, "a chat template is needed"), "no chat template", "--chat-template FILE"),
    ],
)
def test_an_error_of_all_requests_is_raised_once(
    fault: Fault, problem: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with ChatServer(always=fault, models=["large", "smaller"]) as server, pytest.raises(UserError) as raised:
        list(engine_for(server, concurrency=2).generate(questions(50), GREEDY))
    assert problem in raised.value.problem and hint in (raised.value.hint or "") and raised.value.place == server.url
    assert SECRET not in str(raised.value) and len(str(raised.value).splitlines()) <= 5
    assert len(server.asked) <= 6


def test_a_server_that_is_down_is_reported_at_once_and_one_that_needs_a_key_is_explained() -> None:
    with ChatServer(always=refusal(401, "key?")) as server, pytest.raises(UserError, match="needs a key, and OPENAI"):
        one_reply(server)
    assert server.keys == ["Bearer none"]
    began = time.monotonic()
    with pytest.raises(UserError, match="no server answers here") as raised:
        one_reply(server, max_retries=6)
    assert "engine.base_url=http://" in (raised.value.hint or "") and time.monotonic() - began < 15


def test_a_server_that_goes_away_is_not_asked_for_ever() -> None:
    def leaves(body: dict[str, Any]) -> Fault | None:
        return Fault(disconnect=True) if len(server.asked) > 10 else None

    with ChatServer(always=leaves) as server:
        engine = engine_for(server, concurrency=2, max_retries=1)
        replies: list[Reply] = []
        with pytest.raises(UserError, match="the server has stopped answering"):
            replies.extend(engine.generate(questions(1000), GREEDY))
    assert len(server.asked) < 30
