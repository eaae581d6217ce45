"""Turns of self-dialogues: cut to one speaker, ended by rules, written and read back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from construction.ask import ModelReply, ReplyRules
from construction.official_layouts import dialogue_row
from construction.steps import RowFailed
from construction.turns import DialogueRules, read_turn, repeats, says_goodbye
from data_modules.datasets.diahalu import DOMAINS, read_turns
from data_modules.reading.rows import ReadReport, Row

RULES = DialogueRules(by_domain={name: ReplyRules(max_words=30) for name in DOMAINS}, min_rounds=2, heading="So far:")
ONE, TWO = "How deep is the lake in the north?", "It is about ninety metres deep, as far as I know."
THREE, FOUR = "Who measured that?", "Two sailors did it with a very long rope."


def row(*turns: str, domain: str = "knowledge") -> dict[str, Any]:
    return {"key": "k", "domain": domain, "source": "s", "model": "m", "turns": list(turns)}


@pytest.mark.parametrize(
    ("text", "turn", "was_cut"),
    [
        ("A2: How deep is it?\nB2: Very deep.", "How deep is it?", True),
        ("Customer: I want a room.\n\nAssistant: Which?", "I want a room.", True),
        ("[Assistant]: Yes.", "Yes.", False),
        ("**Sam:** Hi there!", "Hi there!", False),
        ('"Hello, I am Sam."', "Hello, I am Sam.", False),
        ('"Yes" or "no"', '"Yes" or "no"', False),
        ("One line.\n\nAnother line.", "One line. Another line.", False),
        ("A lake: what is it?", "A lake: what is it?", False),
    ],
)
def test_a_reply_is_cut_to_the_turn_of_its_speaker(text: str, turn: str, was_cut: bool) -> None:
    assert read_turn(text) == (turn, was_cut)


@given(st.lists(st.text(max_size=60), min_size=1, max_size=8))
def test_turns_of_any_text_are_read_back_from_the_official_layout(texts: list[str]) -> None:
    turns = [read_turn(text)[0] for text in texts]
    written = dialogue_row(row(*turns), 1)
    read = read_turns(Row(written, "file", 0, 1), ReadReport())
    assert [one.text for one in read] == [turn.strip() for turn in turns]


@pytest.mark.parametrize(
    ("text", "turns", "why"),
    [
        ("", (ONE,), "empty"),
        ("I cannot continue this conversation.", (ONE, TWO), "refusal"),  # A
        (FOUR, (ONE, FOUR, THREE), "repeats itself"),
        ("a big dog " * 6, (ONE, TWO, THREE), "repeats itself"),
        ("Je ne sais pas, mais le lac est dans le nord et il est bleu.", (ONE,), "other language"),
        (" ".join(f"word{i} is" for i in range(20)), (ONE,), "over the limit"),
        ("So far: nothing was said.", (ONE,), "repeats the prompt"),
        ("They ask one thing more. So far:", (ONE,), "repeats the prompt"),
        ("Goodbye, and have a nice day!", (ONE, TWO), "said goodbye"),
    ],
)
def test_a_dialogue_that_ends_too_early_fails_with_the_reason(text: str, turns: tuple[str, ...], why: str) -> None:
    rules = DialogueRules(by_domain=RULES.by_domain, min_rounds=3, heading=RULES.heading)
    with pytest.raises(RowFailed, match=why):
        rules.add_turn(row(*turns), ModelReply(text))


def test_enough_whole_rounds_stay_when_a_dialogue_ends() -> None:
    made = RULES.add_turn(row(ONE, TWO, THREE, FOUR, "And who paid?"), ModelReply(""))
    assert made["turns"] == [ONE, TWO, THREE, FOUR]
    assert made["ended"] == {"turn": "B3", "why": "empty", "said": ""}


def test_after_a_goodbye_b_answers_and_the_dialogue_ends() -> None:
    parting = RULES.add_turn(row(ONE, TWO), ModelReply("Thank you, goodbye!"))
    assert "ended" not in parting
    ended = RULES.add_turn(parting, ModelReply("You are welcome."))
    assert ended["ended"] == {"turn": "A2", "why": "said goodbye"} and len(ended["turns"]) == 4
    assert not says_goodbye("Is that all, or do you say goodbye to others too?")


def test_one_refusal_of_b_is_an_answer_and_two_in_a_row_end_the_dialogue() -> None:
    declines = "I'm sorry, I cannot answer that."
    first = RULES.add_turn(row(ONE), ModelReply(declines))
    assert first["turns"][-1] == declines and first["refused"] == ["B1"]
    longer = {**first, "turns": [*first["turns"], THREE]}
    with pytest.raises(RowFailed, match="refusal"):
        RULES.add_turn(longer, ModelReply("I am unable to help with it."))


def test_short_turns_may_be_repeated() -> None:
    assert not repeats("Yes, please.", ["Yes, please."])
    assert repeats("It is about ninety metres deep as far as I know", [TWO])
    longer = f"{TWO} {FOUR} They were paid for it by the king of the land."
    assert repeats(longer, [], [f"{TWO} {FOUR}"]) and not repeats(longer, [f"{TWO} {FOUR}"], [TWO])
