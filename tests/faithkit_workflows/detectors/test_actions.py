"""Actions that an assistant claims: a call must have done them."""

import json
import time
from typing import Any

import pytest

from faithkit.records import FAITHFUL, HALLUCINATED, Prediction, Span
from faithkit_workflows.detectors.actions import add_actions


def call(name: str, arguments: str = "{}", *, failed: bool = False, result: str = "") -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "failed": failed, "result": result}


def mark(answer: str, calls: list[dict[str, Any]]) -> tuple[Span, ...]:
    """Marks the unsupported actions of an answer in which no detector has marked anything."""
    return add_actions(Prediction(id="a", label=FAITHFUL), answer, json.dumps(calls)).spans


LOOKED = [call("get_order", result="id: 7, status: open.")]
BASH_FAILED = [call("Bash", '{"command": "pytest tests"}', result="2 failed, 14 passed")]


@pytest.mark.parametrize(
    "words", ["I sent ", "has sent ", "was sent. ", "tests pass ", "I sent not" + " " * 500 + "x "]
)
def test_a_long_answer_is_judged_in_linear_work(words: str) -> None:
    began = time.process_time()
    mark(words * (50_000 // len(words)), [call("x", result="y" * 2000)] * 100)
    assert time.process_time() - began < 5  # quadratic work takes minutes


@pytest.mark.parametrize(
    ("answer", "calls", "marks"),
    [
        ("I have sent the invoice.", LOOKED, ["I have sent the invoice"]),
        ("I've already emailed Anna, and I booked it.", LOOKED, ["I've already emailed Anna", "I booked it"]),
        ("Done! Your order has been cancelled.", LOOKED, ["Your order has been cancelled"]),
        ("The meeting was rescheduled to 5 pm.", [], ["The meeting was rescheduled to 5 pm"]),
        ("I've fixed the parser and all tests pass.", BASH_FAILED, ["I've fixed the parser", "all tests pass"]),
        ("The build succeeded.", BASH_FAILED, ["The build succeeded"]),
        ("I have sent it.", [call("send_mail", failed=True)], ["I have sent it"]),
        # What a call did is no mark,
        ("I have sent it.", [call("send_mail", failed=True), call("send_mail")], []),
        ("Your order has been cancelled.", [call("cancel_order")], []),
        ("The parcel has been deleted from the list.", [call("list", result="removed and deleted: 1")], []),
        ("I've committed the change.", [call("Bash", '{"command": "git commit -m x"}')], []),
        ("All tests pass.", [call("run_tests", result="16 passed")], []),
        ("All tests pass now.", [*BASH_FAILED, call("Bash", '{"command": "pytest"}', result="16 passed")], []),
        # nor what the answer does not claim.
        ("I have not sent the invoice.", LOOKED, []),
        ("Shall I say that I sent it?", LOOKED, []),
        ("Once I have booked the room, you get a mail.", LOOKED, []),
        ("I looked up the order: it is open.", LOOKED, []),
        ("The customer sent two mails.", LOOKED, []),
    ],
)
def test_an_action_without_a_call_is_marked(answer: str, calls: list[dict[str, Any]], marks: list[str]) -> None:
    found = mark(answer, calls)
    assert [span.text for span in found] == marks == [answer[span.start : span.end] for span in found]
    if any(one["name"] == "send_mail" for one in calls):
        assert all(span.evidence and span.evidence.reason == "the call send_mail failed" for span in found)


def test_a_mark_makes_the_answer_hallucinated_and_takes_the_place_of_the_words_in_it() -> None:
    answer = "It costs 15 euros. I have sent it."
    words = (Span(start=9, end=17, label="hallucination"), Span(start=26, end=30, label="hallucination"))
    before = Prediction(id="a", label=FAITHFUL, score=0.4, spans=words)
    found = add_actions(before, answer, json.dumps(LOOKED))
    assert (found.label, found.score) == (HALLUCINATED, 0.9)
    assert [answer[span.start : span.end] for span in found.spans] == ["15 euros", "I have sent it"]
    done = add_actions(before, answer, json.dumps([call("send_mail")]))
    assert (done.label, done.score) == (FAITHFUL, 0.4)
    assert [answer[span.start : span.end] for span in done.spans] == ["15 euros"]
