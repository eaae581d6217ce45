"""A server is asked many requests at a time, and whatever it does, each request ends in one reply or one problem."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.inference.concurrently import THREAD_NAME
from faithkit.inference.decoding import Decoding
from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.openai_server import OPENAI
from faithkit.inference.text import SYSTEM, USER, Form, Message, Reply, Request
from faithkit.inference.usage import Price
from tests.faithkit.inference.server import FAILED, HALF, LIMITED, MODEL, ChatServer, Fault, answering, refusal
from tests.running import ROOT

GREEDY = Decoding(max_new_tokens=5)
NUCLEUS = Decoding(strategy="nucleus", top_p=0.9, temperature=0.7, num_samples=3, seed=4)
SECRET = "sk-secret1234567890"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are short; no key of the user's, and no proxy, comes into it."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("faithkit.inference.openai_engine.FIRST_WAIT", 0.01)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def questions(number: int) -> list[Request]:
    return [Request(f"id {i}", (Message(SYSTEM, "Answer."), Message(USER, f"question {i}"))) for i in range(number)]


def engine_for(server: ChatServer, **options: Any) -> OpenAiEngine:
    return OpenAiEngine(
        **{"model": MODEL, "base_url": server.url, "max_retries": 2, "timeout_seconds": 60.0, **options}
    )


def one_reply(server: ChatServer, **options: Any) -> Reply:
    (reply,) = engine_for(server, **options).generate(questions(1), GREEDY)
    return reply


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


def test_what_was_used_is_counted() -> None:
    with ChatServer(LIMITED, Fault(body=HALF), answering(), always=None) as server:
        engine = engine_for(server, price=Price(prompt=1.0, new=2.0))
        assert len(list(engine.generate(questions(3), GREEDY))) == 3
    usage = engine.usage
    assert (usage.answered, usage.failed, usage.sent, usage.retries) == (3, 0, 6, 3)
    assert (usage.prompt_tokens, usage.new_tokens) == (9, 6)
    assert usage.cost == pytest.approx(21e-6)
    assert str(usage) == "3 requests answered, 3 retries, 9 tokens read, 6 written, 0.0000 dollars"


@pytest.mark.parametrize(
    "fault",
    [
        LIMITED,
        FAILED,
        Fault(disconnect=True),
        Fault(body=HALF),
        Fault(body=HALF, missing=50),
        Fault(seconds=1.3),
        Fault(body=b"<html>busy</html>", headers={"Content-Type": "text/html"}),
        Fault(body=b'{"choices": []}'),
        Fault(body=b'{"choices": [{"message": "text"}]}'),
        Fault(body=b"[" * 100_000),
        Fault(body=b"\xff\xfe"),
        answering(),
        answering(message={"role": "assistant", "content": " \n"}),
        answering(message={"role": "assistant", "content": None}),
    ],
    ids=lambda fault: f"{fault.status}-{(fault.body or b'')[:30]!r}-{fault.missing}-{fault.seconds}",
)
def test_what_fails_for_a_while_is_asked_again(fault: Fault) -> None:
    with ChatServer(fault, fault) as server:
        reply = one_reply(server, timeout_seconds=1.0 if fault.seconds else 60.0)
    assert (reply.texts, reply.finished, reply.problem) == (("question 0",), (True,), "")
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("fault", "tries", "problem"),
    [
        (LIMITED, 3, "limits the rate"),
        (FAILED, 3, "the server answered 500: 'something broke'"),
        (Fault(disconnect=True), 3, "no answer after 3 tries"),
        (Fault(seconds=1.3), 3, "no answer after 3 tries: ReadTimeout"),
        (Fault(body=HALF), 2, "is not JSON"),
        (Fault(body=b'{"choices": []}'), 2, "has no valid choices"),
        (answering(), 2, "the answer is empty"),
        (answering(finish_reason="length"), 1, "max_new_tokens were spent"),
        (answering(finish_reason="content_filter"), 1, "content filter withholds"),
        (answering(message={"role": "assistant", "content": None, "refusal": "no"}), 1, "refuses to answer"),
        (refusal(400, "it is odd"), 1, "the server answered 400: 'it is odd'"),
        (refusal(413, "too big"), 1, "the server answered 413"),
        (
            refusal(400, "no", code="context_length_exceeded", param="messages"),
            1,
            "does not fit into the model's context",
        ),
        (refusal(400, "This model's maximum context length is 8 tokens."), 1, "does not fit"),
        (refusal(400, "max_tokens is too large for the context window", param="max_tokens"), 1, "does not fit"),
    ],
)
def test_what_keeps_failing_is_that_requests_problem(fault: Fault, tries: int, problem: str) -> None:
    def fails_at_2(body: dict[str, Any]) -> Fault | None:
        return fault if body["messages"][-1]["content"] == "question 2" else None

    with ChatServer(always=fails_at_2) as server:
        timeout = 1.0 if fault.seconds else 60.0
        engine = engine_for(server, malformed_retries=1, timeout_seconds=timeout, concurrency=2)
        replies = {reply.id: reply for reply in engine.generate(questions(4), GREEDY)}
    assert problem in replies["id 2"].problem and not replies["id 2"].texts
    assert [replies[f"id {i}"].texts for i in (0, 1, 3)] == [(f"question {i}",) for i in (0, 1, 3)]
    assert server.contents.count("question 2") == tries
    assert (engine.usage.failed, engine.usage.answered) == (1, 3)


def test_a_limited_rate_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with ChatServer(*[LIMITED] * 5) as server, caplog.at_level(logging.INFO, logger="faithkit"):
        assert all(reply.texts for reply in engine_for(server, max_retries=5).generate(questions(4), GREEDY))
    (said,) = [record.getMessage() for record in caplog.records]
    assert "engine.concurrency" in said


@pytest.mark.parametrize("header", [{"Retry-After": "0.3"}, {"Retry-After-Ms": "300"}])
def test_retry_after_is_waited_for(header: dict[str, str]) -> None:
    with ChatServer(Fault(429, b"{}", header)) as server:
        assert one_reply(server).texts
    assert 0.3 <= server.times[1] - server.times[0] < 20


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
def test_what_concerns_all_requests_is_told_once(
    fault: Fault, problem: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with ChatServer(always=fault, models=["large", "smaller"]) as server, pytest.raises(UserError) as told:
        list(engine_for(server, concurrency=2).generate(questions(50), GREEDY))
    assert problem in told.value.problem and hint in (told.value.hint or "") and told.value.place == server.url
    assert SECRET not in str(told.value) and len(str(told.value).splitlines()) <= 5
    assert len(server.asked) <= 6


def test_a_server_that_wants_a_key_says_so() -> None:
    with ChatServer(always=refusal(401, "key?")) as server, pytest.raises(UserError, match="wants a key, and OPENAI"):
        one_reply(server)
    assert server.keys == ["Bearer none"]


def test_a_server_that_is_down_is_told_at_once() -> None:
    with ChatServer() as server:
        pass
    began = time.monotonic()
    with pytest.raises(UserError, match="no server answers here") as told:
        one_reply(server, max_retries=6)
    assert "engine.base_url=http://" in (told.value.hint or "") and time.monotonic() - began < 15


def test_a_server_that_goes_away_is_not_asked_for_ever() -> None:
    def leaves(body: dict[str, Any]) -> Fault | None:
        return Fault(disconnect=True) if len(server.asked) > 10 else None

    with ChatServer(always=leaves) as server:
        engine = engine_for(server, concurrency=2, max_retries=1)
        replies: list[Reply] = []
        with pytest.raises(UserError, match="the server has stopped answering"):
            replies.extend(engine.generate(questions(1000), GREEDY))
    assert len(server.asked) < 30


def test_probabilities_come_from_the_first_token() -> None:
    tells = {"Yes": 0.3, " Yes": 0.1, "No": 0.1, "Nobel": 0.2, "yes": 0.1, "Yes.": 0.1, "N": 0.05, "\n": 0.01}
    with ChatServer(tells=tells) as server:
        (reply,) = engine_for(server).weigh(questions(1), ("Yes", "No"))
    assert reply.probabilities == pytest.approx({"Yes": 0.5 / 0.65, "No": 0.15 / 0.65})
    assert server.asked[0]["max_tokens"] == 1 and server.asked[0]["top_logprobs"] == 20
    assert not reply.texts and reply.prompt_tokens == 3


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        (("hallucinated", "faithful"), {"hallucinated": 0.75, "faithful": 0.25}),
        (("hallucinated", "hall"), {"hallucinated": 0.0, "hall": 1.0}),
        (("A", "B"), {}),
    ],
)
def test_choices_of_several_tokens_are_known_by_the_first(choices: tuple[str, ...], expected: dict[str, float]) -> None:
    with ChatServer(tells={"hall": 0.6, " faith": 0.2}) as server:
        (reply,) = engine_for(server).weigh(questions(1), choices)
    assert reply.probabilities == pytest.approx(expected) and not reply.problem


def test_a_server_without_probabilities_gives_none() -> None:
    with ChatServer(tells=None) as server:
        assert [(r.probabilities, r.problem) for r in engine_for(server).weigh(questions(2), ("Yes", "No"))] == [
            ({}, "")
        ] * 2


def test_a_server_that_refuses_probabilities_is_not_asked_for_them_again() -> None:
    with ChatServer(always=refusal(403, "You are not allowed to request logprobs from this model")) as server:
        replies = list(engine_for(server, concurrency=1).weigh(questions(5), ("Yes", "No")))
    assert [(r.probabilities, r.problem) for r in replies] == [({}, "")] * 5
    assert [body["top_logprobs"] for body in server.asked] == [20, 5]


def test_sampling_is_asked_for_with_a_seed_of_each_request() -> None:
    with ChatServer() as server:
        replies = {r.id: r.texts for r in engine_for(server).generate(questions(2), NUCLEUS)}
        again = {r.id: r.texts for r in engine_for(server).generate(questions(2)[::-1], NUCLEUS)}
    assert replies == again and all(len(set(texts)) == 3 for texts in replies.values())
    body = server.asked[0]
    assert (body["temperature"], body["top_p"], body["n"]) == (0.7, 0.9, 3)
    assert len({body["seed"] for body in server.asked}) == 2


def test_a_server_that_writes_one_text_at_a_time_is_asked_for_each() -> None:
    with ChatServer(fewest=1) as server:
        (reply,) = engine_for(server).generate(questions(1), NUCLEUS)
    assert len(reply.texts) == len(set(reply.texts)) == len(reply.finished) == len(server.asked) == 3


def test_beams_are_refused() -> None:
    with ChatServer() as server, pytest.raises(UserError, match="no beams"):
        engine_for(server).generate(questions(1), Decoding(strategy="beam"))


def test_vllm_is_held_to_choices_and_takes_its_own_settings() -> None:
    decoding, form = Decoding(min_new_tokens=1, repetition_penalty=1.2), Form(choices=("Yes", "No"))
    with ChatServer(owner="vllm") as server:
        list(engine_for(server).generate(questions(1), decoding, form))
    body = server.asked[0]
    assert body["structured_outputs"] == {"choice": ["Yes", "No"]}
    assert (body["min_tokens"], body["repetition_penalty"], body["top_k"], body["min_p"]) == (1, 1.2, -1, 0.0)


def test_other_servers_are_asked_without_choices_and_refuse_vllms_settings() -> None:
    with ChatServer() as server:
        list(engine_for(server).generate(questions(1), GREEDY, Form(choices=("Yes", "No"))))
        assert "structured_outputs" not in server.asked[0]
        with pytest.raises(UserError, match="is not vLLM"):
            list(engine_for(server).generate(questions(1), Decoding(repetition_penalty=1.2)))


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
        "the server refuses to hold the model to a form; it is asked without"
    ]


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


def test_a_slow_reader_is_waited_for() -> None:
    with ChatServer() as server:
        replies = engine_for(server, concurrency=2).generate(questions(50), GREEDY)
        next(replies)
        time.sleep(0.3)
        assert len(server.asked) <= 3  # no answers pile up that a kill would lose
        assert len(list(replies)) == 49


SCRIPT = """
import sys
from faithkit import signals
from faithkit.inference.decoding import Decoding
from faithkit.inference.openai_engine import OpenAiEngine
from faithkit.inference.text import Message, Request

signals.install()
requests = [Request(str(i), (Message("user", f"question {i}"),)) for i in range(100)]
try:
    for reply in OpenAiEngine("small", base_url=sys.argv[1]).generate(requests, Decoding()):
        print(reply.id, flush=True)
except signals.Interrupted:
    print("interrupted", flush=True)
    sys.exit(signals.EXIT_CODE)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once(number: int) -> None:
    with ChatServer(always=lambda body: Fault(seconds=120.0) if len(server.asked) > 4 else None) as server:
        command = [sys.executable, "-c", SCRIPT, server.url]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline()
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 130 and "interrupted" in out and not err, err
    assert time.monotonic() - began < 60


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
        ({"base_url": "http://h:99999/v1"}, "is no address"),
        ({"base_url": f"http://me:{SECRET}@h/v1"}, "holds more than an address"),
        ({"base_url": f"http://h/v1?key={SECRET}"}, "holds more than an address"),
        ({"model": " "}, "engine.model is"),
        ({"concurrency": 0}, "engine.concurrency is 0"),
        ({"timeout_seconds": 0}, "engine.timeout_seconds is 0"),
        ({"max_retries": -1}, "engine.max_retries is -1"),
        ({"base_url": None}, "OPENAI_API_KEY is not set, and OpenAI wants a key"),
        ({"api_key_variable": "BAD_KEY"}, "BAD_KEY holds what no key has"),
    ],
)
def test_a_wrong_argument_is_refused(options: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD_KEY", f"{SECRET} {SECRET}")
    with pytest.raises(UserError, match=problem) as told:
        OpenAiEngine(**{"model": MODEL, "base_url": "http://localhost:1/v1", **options})
    assert SECRET not in str(told.value) and told.value.hint


def test_identity_names_server_and_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert OpenAiEngine("gpt").identity == f"openai {OPENAI} gpt"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://h:1/v1/")
    assert OpenAiEngine("gpt").identity == "openai http://h:1/v1 gpt"


def test_without_the_package_the_hint_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UserError, match=r"pip install '\.\[openai\]'"):
        OpenAiEngine(MODEL, base_url="http://localhost:1/v1")


def test_the_client_is_imported_only_with_the_engine() -> None:
    code = "import sys, faithkit.inference.openai_engine, faithkit.inference.request_cache"
    code += "; assert not {'openai', 'torch'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
