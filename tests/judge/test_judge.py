"""A judge reads set replies, and those of a real (random, tiny) model; questions with two answers are read strictly."""

from pathlib import Path

import pytest

from faithkit.calibration import ScoreCalibration
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Turn
from judge.judge import Judge
from judge.options import AskOptions
from judge.questions import COMPARATIVE, Asker
from tests.data_modules.examples import example
from tests.judge.engines import SetEngine

KNOWLEDGE = "The Danube flows through ten countries."
TWELVE, TEN = "It flows through twelve.", "It flows through ten."


def examples(*responses: str) -> list[Example]:
    return [example(id=f"r{i}", knowledge=KNOWLEDGE, response=text) for i, text in enumerate(responses)]


def test_a_verdict_is_the_likelier_of_yes_and_no_and_nothing_is_written() -> None:
    engine = SetEngine(weighs=lambda prompt: {"Yes": 0.8, "No": 0.2} if TWELVE in prompt else {"Yes": 0.4, "No": 0.6})
    found = list(Judge(engine).predict_examples(examples(TWELVE, TEN)))
    assert [(one.id, one.label) for one in found] == [("r0", HALLUCINATED), ("r1", FAITHFUL)]
    assert [one.score for one in found] == pytest.approx([0.8, 0.4])
    assert not engine.asked
    strict = Judge(engine, calibration=ScoreCalibration(threshold=0.3)).judge(KNOWLEDGE, TEN)
    assert strict.label == HALLUCINATED


def test_an_engine_without_probabilities_writes_the_verdict() -> None:
    engine = SetEngine(says=lambda prompt: ["Yes." if TWELVE in prompt else "Nobel"])
    first, second = Judge(engine).predict_examples(examples(TWELVE, TEN))
    assert (first.label, first.score, first.text) == (HALLUCINATED, None, "Yes.")
    assert (second.label, second.score, second.text) == (UNPARSED, None, "Nobel")


def test_a_judgement_has_verdict_spans_and_rationale() -> None:
    says = 'Yes. "twelve" and "a red fox" are wrong: the knowledge says ten.'
    engine = SetEngine(says=lambda prompt: [says], weighs=lambda prompt: {"Yes": 0.9, "No": 0.1})
    judge = Judge(engine, AskOptions(ask="judgement"))
    found = judge.judge(KNOWLEDGE, TWELVE, history=["Where?"])
    assert found.label == HALLUCINATED and found.probability == pytest.approx(0.9) and judge.num_unlocated == 1
    assert [TWELVE[span.start : span.end] for span in found.spans] == ["twelve"]
    assert found.reason == '"twelve" and "a red fox" are wrong: the knowledge says ten.'
    assert "[Human]: Where?" in engine.asked[0]


def test_a_list_of_spans_is_a_verdict_too() -> None:
    engine = SetEngine(says=lambda prompt: ['{"hallucinations": ["Twelve."]}' if TWELVE in prompt else "[]"])
    first, second = Judge(engine, AskOptions(ask="spans")).judge([KNOWLEDGE] * 2, [TWELVE, TEN])
    assert first.label == HALLUCINATED and TWELVE[first.spans[0].start : first.spans[0].end] == "twelve"
    assert second.label == FAITHFUL and not second.spans


def test_of_several_samples_the_majority_decides_and_unread_ones_do_not_vote() -> None:
    replies = ["Answer: No", "so it is\nAnswer: Yes", "hm", "Answer: Yes"]
    engine = SetEngine(says=lambda prompt: replies)
    found = Judge(engine, AskOptions(ask="steps", num_samples=4)).judge(KNOWLEDGE, TWELVE)
    assert found.label == HALLUCINATED and found.probability == pytest.approx(2 / 3) and found.reason == "so it is"


def test_a_request_that_fails_is_unparsed_and_shifts_no_other() -> None:
    engine = SetEngine(weighs=lambda prompt: {"Yes": 0.1, "No": 0.9}, problem=lambda p: "too long" if TEN in p else "")
    found = list(Judge(engine).predict_examples(examples(TWELVE, TEN, TWELVE)))
    assert [one.label for one in found] == [FAITHFUL, UNPARSED, FAITHFUL] and found[1].text == "too long"
    rows = [ROW, (EXAMPLE, {"first": TEN, "second": "b"}), ROW]
    engine = SetEngine(says=lambda prompt: ["1"], problem=engine.problem)
    chosen = list(Asker(engine, COMPARATIVE).answers(rows))
    assert [one.choice for one in chosen] == ["1", None, "1"] and chosen[1].text == "too long"


@pytest.mark.parametrize("ask", ["verdict", "judgement", "steps", "spans"])
def test_a_real_model_judges_the_same_alone_and_in_a_list(ask: str, language_models: dict[str, Path]) -> None:
    judge = Judge.load(str(language_models["llama"]), ask=ask, precision="32-true", max_new_tokens=5)
    together = judge.judge([KNOWLEDGE, [KNOWLEDGE, "It is long."]], [TWELVE, TEN])
    alone = judge.judge(KNOWLEDGE, TWELVE)
    assert together[0].text == alone.text and together[0].label == alone.label
    if ask == "verdict":
        assert together[0].probability == pytest.approx(alone.probability, abs=1e-5)


def test_speakers_who_are_not_named_take_turns_and_the_last_one_asks() -> None:
    engine = SetEngine()
    judge = Judge(engine)
    judge.judge(KNOWLEDGE, TWELVE, history=["Is it long?", "It is.", "How many countries?"])
    judge.judge(KNOWLEDGE, TWELVE, history=[("bot", "Hello."), ("user", "How many?")])
    assert "[Human]: Is it long?\n[Assistant]: It is.\n[Human]: How many countries?" in engine.asked[0]
    assert "[Assistant]: Hello.\n[Human]: How many?" in engine.asked[1]


def test_a_mistyped_way_of_asking_is_explained() -> None:
    with pytest.raises(UserError, match=r"did you mean verdict\?"):
        Judge.load("smollm2-135m", ask="verdct")


EXAMPLE = example(knowledge="It has ten.", history=(Turn(speaker="seeker", text="How many?"),))
ROW = (EXAMPLE, {"first": "It has {second}.", "second": "It has twelve."})


def test_the_likelier_answer_is_taken_and_nothing_written_for_all_texts_in_their_order() -> None:
    engine = SetEngine(weighs=lambda prompt: {"1": 0.3, "2": 0.7})
    [found] = Asker(engine, COMPARATIVE).answers([ROW])
    assert (found.choice, found.probability, found.text) == ("2", 0.3, "") and not engine.asked
    writing = SetEngine()
    list(Asker(writing, COMPARATIVE).answers([ROW]))
    parts = ["It has ten.", "[Human]: How many?", "Reply 1:\nIt has {second}.", "Reply 2:\nIt has twelve."]
    places = [writing.asked[0].index(part) for part in parts]  # and none is taken for a field
    assert places == sorted(places)


@pytest.mark.parametrize(("said", "choice"), [("2.", "2"), ("Reply 1", "1"), ("Both are.", None), ("12", None)])
def test_a_written_answer_is_read_strictly(said: str, choice: str | None) -> None:
    engine = SetEngine(weighs=lambda prompt: {"1": 0.3, "2": 0.7}, says=lambda prompt: [said])
    [found] = Asker(engine, COMPARATIVE, written=True).answers([ROW])
    assert (found.choice, found.probability, found.text) == (choice, 0.3, said)
