"""A server is asked for probabilities, samples and forms in its own terms; what it cannot do is left out or refused."""

import logging
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.inference.decoding import Decoding
from faithkit.inference.text import Form
from tests.faithkit.inference.asking import GREEDY, engine_for, questions
from tests.faithkit.inference.server import ChatServer, Fault, refusal

pytestmark = pytest.mark.usefixtures("quickly")

NUCLEUS = Decoding(strategy="nucleus", top_p=0.9, temperature=0.7, num_samples=3, seed=4)


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
        "the server refuses to constrain replies to a form; requests are sent without it"
    ]
