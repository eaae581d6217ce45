"""A generator answers one turn in three lines, and many as it answers one."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_modules.encoding.turn_layout import CAUSAL
from faithkit.errors import UserError
from faithkit.inference.decoding import Decoding
from faithkit.records import Turn
from generation import Generator
from generation.control_names import control_tokens
from tests.generation.folders import CONTROL, examples, write_generator

NUCLEUS = Decoding(strategy="nucleus", top_p=0.95, max_new_tokens=10)


@pytest.mark.parametrize("folder", ["tiny_t5", "tiny_llama"])
def test_it_replies_and_says_the_same_again(folder: str, request: pytest.FixtureRequest) -> None:
    generator = Generator.load(str(request.getfixturevalue(folder)))
    said = generator.reply(knowledge="The river is long.", history=["Hello.", "Hi!", "Is it long?"])
    assert isinstance(said, str) and "<|" not in said
    turns = [Turn(speaker="seeker", text="Hello."), Turn(speaker="wizard", text="Hi!")]
    again = generator.reply("The river is long.", [*turns, Turn(speaker="seeker", text="Is it long?")])
    assert again == said


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


def test_what_the_example_answered_itself_is_not_looked_at(tiny_llama: Path) -> None:
    generator = Generator.load(str(tiny_llama))
    other = [replace(example, response="something else", label=None, spans=None) for example in examples()]
    assert list(generator.predict_examples(other)) == list(generator.predict_examples(examples()))


def test_candidates_are_the_samples_asked_for_with_their_likelihood(tiny_t5: Path) -> None:
    decoding = replace(NUCLEUS, num_samples=3)
    counted: list[int] = []
    found = Generator.load(str(tiny_t5)).candidates(examples(), decoding=decoding, advance=counted.append)
    assert all(len(own) == 3 and all(c.logprob < 0 for c in own) for own in found)
    assert sum(counted) == len(examples())


def test_an_example_without_history_is_answered_from_its_knowledge(tiny_llama: Path) -> None:
    alone = replace(examples()[0], history=())
    (answer,) = Generator.load(str(tiny_llama)).predict_examples([alone])
    assert answer.id == alone.id


@pytest.mark.parametrize(
    ("knowledge", "history", "words"),
    [
        ("The river.", [], "history must be a list of turns"),
        ("The river.", "Hello", "history must be a list of turns, got 'Hello'"),
        ("The river.", ["Hello", " "], "turn 1 of the history"),
        ("  ", ["Hello"], "knowledge must be text"),
        ("river " * 900, ["Hello"], "alone take .* tokens"),
    ],
)
def test_what_cannot_be_answered_is_refused(tiny_t5: Path, knowledge: str, history: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Generator.load(str(tiny_t5)).reply(knowledge, history)


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


def test_no_model_reads_more_than_it_has_places_for(tiny_llama: Path) -> None:
    with pytest.raises(UserError, match=r"max_length is 5000, but this model has \d+ places"):
        Generator.load(str(tiny_llama), max_length=5000)


def test_control_tokens_stand_in_front_and_change_the_answer(tiny_controlled: Path) -> None:
    generator = Generator.load(str(tiny_controlled))
    wanted = list(generator.predict_examples(examples()))
    named = ["no-first-person", "high-overlap", "entailed"]
    assert list(generator.predict_examples(examples(), control=named)) == wanted
    assert list(generator.predict_examples(examples(), control=["low-overlap"])) != wanted


def test_control_tokens_by_name() -> None:
    assert control_tokens(CONTROL) == ("<|no-first-person|>", "<|high-overlap|>", "<|entailed|>")
    assert control_tokens(("overlap",), ["<|low-overlap|>"]) == ("<|low-overlap|>",)
    assert control_tokens(()) == ()
    with pytest.raises(UserError, match=r"no control token 'polite'\n.*\n  hint: use some of first-person, no-first"):
        control_tokens(CONTROL, ["polite"])
    with pytest.raises(UserError, match="control=ctrl"):
        control_tokens((), ["entailed"])
    with pytest.raises(UserError, match="exclude each other"):
        control_tokens(CONTROL, ["low-overlap", "high-overlap"])


def test_a_model_of_anothers_making_is_read_by_the_documented_layout(tmp_path: Path) -> None:
    folder = write_generator(tmp_path / "plain", CAUSAL)
    (folder / "faithkit.json").unlink()
    generator = Generator.load(str(folder))
    assert generator.encoder.layout.max_length == 512 and generator.encoder.layout.max_history is None
    assert isinstance(generator.reply("The river.", ["Hello"]), str)


def test_other_models_engines_and_precisions_are_refused(tiny_llama: Path, tiny_bert: Path, trained: Path) -> None:
    for path in (tiny_bert, trained):
        with pytest.raises(UserError, match=r"writes no text|another kind: 'critic', wanted 'generator'"):
            Generator.load(str(path))
    with pytest.raises(UserError, match="engine is 'onnx'"):
        Generator.load(str(tiny_llama), engine="onnx")
    with pytest.raises(UserError, match="precision is 'int3'"):
        Generator.load(str(tiny_llama), precision="int3")


def test_bf16_answers_too(tiny_t5: Path) -> None:
    assert len(list(Generator.load(str(tiny_t5), precision="bf16").predict_examples(examples()))) == len(examples())
