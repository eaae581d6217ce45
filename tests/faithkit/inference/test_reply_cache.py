"""Equal requests are known, others are asked for, and what was answered before an error is kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.inference.decoding import Decoding
from faithkit.inference.reply_cache import CachedEngine
from faithkit.inference.text import Form, Message, Request
from tests.faithkit.inference.asking import GREEDY, ask
from tests.faithkit.inference.counting_engine import SILENT, UNABLE, CountingEngine

NUCLEUS = Decoding(strategy="nucleus", num_samples=2)
YES_NO = ("Yes", "No")


def test_a_known_reply_is_not_asked_for_again(path: Path) -> None:
    engine = CountingEngine()
    first = CachedEngine(engine, path)
    assert first.identity == "model"
    expected = list(first.generate(ask("a", "b"), GREEDY))
    second = CachedEngine(engine, path)
    replies = list(second.generate(ask("c", "b", "a"), GREEDY))
    assert engine.asked == ["a", "b", "c"]
    assert {reply.id for reply in replies[:2]} == {"a", "b"} and replies[2].id == "c"
    assert sorted(replies[:2], key=lambda r: r.id) == expected
    assert (first.known, first.asked, second.known, second.asked) == (0, 2, 2, 1)


@pytest.mark.parametrize(
    ("again", "is_known"),
    [
        (lambda engine: engine.generate(ask("a"), GREEDY), True),
        (lambda engine: engine.generate([Request("other id", ask("a")[0].messages)], GREEDY), True),
        (lambda engine: engine.generate(ask("a"), replace(GREEDY, seed=3, top_p=0.5, temperature=2.0)), True),
        (lambda engine: engine.generate(ask("a"), GREEDY, Form()), True),
        (lambda engine: engine.generate(ask("a"), replace(GREEDY, max_new_tokens=6)), False),
        (lambda engine: engine.generate(ask("a"), replace(GREEDY, repetition_penalty=1.1)), False),
        (lambda engine: engine.generate(ask("a"), GREEDY, Form(choices=YES_NO)), False),
        (lambda engine: engine.generate(ask("a"), GREEDY, Form(schema={"type": "object"})), False),
        (lambda engine: engine.generate([Request("a", (Message("system", "a"),))], GREEDY), False),
        (lambda engine: engine.generate(ask("a"), replace(NUCLEUS, max_new_tokens=5)), False),
        (lambda engine: engine.weigh(ask("a"), YES_NO), False),
    ],
)
def test_equal_requests_are_known_and_others_are_not(path: Path, again: Any, is_known: bool) -> None:
    engine = CountingEngine()
    list(CachedEngine(engine, path).generate(ask("a"), GREEDY))
    list(again(CachedEngine(engine, path)))
    assert (len(engine.asked) == 1) is is_known


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"top_p": 0.5}, {"temperature": 0.5}, {"num_samples": 3}, {"max_new_tokens": 7}]
)
def test_samples_are_known_by_every_setting_the_requests_id_and_the_model(path: Path, change: dict[str, Any]) -> None:
    engine, other = CountingEngine(), CountingEngine("another")
    messages = ask("a")[0].messages
    for decoding in (NUCLEUS, NUCLEUS, replace(NUCLEUS, **change)):
        list(CachedEngine(engine, path).generate([Request("1", messages)], decoding))
    list(CachedEngine(engine, path).generate([Request("2", messages)], NUCLEUS))
    list(CachedEngine(other, path).generate([Request("1", messages)], NUCLEUS))
    assert engine.asked == ["1", "1", "2"] and other.asked == ["1"]


def test_equal_requests_of_a_call_are_asked_once(path: Path) -> None:
    engine = CountingEngine(fails=["bad"])
    same = [Request(str(i), ask("a")[0].messages) for i in range(3)]
    bad = [Request("bad", ask("b")[0].messages), Request("worse", ask("b")[0].messages)]
    cached = CachedEngine(engine, path)
    replies = {reply.id: reply for reply in cached.generate([*same, *bad], GREEDY)}
    assert engine.asked == ["0", "bad"] and (cached.known, cached.asked) == (3, 2)
    assert {replies[str(i)].texts for i in range(3)} == {("a!",)} and replies["worse"].problem == "it failed"


def test_probabilities_are_remembered_whatever_the_order_of_the_choices(path: Path) -> None:
    engine = CountingEngine()
    (first,) = CachedEngine(engine, path).weigh(ask("a"), YES_NO)
    (again,) = CachedEngine(engine, path).weigh(ask("a"), YES_NO[::-1])
    list(CachedEngine(engine, path).weigh(ask("a"), ("Yes", "Maybe")))
    assert first == again and first.prompt_tokens == 7 and engine.asked == ["a", "a"]


def test_a_problem_is_forgotten_and_so_is_what_nobody_was_asked(path: Path) -> None:
    failing, unable, silent = CountingEngine(fails=["b"]), CountingEngine(UNABLE), CountingEngine(SILENT)
    for _ in range(2):
        assert [bool(reply.problem) for reply in CachedEngine(failing, path).generate(ask("b"), GREEDY)] == [True]
        for engine in (unable, silent):
            assert [dict(reply.probabilities) for reply in CachedEngine(engine, path).weigh(ask("a"), YES_NO)] == [{}]
    assert failing.asked == ["b", "b"] and unable.asked == ["a", "a"]
    assert silent.asked == ["a"], "an answer without probabilities is an answer: it is paid once"
    (reply,) = CachedEngine(CountingEngine(), path).generate(ask("b"), GREEDY)
    assert reply.texts == ("b!",)


@pytest.mark.parametrize("commit_every", [1, 4, 100])
def test_what_came_before_an_error_is_kept(path: Path, commit_every: int) -> None:
    with pytest.raises(UserError, match="the key is refused"):
        list(
            CachedEngine(CountingEngine(stops_after=6), path, commit_every=commit_every).generate(
                ask(*"abcdefgh"), GREEDY
            )
        )
    engine = CountingEngine()
    list(CachedEngine(engine, path).generate(ask(*"abcdefgh"), GREEDY))
    assert engine.asked == ["g", "h"]


def test_thousands_are_found_in_one_call(path: Path) -> None:
    engine = CountingEngine()
    requests = ask(*map(str, range(2345)))
    list(CachedEngine(engine, path, commit_every=500).generate(requests, GREEDY))
    assert len(list(CachedEngine(engine, path).generate(requests, GREEDY))) == len(engine.asked) == 2345
