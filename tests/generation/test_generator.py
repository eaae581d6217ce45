"""A generator answers one turn in three lines, and many as it answers one."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_modules.encoding.sequence_layout import CAUSAL
from faithkit.errors import UserError
from faithkit.inference.text import Decoding
from faithkit.records import Turn
from generation import Generator
from generation.control import control_tokens
from tests.generation.docstrings import run_examples
from tests.generation.folders import CONTROL, examples, write_generator
from tests.model_folders import make_foreign

NUCLEUS = Decoding(strategy="nucleus", top_p=0.95, max_new_tokens=10)


@pytest.mark.parametrize("folder", ["tiny_t5", "tiny_llama"])
def test_it_replies_and_says_the_same_again(folder: str, request: pytest.FixtureRequest) -> None:
    generator = Generator.load(str(request.getfixturevalue(folder)))
    said = generator.reply(knowledge="The river is long.", history=["Hello.", "Hi!", "Is it long?"])
    assert isinstance(said, str) and "<|" not in said
    said_by = (("seeker", "Hello."), ("wizard", "Hi!"), ("seeker", "Is it long?"))
    turns = [Turn(speaker=speaker, text=text) for speaker, text in said_by]
    assert generator.reply(["The river", "is long."], turns) == said, "passages are joined by spaces"
    with pytest.raises(UserError, match=r"max_length is 5000, but this model has|alone take"):
        Generator.load(generator.name, max_length=5000 if folder == "tiny_llama" else 20).reply("x " * 900, ["y"])


@pytest.mark.parametrize("folder", ["tiny_t5", "tiny_llama"])
@pytest.mark.parametrize("decoding", [None, NUCLEUS, Decoding(strategy="beam", num_beams=2, max_new_tokens=6)])
def test_many_are_answered_as_each_alone_in_their_order(
    folder: str, decoding: Decoding | None, request: pytest.FixtureRequest
) -> None:
    path = str(request.getfixturevalue(folder))
    one, many = (Generator.load(path, batch_size=size) for size in (1, 64))
    shuffled = list(examples())
    random.Random(0).shuffle(shuffled)
    expected = {p.id: p.text for p in one.predict_examples(examples(), decoding=decoding)}
    found = list(many.predict_examples(shuffled, decoding=decoding))
    assert [p.id for p in found] == [e.id for e in shuffled]
    assert {p.id: p.text for p in found} == expected
    assert all(p.label is None and p.score is None for p in found)


@pytest.fixture(scope="module")
def turns() -> tuple[list[str], list[list[Turn]]]:
    """Knowledge and history of turns that have both, the first one twice."""
    chosen = [example for example in examples() if example.history][:6]
    return [example.knowledge for example in [*chosen, chosen[0]]], [list(e.history) for e in [*chosen, chosen[0]]]


@pytest.mark.parametrize("folder", ["tiny_t5", "tiny_llama"])
@pytest.mark.parametrize("decoding", [None, NUCLEUS])
def test_lists_are_answered_as_each_turn_alone(
    folder: str, decoding: Decoding | None, turns: tuple[Any, Any], request: pytest.FixtureRequest
) -> None:
    generator = Generator.load(str(request.getfixturevalue(folder)))
    singles = [generator.reply(k, h, decoding=decoding) for k, h in zip(*turns, strict=True)]
    assert generator.reply(*turns, decoding=decoding) == singles
    assert singles[-1] == singles[0]
    assert decoding is None or len(set(singles)) > 1  # the likeliest tokens of random weights may be the same for all


def test_a_stream_reads_only_a_part_ahead_and_answers_in_order(tiny_llama: Path, turns: tuple[Any, Any]) -> None:
    generator, read = Generator.load(str(tiny_llama)), []

    def rows() -> Any:
        for number, (k, h) in enumerate(zip(*turns, strict=True)):
            read.append(number)
            yield {"id": f"r{number}", "knowledge": k, "history": h}

    answers = generator.stream(rows(), decoding=NUCLEUS, chunk_size=2)
    first = next(answers)
    assert first.id == "r0" and read == [0, 1]
    found = [first, *answers]
    assert [answer.id for answer in found] == [f"r{number}" for number in range(7)]
    assert [answer.text for answer in found] == generator.reply(*turns, decoding=NUCLEUS)
    assert json.loads(json.dumps(found[0].to_dict()))["text"] == found[0].text
    own = list(generator.stream(examples(), decoding=NUCLEUS, chunk_size=5))
    assert own == list(generator.predict_examples(examples(), decoding=NUCLEUS))


def test_the_lines_of_its_docstring_run(tiny_t5: Path) -> None:
    assert run_examples(Generator, {"runs/...": str(tiny_t5)}) == 7


def test_an_answer_longer_than_the_model_has_places_for_is_refused(tiny_llama: Path) -> None:
    generator = Generator.load(str(tiny_llama))
    generator.longest = 300
    with pytest.raises(UserError, match=r"the model has 300\n  hint: set decoding.max_new_tokens="):
        generator.reply("The river.", ["Hello"], decoding=Decoding(max_new_tokens=400))


def test_longer_knowledge_than_in_training_is_read_where_that_is_asked_for(tiny_t5: Path) -> None:
    trained = Generator.load(str(tiny_t5))
    long = [replace(examples()[0], knowledge="river " * trained.encoder.layout.max_length)]
    with pytest.raises(UserError, match=r"set max_length=\d+ or more") as refused:
        list(trained.predict_examples(long, decoding=NUCLEUS))
    needed = int(str(refused.value).split("max_length=")[1].split()[0])
    (answer,) = Generator.load(str(tiny_t5), max_length=needed).predict_examples(long, decoding=NUCLEUS)
    assert answer.id == long[0].id


def test_control_tokens_by_name() -> None:
    assert control_tokens(CONTROL) == ("<|no-first-person|>", "<|high-overlap|>", "<|entailed|>")
    assert control_tokens(("overlap",), ["<|low-overlap|>"]) == ("<|low-overlap|>",)
    assert control_tokens(()) == ()


def test_a_model_of_anothers_making_is_read_by_the_documented_layout(tmp_path: Path) -> None:
    folder = make_foreign(write_generator(tmp_path / "plain", CAUSAL))
    generator = Generator.load(str(folder))
    assert generator.encoder.layout.max_length == 512 and generator.encoder.layout.max_history is None
    assert isinstance(generator.reply("The river.", ["Hello"]), str)


def test_other_models_are_refused(tiny_bert: Path, trained: Path) -> None:
    for path in (tiny_bert, trained):
        with pytest.raises(UserError, match=r"writes no text|the model is a 'critic', and a 'generator' is needed"):
            Generator.load(str(path))
