"""A server is asked many requests at a time, each gets its own reply, and an end of the asking ends them all."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from faithkit.inference.openai_engine import THREAD_NAME
from faithkit.inference.text import USER, Message, Request
from tests.faithkit.inference.asking import GREEDY, engine_for, questions
from tests.faithkit.inference.server import HALF, LIMITED, MODEL, ChatServer, Fault, answering

pytestmark = pytest.mark.usefixtures("quickly")


def test_each_request_gets_its_own_reply_however_many_are_open() -> None:
    def gathers(body: dict[str, Any]) -> None:
        """Holds the first four until all of them are there."""
        end = time.monotonic() + 30
        while len(server.asked) < 4 and time.monotonic() < end:
            time.sleep(0.005)

    with ChatServer(always=gathers) as server:
        replies = list(engine_for(server, concurrency=4).generate(questions(20), GREEDY))
    assert {reply.id: reply.texts for reply in replies} == {f"id {i}": (f"question {i}",) for i in range(20)}
    assert server.most_open == 4 and len(server.asked) == 20
    body = server.asked[0]
    assert body["messages"][0] == {"role": "system", "content": "Answer."}
    assert (body["model"], body["temperature"], body["max_tokens"]) == (MODEL, 0.0, 5)
    assert not {"n", "seed", "top_p", "response_format", "structured_outputs"} & body.keys()


def test_usage_is_counted() -> None:
    with ChatServer(LIMITED, Fault(body=HALF), answering(), always=None) as server:
        engine = engine_for(server, price=(1.0, 2.0))
        assert len(list(engine.generate(questions(3), GREEDY))) == 3
    usage = engine.usage
    assert (usage.answered, usage.failed, usage.sent, usage.retries) == (2, 1, 5, 2)
    assert (usage.prompt_tokens, usage.new_tokens) == (6, 4)
    assert usage.cost == pytest.approx(14e-6)
    assert str(usage) == "2 requests answered, 1 failed, 2 retries, 6 tokens read, 4 written, 0.0000 dollars"


def test_half_a_character_is_one_requests_problem() -> None:
    broken = Request("broken", (Message(USER, "half \ud800"),))
    with ChatServer() as server:
        replies = {reply.id: reply for reply in engine_for(server).generate([*questions(1), broken], GREEDY)}
    assert "half a character" in replies["broken"].problem and replies["id 0"].texts


def waiting_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == THREAD_NAME]


def test_a_closed_iterator_cancels_what_is_open() -> None:
    with ChatServer(always=lambda body: Fault(seconds=60.0) if len(server.asked) > 3 else None) as server:
        replies = engine_for(server, concurrency=3).generate(questions(100), GREEDY)
        assert isinstance(replies, Iterator) and next(replies).texts
        began = time.monotonic()
        replies.close()  # type: ignore[attr-defined]
        assert time.monotonic() - began < 20 and not waiting_threads()
        number = len(server.asked)
        time.sleep(0.1)
        assert len(server.asked) == number <= 6
