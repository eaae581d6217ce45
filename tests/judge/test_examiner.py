"""An examiner questions another model for several turns, which does not see the response, and then decides."""

from collections.abc import Sequence

import pytest

from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED
from judge.baselines.baseline_options import ExaminerOptions
from judge.baselines.examiner import Examiner
from tests.data_modules.examples import example
from tests.judge.engines import SetEngine

KNOWLEDGE = "The Danube flows through ten countries."
ROWS = [example(id="twelve", knowledge=KNOWLEDGE, response="It has twelve."), example(id="ten", response="It has ten.")]


def examined(examiner: SetEngine, examinee: SetEngine, **options: int) -> Examiner:
    return Examiner(examiner, examinee, ExaminerOptions(**{"turns": 2, **options}))  # type: ignore[arg-type]


def test_questions_are_answered_without_the_response_and_the_answers_decide() -> None:
    def asks(prompt: str) -> Sequence[str]:
        return ["1. How long is it?"] if "How many?" in prompt else ["How many?\nPlease tell.\nHow many?"]

    examiner = SetEngine(
        says=asks, weighs=lambda prompt: {"Yes": 0.9, "No": 0.1} if "twelve" in prompt else {"Yes": 0.2, "No": 0.8}
    )
    examinee = SetEngine(says=lambda prompt: ["Ten countries."] if "How many?" in prompt else ["2,850 km."])
    found = list(examined(examiner, examinee).predict_examples(ROWS))
    assert [(one.id, one.label, one.score) for one in found] == [
        ("twelve", HALLUCINATED, pytest.approx(0.9)),
        ("ten", FAITHFUL, pytest.approx(0.2)),
    ]
    assert found[0].text == "How many?\n\nTen countries.\n\nHow long is it?\n\n2,850 km."
    assert len(examinee.asked) == 4 and not any("It has" in prompt for prompt in examinee.asked)
    assert any(KNOWLEDGE in prompt for prompt in examinee.asked)
    assert not any(KNOWLEDGE in prompt for prompt in examiner.asked), "the examiner hears it from the other"


def test_who_has_no_more_questions_decides_at_once() -> None:
    examiner = SetEngine(
        says=lambda prompt: ["I know enough."] if "twelve" in prompt else ["Is it?\nWhere?\nWhen?"],
        weighs=lambda prompt: {"Yes": 0.6, "No": 0.4},
    )
    examinee = SetEngine(says=lambda prompt: ["So."])
    examiner_of_rows = examined(examiner, examinee, num_questions=2)
    found = list(examiner_of_rows.predict_examples(ROWS))
    assert [one.text for one in found] == ["", "Is it?\n\nWhere?\n\nSo.\n\nWhen?\n\nSo."]
    assert examiner_of_rows.num_unasked == 1
    assert [prompt.count("?") for prompt in examinee.asked] == [2, 1], "two a turn, and nothing twice"


def test_a_request_that_fails_costs_its_row_alone() -> None:
    examiner = SetEngine(
        says=lambda prompt: ["Is it?"],
        weighs=lambda prompt: {"Yes": 0.6, "No": 0.4},
        problem=lambda prompt: "too long" if "twelve" in prompt else "",
    )
    found = list(examined(examiner, SetEngine(problem=lambda prompt: "lost")).predict_examples(ROWS))
    assert [(one.label, one.text) for one in found] == [(UNPARSED, "too long"), (HALLUCINATED, "Is it?\n\n(no answer)")]
