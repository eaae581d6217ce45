"""A server is asked many requests at a time in its own terms; each ends in its own reply or problem."""

import asyncio
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.inference import openai_server
from faithkit.inference.openai_engine import THREAD_NAME, OpenAiEngine, run_concurrently
from faithkit.inference.openai_server import ServerOptions
from faithkit.inference.text import USER, Decoding, Form, Message, Reply, Request
from faithkit.packages import install_hint
from tests.faithkit.inference.asking import GREEDY, SECRET, engine_for, one_reply, questions
from tests.faithkit.inference.server import FAILED, HALF, LIMITED, MODEL, ChatServer, Fault, answering, refusal
from tests.running import ROOT

pytestmark = pytest.mark.usefixtures("quickly")
NUCLEUS = Decoding(strategy="nucleus", top_p=0.9, temperature=0.7, num_samples=3, seed=4)


def test_each_request_gets_its_own_reply_however_many_are_open() -> None:
    def gathers(body: dict[str, Any]) -> None:
        """Holds the first four until all of them are there."""
        end = time.monotonic() + 30
        while len(server.asked) < 4 and time.monotonic() < end:
            time.sleep(0.005)

    broken = Request("broken", (Message(USER, "half \ud800"),))
    with ChatServer(always=gathers) as server:
        replies = {r.id: r for r in engine_for(server, concurrency=4).generate([*questions(20), broken], GREEDY)}
    assert "half a character" in replies.pop("broken").problem, "the problem of one request alone"
    assert {i: reply.texts for i, reply in replies.items()} == {f"id {i}": (f"question {i}",) for i in range(20)}
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


def test_a_closed_iterator_cancels_what_is_open() -> None:
    with ChatServer(always=lambda body: Fault(seconds=60.0) if len(server.asked) > 3 else None) as server:
        replies = engine_for(server, concurrency=3).generate(questions(100), GREEDY)
        assert isinstance(replies, Iterator) and next(replies).texts
        began = time.monotonic()
        replies.close()  # type: ignore[attr-defined]
        assert time.monotonic() - began < 20 and THREAD_NAME not in {thread.name for thread in threading.enumerate()}
        time.sleep(1.0)  # the server of a busy machine may read only now what was sent before
        number = len(server.asked)
        time.sleep(0.1)
        assert len(server.asked) == number <= 6


@asynccontextmanager
async def no_session() -> AsyncIterator[None]:
    yield


async def wait(_: None, seconds: float) -> float:
    """Ends after so many seconds; below 0 it fails after as many."""
    await asyncio.sleep(abs(seconds))
    if seconds < 0:
        raise ValueError("refused")
    return seconds


def test_what_arrives_beside_an_item_that_fails_is_given_out_before_the_error() -> None:
    found = []
    with pytest.raises(ValueError, match="refused"):
        for seconds in run_concurrently([0.0, -0.01, 0.05, 60.0], wait, no_session, 4):
            found.append(seconds)
            if len(found) == 1:
                time.sleep(0.5)  # the caller is busy: meanwhile one fails, another ends, a third stays open
    assert found == [0.0, 0.05]


TELLS = {"Yes": 0.3, " Yes": 0.1, "No": 0.1, "Nobel": 0.2, "yes": 0.1, "Yes.": 0.1, "N": 0.05, "\n": 0.01}
HALVES = {"hall": 0.6, " faith": 0.2}  # choices of several tokens are known by the first


@pytest.mark.parametrize(
    ("tells", "expected"),
    [
        (TELLS, {"Yes": 0.5 / 0.65, "No": 0.15 / 0.65}),
        (HALVES, {"hallucinated": 0.75, "faithful": 0.25}),
        (HALVES, {"hallucinated": 0.0, "hall": 1.0}),
        (HALVES, {"A": None, "B": None}),
    ],
)
def test_probabilities_come_from_the_first_token(tells: dict[str, float], expected: dict[str, float]) -> None:
    with ChatServer(tells=tells) as server:
        (reply,) = engine_for(server).weigh(questions(1), tuple(expected))
    wanted = {name: chance for name, chance in expected.items() if chance is not None}
    assert reply.probabilities == pytest.approx(wanted)
    assert server.asked[0]["max_tokens"] == 1 and server.asked[0]["top_logprobs"] == 20
    assert not reply.texts and not reply.problem and reply.prompt_tokens == 3


def test_a_server_that_refuses_probabilities_is_not_asked_for_them_again() -> None:
    with ChatServer(always=refusal(403, "You are not allowed to request logprobs from this model")) as server:
        replies = list(engine_for(server, concurrency=1).weigh(questions(5), ("Yes", "No")))
    assert [(r.probabilities, r.problem) for r in replies] == [({}, "")] * 5
    assert [body["top_logprobs"] for body in server.asked] == [20, 5]


@pytest.mark.parametrize("fewest", [None, 1])  # texts that the server writes at a time
def test_sampling_is_asked_for_with_a_seed_of_each_request(fewest: int | None) -> None:
    with ChatServer(fewest=fewest) as server:
        replies = {r.id: r.texts for r in engine_for(server).generate(questions(2), NUCLEUS)}
        again = {r.id: r.texts for r in engine_for(server).generate(questions(2)[::-1], NUCLEUS)}
        with pytest.raises(UserError, match="no beams"):
            engine_for(server).generate(questions(1), Decoding(strategy="beam"))
    assert replies == again and all(len(set(texts)) == 3 for texts in replies.values())
    body = server.asked[0]
    assert (body["temperature"], body["top_p"], body["n"]) == (0.7, 0.9, 3)
    assert len(server.asked) == (4 if fewest is None else 12)
    assert fewest or len({body["seed"] for body in server.asked}) == 2


def test_only_vllm_is_held_to_choices_and_takes_its_own_settings() -> None:
    decoding, form = Decoding(min_new_tokens=1, repetition_penalty=1.2), Form(choices=("Yes", "No"))
    with ChatServer(owner="vllm") as server:
        list(engine_for(server).generate(questions(1), decoding, form))
    body = server.asked[0]
    assert body["structured_outputs"] == {"choice": ["Yes", "No"]}
    assert (body["min_tokens"], body["repetition_penalty"], body["top_k"], body["min_p"]) == (1, 1.2, -1, 0.0)
    with ChatServer() as server:
        list(engine_for(server).generate(questions(1), GREEDY, form))
        assert "structured_outputs" not in server.asked[0]
        with pytest.raises(UserError, match="is not vLLM"):
            list(engine_for(server).generate(questions(1), decoding))


def test_a_schema_is_asked_for_and_left_out_once_it_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    def refuses(body: dict[str, Any]) -> Fault | None:
        refused = "response_format" in body
        return refusal(400, "'response_format' of type 'json_schema' is not supported") if refused else None

    schema = {"type": "object", "properties": {"verdict": {"type": "string"}}}
    with ChatServer(always=refuses) as server, caplog.at_level(logging.WARNING, logger="faithkit"):
        engine = engine_for(server, concurrency=1)
        replies = list(engine.generate(questions(4), GREEDY, Form(schema=schema)))
    assert all(reply.texts for reply in replies) and len(server.asked) == 5
    assert server.asked[0]["response_format"]["json_schema"]["schema"] == schema
    assert [record.getMessage() for record in caplog.records] == [
        "the server refuses to constrain replies to a form; requests are sent without it"
    ]


def test_the_key_is_sent_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", f"{SECRET}\n")
    caplog.set_level(logging.DEBUG)
    faults = [LIMITED, refusal(500, f"Bearer {SECRET} crashed"), Fault(body=SECRET.encode())]
    always = refusal(418, f"Authorization: Bearer {SECRET}")
    with ChatServer(*faults, always=always) as server:
        engine = engine_for(server, api_key_variable="MY_KEY")
        (reply,) = engine.generate(questions(1), GREEDY)
    shown = f"{reply} {engine.identity} {engine.__dict__} {engine.usage} {caplog.text} {capfd.readouterr()}"
    assert server.keys[0] == f"Bearer {SECRET}" and "answered 418" in reply.problem
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"base_url": "localhost:8000"}, "engine.base_url is"),
        ({"base_url": "http://"}, "engine.base_url is"),
        ({"base_url": "http://h:99999/v1"}, "is not a URL"),
        ({"base_url": f"http://me:{SECRET}@h/v1"}, "contains more than an address"),
        ({"base_url": f"http://h/v1?key={SECRET}"}, "contains more than an address"),
        ({"model": " "}, "engine.model is"),
        ({"base_url": None}, "OPENAI_API_KEY is not set, and OpenAI needs a key"),
        ({"api_key_variable": "BAD_KEY"}, "BAD_KEY contains characters"),
    ],
)
def test_a_wrong_argument_is_refused(options: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD_KEY", f"{SECRET} {SECRET}")
    with pytest.raises(UserError, match=problem) as raised:
        given = {"model": MODEL, "base_url": "http://localhost:1/v1", **options}
        OpenAiEngine(given.pop("model"), ServerOptions(**given))
    assert SECRET not in str(raised.value) and raised.value.hint


def test_a_missing_package_and_an_older_one_have_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ServerOptions(base_url="http://localhost:1/v1")
    with monkeypatch.context() as patch, pytest.raises(UserError, match=re.escape(install_hint("openai"))):
        patch.setitem(sys.modules, "openai", None)
        OpenAiEngine(MODEL, options)
    monkeypatch.setattr(openai_server, "version", lambda package: "2.9.0")
    with pytest.raises(UserError, match=r"openai 3\.54 or newer, and this is 2\.9\.0") as raised:
        OpenAiEngine(MODEL, options)
    assert 'pip install "openai[aiohttp]>=3.54"' in str(raised.value.hint)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "none"])
def test_the_limit_of_a_reply_has_the_name_that_is_set(field: str) -> None:
    with ChatServer() as server:
        engine = engine_for(server, max_tokens_field=field)
        assert all(reply.texts for reply in engine.generate(questions(1), GREEDY))
        list(engine.weigh(questions(1), ["Yes", "No"]))
    limits = [{name: body[name] for name in body if name.startswith("max_")} for body in server.asked]
    assert limits == ([{}, {}] if field == "none" else [{field: 5}, {field: 1}])


@pytest.mark.parametrize("param", ["max_tokens", None])
def test_a_refused_limit_names_the_setting(param: str | None) -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."

    def refuses(body: dict[str, Any]) -> Fault | None:
        return refusal(400, words, param=param, code="unsupported_parameter") if "max_tokens" in body else None

    with ChatServer(always=refuses) as server:
        with pytest.raises(UserError, match="refuses max_tokens") as raised:
            list(engine_for(server).generate(questions(1), GREEDY))
        assert "engine.max_tokens_field=max_completion_tokens" in str(raised.value.hint)
        engine = engine_for(server, max_tokens_field="max_completion_tokens")
        assert next(iter(engine.generate(questions(1), GREEDY))).texts


def test_the_client_is_imported_only_with_the_engine() -> None:
    code = "import sys, faithkit.inference.openai_engine, faithkit.inference.text_engines"
    code += "; assert not {'openai', 'torch'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


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
