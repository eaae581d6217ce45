"""Prompts: fields are filled as they stand, empty paragraphs go, and a folder of one's own is checked."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.inference.text import SYSTEM, USER
from faithkit.records import Example, Turn
from judge.asking import ASKINGS
from judge.prompt import PromptTemplate, read_prompt
from tests.data_modules import examples

TEXT = "Look.\n\nKnown: {knowledge}\n\nSaid:\n{history}\n\nReply: {response}\n\nIs it wrong?"


def example(knowledge: str = "It is red.", history: tuple[str, ...] = ("Which?",), response: str = "Blue.") -> Example:
    turns = tuple(Turn(speaker=("seeker", "wizard")[i % 2], text=text) for i, text in enumerate(history))
    return examples.example(knowledge=knowledge, history=turns, response=response)


def test_fields_are_filled_and_speakers_named() -> None:
    filled = PromptTemplate(TEXT).fill(example(history=("Which?", "That.", "Sure?")))
    said = "[Human]: Which?\n[Assistant]: That.\n[Human]: Sure?"
    assert filled == f"Look.\n\nKnown: It is red.\n\nSaid:\n{said}\n\nReply: Blue.\n\nIs it wrong?"


def test_a_paragraph_without_anything_to_say_is_left_out() -> None:
    assert PromptTemplate(TEXT).fill(example("", ())) == "Look.\n\nReply: Blue.\n\nIs it wrong?"


@given(st.text(max_size=40))
def test_what_looks_like_a_field_in_a_text_stays_as_it_is(text: str) -> None:
    response = f"{text} {{knowledge}} {{history}}"
    assert response.strip() in PromptTemplate(TEXT).fill(example(response=response))


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("verdict", "e30f7b94548d31e9"),
        ("judgement", "2ceb408efb97e44b"),
        ("steps", "edea65637ab628b2"),
        ("spans", "d9fb7c43dcd13405"),
    ],
)
def test_our_prompts_are_asked_byte_for_byte_as_results_were_taken_with_them(name: str, digest: str) -> None:
    filled = read_prompt(name).fill(example())
    assert hashlib.sha256(filled.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("name", [asking.prompt for asking in ASKINGS.values()])
def test_our_prompts_share_their_beginning_and_end_with_what_is_judged(name: str) -> None:
    prompt = read_prompt(name)
    first, second = (prompt.fill(example(response=response)) for response in ("Blue.", "Green."))
    shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert first[:shared].endswith("Reply to check:\n")  # so engines read all before it once
    assert "It is red." in first[:shared] and "[Human]: Which?" in first[:shared]


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "verdict.txt").write_text(TEXT)
    (tmp_path / "system.txt").write_text("You are strict.\n")
    messages = read_prompt("verdict", str(tmp_path)).messages(example())
    assert [message.role for message in messages] == [SYSTEM, USER]
    assert messages[0].content == "You are strict."
    with pytest.raises(UserError, match=r"no prompt judgment\n.*\n  hint: .*verdict"):
        read_prompt("judgment", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("{knowledge}", ""), r"lacks \{knowledge\}"),
        (TEXT.replace("{response}", "{respons}"), r"no field \{respons\}\n.*\n  hint: did you mean response"),
        (TEXT + " {history}{persona}", r"no field \{persona\}"),
    ],
)
def test_a_missing_or_unknown_field_is_named_with_its_file(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "verdict.txt").write_text(text)
    with pytest.raises(UserError, match=message) as raised:
        read_prompt("verdict", str(tmp_path))
    assert str(tmp_path / "verdict.txt") in str(raised.value)


def test_a_prompt_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "verdict.txt").write_bytes(b"\xff\xfe{response}")
    with pytest.raises(UserError, match="not UTF-8 text"):
        read_prompt("verdict", str(tmp_path))
