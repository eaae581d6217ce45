"""Questions with two answers: by probability where the engine tells it, else by what is written, read strictly."""

import pytest

from faithkit.records import Example, Turn
from judge.questions import COMPARATIVE, Asker
from tests.judge.engines import SetEngine

ASKED = (Turn(speaker="seeker", text="How many?"),)
EXAMPLE = Example(id="1", source="a", split="b", group="c", knowledge="It has ten.", response="x", history=ASKED)
ROW = (EXAMPLE, {"first": "It has {second}.", "second": "It has twelve."})


def test_the_likelier_answer_is_taken_and_nothing_written() -> None:
    engine = SetEngine(weighs=lambda prompt: {"1": 0.3, "2": 0.7})
    [found] = Asker(engine, COMPARATIVE).answers([ROW])
    assert (found.choice, found.probability, found.text) == ("2", 0.3, "") and not engine.asked


@pytest.mark.parametrize(("said", "choice"), [("2.", "2"), ("Reply 1", "1"), ("Both are.", None), ("12", None)])
def test_a_written_answer_is_read_strictly(said: str, choice: str | None) -> None:
    engine = SetEngine(weighs=lambda prompt: {"1": 0.3, "2": 0.7}, says=lambda prompt: [said])
    [found] = Asker(engine, COMPARATIVE, written=True).answers([ROW])
    assert (found.choice, found.probability, found.text) == (choice, 0.3, said)


def test_the_prompt_has_all_texts_in_their_order_and_takes_none_for_a_field() -> None:
    engine = SetEngine()
    list(Asker(engine, COMPARATIVE).answers([ROW]))
    [prompt] = engine.asked
    parts = ["It has ten.", "[Human]: How many?", "Reply 1:\nIt has {second}.", "Reply 2:\nIt has twelve."]
    places = [prompt.index(part) for part in parts]
    assert places == sorted(places)


def test_one_that_fails_shifts_no_other() -> None:
    engine = SetEngine(says=lambda prompt: ["1"], problem=lambda prompt: "too long" if "fails" in prompt else "")
    rows = [ROW, (EXAMPLE, {"first": "fails", "second": "b"}), ROW]
    found = list(Asker(engine, COMPARATIVE).answers(rows))
    assert [one.choice for one in found] == ["1", None, "1"] and found[1].text == "too long"
