"""Prompts are filled as they stand, with the same examples before every request."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.inference.text import SYSTEM, USER
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span, Turn
from judge.asking import ASKINGS
from judge.judge import Judge
from judge.prompt import PromptTemplate, draw_shots, read_prompt, read_shots, with_shots
from tests.data_modules import examples
from tests.judge.engines import SetEngine
from tests.judge.test_judge import KNOWLEDGE, TEN, TWELVE

TEXT = "Look.\n\nKnown: {knowledge}\n\nSaid:\n{history}\n\nReply: {response}\n\nIs it wrong?"


def example(knowledge: str = "It is red.", history: tuple[str, ...] = ("Which?",), response: str = "Blue.") -> Example:
    turns = tuple(Turn(speaker=("seeker", "wizard")[i % 2], text=text) for i, text in enumerate(history))
    return examples.example(knowledge=knowledge, history=turns, response=response)


def test_fields_are_filled_speakers_named_and_paragraphs_without_anything_to_say_left_out() -> None:
    filled = PromptTemplate(TEXT).fill(example(history=("Which?", "That.", "Sure?")))
    said = "[Human]: Which?\n[Assistant]: That.\n[Human]: Sure?"
    assert filled == f"Look.\n\nKnown: It is red.\n\nSaid:\n{said}\n\nReply: Blue.\n\nIs it wrong?"
    assert PromptTemplate(TEXT).fill(example("", ())) == "Look.\n\nReply: Blue.\n\nIs it wrong?"


@given(st.text(max_size=40))
def test_what_looks_like_a_field_in_a_text_stays_as_it_is(text: str) -> None:
    response = f"{text} {{knowledge}} {{history}}"
    assert response.strip() in PromptTemplate(TEXT).fill(example(response=response))


DIGESTS = {"verdict": "e30f7b94548d31e9", "judgement": "2ceb408efb97e44b"}
DIGESTS |= {"steps": "edea65637ab628b2", "spans": "d9fb7c43dcd13405"}


@pytest.mark.parametrize("name", DIGESTS)
def test_our_prompts_are_asked_byte_for_byte_and_share_their_beginning(name: str) -> None:
    """Results were taken with these bytes; engines read all before the reply once."""
    first, second = (read_prompt(name).fill(example(response=response)) for response in ("Blue.", "Green."))
    assert hashlib.sha256(first.encode()).hexdigest()[:16] == DIGESTS[name]
    shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert first[:shared].endswith("Reply to check:\n")
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
        (TEXT.replace("{response}", "{respons}"), r"no field \{respons\}\n.*\n  hint: did you mean response"),
        (TEXT + " {history}{persona}", r"no field \{persona\}"),
        ("\udcff\udcfe{response}", "not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_prompt_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "verdict.txt").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=message) as raised:
        read_prompt("verdict", str(tmp_path))
    assert str(tmp_path / "verdict.txt") in str(raised.value)


ROW = {"knowledge": KNOWLEDGE, "history": ["Is it {response}?"], "response": TWELVE, "reply": 'Yes. "twelve" is wrong.'}


def rows(count: int = 10) -> list[Example]:
    return [
        Example(
            id=str(i), source="a", split="train", group=str(i), knowledge=KNOWLEDGE, response=(TEN, TWELVE)[i % 2],
            label=(FAITHFUL, HALLUCINATED)[i % 2], spans=(Span(start=17, end=23, label="x"),) if i % 2 else (),
        )
        for i in range(count)
    ]  # fmt: skip


def write(folder: Path, *given: dict[str, object]) -> str:
    (folder / "examples.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in given))
    return str(folder / "examples.jsonl")


@pytest.mark.parametrize("name", [asking.prompt for asking in ASKINGS.values()])
def test_examples_stand_behind_the_instruction_and_all_requests_begin_with_them(name: str, tmp_path: Path) -> None:
    shots = read_shots(write(tmp_path, ROW, {**ROW, "knowledge": "", "history": None, "reply": "No."}))
    plain = read_prompt(name)
    filled = [with_shots(plain, shots).fill(row) for row in rows(2)]
    shared = next(i for i, (a, b) in enumerate(zip(*filled, strict=False)) if a != b)
    instruction, question = plain.fill(rows(2)[0]).split("\n\nKnowledge:")
    assert filled[0].startswith(instruction) and filled[0].endswith(question)
    assert filled[0].index("Example 1\n\nKnowledge:\n") < filled[0].index("Example 2\n\nReply to check:\n") < shared
    assert "[Human]: Is it {response}?" in filled[0][:shared], "what looks like a field stays as it is"
    assert filled[0][:shared].index('Yes. "twelve" is wrong.\n\nExample 2') and "\n\nNo.\n\nNow" in filled[0][:shared]


def test_a_prompt_of_ones_own_says_where_examples_stand() -> None:
    text = "Look.\n\n{examples}\n\nThink hard.\n\n{knowledge}\n\n{history}\n\n{response}"
    template = PromptTemplate(text)
    [row] = rows(1)
    assert template.fill(row) == f"Look.\n\nThink hard.\n\n{KNOWLEDGE}\n\n{TEN}"
    filled = with_shots(template, [replace(row, target="No")]).fill(row)
    assert filled.startswith(f"Look.\n\nExample 1\n\n{KNOWLEDGE}\n\n{TEN}\n\nNo\n\nNow") and "Think hard." in filled
    assert with_shots(template, [replace(row, target="No")]).fingerprint != template.fingerprint


def test_drawn_examples_take_turns_between_the_classes_and_hang_on_the_seed() -> None:
    chosen = draw_shots(rows(), "verdict", 3, seed=1)
    assert [shot.target for shot in chosen] == ["Yes", "No", "Yes"]
    assert chosen == draw_shots(rows(), "verdict", 3, seed=1) != draw_shots(rows(), "verdict", 3, seed=2)
    [spans] = draw_shots(rows(), "spans", 1, seed=0)
    assert spans.target == '{"hallucinations": ["twelve"]}'
    with pytest.raises(UserError, match="4 rows are left"):
        draw_shots(rows(4), "verdict", 5, seed=0)
    with pytest.raises(UserError, match=r"no row tells the right reply\n.*judge.examples=FILE"):
        draw_shots(rows(), "steps", 1, seed=0)


def test_a_judge_asks_with_the_examples_of_a_file(tmp_path: Path) -> None:
    engine = SetEngine(says=lambda prompt: ["Yes."])
    Judge.load(engine, ask="steps", examples=write(tmp_path, ROW)).judge(KNOWLEDGE, TEN)
    assert 'Yes. "twelve" is wrong.' in engine.asked[0]
    with pytest.raises(UserError, match=r"only evaluate\.py can draw rows"):
        Judge.load(engine, examples=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"knowledge": "a", "response": "b"}, r"'reply' must be text"),
        ({**ROW, "response": " "}, r"'response' is empty"),
        ({**ROW, "answer": "x"}, r"no field 'answer'"),
        ({**ROW, "history": [5]}, r"history"),
    ],
)
def test_a_row_that_is_no_example_is_named_by_its_line(row: dict[str, object], problem: str, tmp_path: Path) -> None:
    path = write(tmp_path, ROW, row)
    with pytest.raises(UserError, match=problem) as raised:
        read_shots(path)
    assert "line 2" in str(raised.value)
    with pytest.raises(UserError, match="does not exist"):
        read_shots(str(tmp_path / "none.jsonl"))
