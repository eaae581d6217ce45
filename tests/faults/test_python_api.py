"""The Python API explains every wrong call in one way: a UserError with the argument's name and a hint."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from faithkit import Critic, Generator, Judge, Tagger
from faithkit.errors import UserError
from faithkit.inference.text import Decoding
from faithkit.records import Turn
from tests.data_modules.examples import example
from tests.faults.strategies import share
from tests.faults.test_model_folder import complete_folder

CLASSES: dict[str, Any] = {"critic": Critic, "tagger": Tagger, "generator": Generator, "judge": Judge}
SHORT, NAN = Decoding(max_new_tokens=4), float("nan")
LISTS = {"knowledge": ["the river", "music"], "response": ["it is", "a dog"], "progress": False}
PAIR = {"knowledge": "the river is long", "response": "it is long"}
RIGHT: dict[str, dict[str, Any]] = {
    "score": PAIR,
    "predict": PAIR,
    "judge": {**PAIR, "progress": False},
    "predict_dialogue": {"knowledge": "the river is long", "turns": [("user", "is it"), ("assistant", "it is")]},
    "reply": {"knowledge": "the river is long", "history": ["is it long"], "decoding": SHORT},
    "predict_examples": {"examples": []},
    "candidates": {"examples": []},
}
GENERATOR_STREAM = {"rows": [{"knowledge": "the river", "history": ["is it"]}], "decoding": SHORT}
TEXT: list[Any] = [
    5,
    b"a",
    {"text": "a"},
    ["a", NAN],
    [["a"]],
    ["a", " "],
    " \n\u3000",
    np.array([["a"]]),
    re.compile("a"),
]
TURNS: list[Any] = [5, b"a", [None], [{"text": 5}], [("a", 5)], [["a", "b"]], {"a"}]
HISTORY: list[Any] = [None, "abc", [], [" "], [["Hello"], ["Hi"]]]
COUNT: list[Any] = [0, -1, 1.5, "5", True, NAN]
SHARE: list[Any] = [-1, 2, "0.5", True, NAN]
WORD: list[Any] = ["fp8", "", 32, ["bf16"], NAN]
DEVICE: list[Any] = ["cuda:7", "tpu", 5, "", b"cpu", True]
FLAG: list[Any] = [1, "yes"]
PATH: list[Any] = [5, b"a", [], {}, NAN]
EXAMPLES: list[Any] = [None, 5, "abc", ["a"], [{"id": "1"}], {}]
DECODING: list[Any] = [{}, "beam", 5, NAN]
ARGUMENTS: dict[tuple[str, str], dict[str, list[Any]]] = {
    ("critic", "load"): {
        "path": PATH,
        "device": DEVICE,
        "precision": WORD,
        "batch_tokens": COUNT,
        "max_windows": COUNT,
    },
    ("critic", "score"): {
        "knowledge": TEXT,
        "history": TURNS,
        "threshold": SHARE,
        "abstain_at": SHARE,
        "knowlege": [""],
    },
    ("critic", "stream"): {"knowledge": [None, "a"], "response": [["a"], ["a", None]], "progress": FLAG, "batch": [3]},
    ("critic", "predict"): {"knowledge": TEXT, "threshold": SHARE},
    ("critic", "predict_examples"): {"examples": EXAMPLES, "progress": FLAG},
    ("tagger", "load"): {"path": PATH, "device": DEVICE, "precision": WORD, "devise": ["cpu"]},
    ("tagger", "predict"): {"knowledge": TEXT, "history": TURNS, "threshold": SHARE, "span_threshold": SHARE},
    ("tagger", "stream"): {"knowledge": [None, "abc"], "history": ["ab", [5, 5]], "threshold": SHARE},
    ("tagger", "predict_dialogue"): {"knowledge": TEXT, "turns": [None, "abc", [], [("assistant", " ")], *TURNS]},
    ("tagger", "predict_examples"): {"examples": EXAMPLES},
    ("generator", "load"): {"path": PATH, "engine": WORD, "max_length": [*COUNT, 1], "memory_fraction": SHARE},
    ("generator", "reply"): {"knowledge": [[], *TEXT], "history": HISTORY, "decoding": DECODING, "control": [5, "a"]},
    ("generator", "stream"): {"rows": [None, 5, "abc", ["a"], [{}], [{"knowledge": "a"}]], "chunk_size": COUNT},
    ("generator", "predict_examples"): {"examples": EXAMPLES, "decoding": DECODING},
    ("generator", "candidates"): {"examples": EXAMPLES, "decodin": [None]},
    ("judge", "load"): {"model": PATH, "device": DEVICE, "ask": ["why", 5], "batch_size": COUNT, "num_samples": COUNT},
    ("judge", "judge"): {"knowledge": [5, b"a", ["a", NAN]], "history": TURNS, "progress": FLAG, "knowlege": ["a"]},
    ("judge", "predict_examples"): {"examples": EXAMPLES},
}
CALLS = [
    (owner, method, name, {name: value})
    for (owner, method), arguments in ARGUMENTS.items()
    for name, values in arguments.items()
    for value in values
]
# Lists whose lengths or items do not fit each other.
CALLS += [
    (owner, method, next(iter(change)), {"knowledge": ["a", "b"], "response": ["a", "b"], **change})
    for owner, method in (("critic", "score"), ("tagger", "predict"), ("judge", "judge"))
    for change in (
        {"knowledge": ["a"] * 3},
        {"knowledge": {0: "a", 1: "b"}},
        {"response": []},
        {"response": None},
        {"response": ["a"]},
        {"knowledge": "a"},
        {"response": ["a", ["b"]]},
        {"response": pd.Series(["a", NAN])},
        {"history": [["a"]]},
        {"history": [["a"], 5]},
    )
]


@pytest.fixture(scope="module")
def folders(language_models: dict[str, Path]) -> dict[str, Path]:
    return {**{kind: complete_folder(kind, "ours") for kind in CLASSES}, "judge": language_models["llama"]}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, Any]:
    return {name: CLASSES[name].load(folder, device="cpu") for name, folder in folders.items()}


def call(owner: str, method: str, change: dict[str, Any], models: dict[str, Any], folders: dict[str, Path]) -> Any:
    """Makes a call that would be right without the change, and runs an iterator that it gives to its end."""
    if method == "load":
        keywords: dict[str, Any] = {"model" if owner == "judge" else "path": folders[owner]}
    elif method == "stream":
        keywords = GENERATOR_STREAM if owner == "generator" else LISTS
    else:
        keywords = RIGHT[method]
    result = getattr(CLASSES[owner] if method == "load" else models[owner], method)(**keywords | change)
    return list(result) if isinstance(result, Iterator) else result


def name_of(argument: Any) -> str:
    return repr(argument).encode("unicode_escape").decode()[:40]


def test_what_a_generator_cannot_answer_is_told_by_item_and_turn(models: dict[str, Any]) -> None:
    for knowledge, history, words in (
        (["The river."], [["Hello"], ["Hi"]], "1 knowledge and 2 history"),
        (["The river.", "The king."], [["Hello"], ["Hi", " "]], "item 1, turn 1 of the history"),
        ("river " * 900, ["Hello"], "alone take .* tokens"),
    ):
        with pytest.raises(UserError, match=words):
            models["generator"].reply(knowledge, history)


@pytest.mark.parametrize(("owner", "method", "blamed", "change"), CALLS, ids=name_of)
def test_a_wrong_call_is_explained(
    owner: str, method: str, blamed: str, change: dict[str, Any], models: dict[str, Any], folders: dict[str, Path]
) -> None:
    with pytest.raises(UserError) as refused:
        call(owner, method, change, models, folders)
    assert blamed in refused.value.problem and refused.value.hint
    assert len(str(refused.value).splitlines()) <= 5 and len(str(refused.value)) < 700


def test_every_public_method_is_called() -> None:
    names = {"load", "stream", *RIGHT}
    assert set(ARGUMENTS) == {(owner, name) for owner, kind in CLASSES.items() for name in names & set(dir(kind))}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@share(1)
@given(data=st.data())
def test_no_value_in_any_argument_raises_anything_else(
    data: st.DataObject, models: dict[str, Any], folders: dict[str, Path]
) -> None:
    owner, method, argument, _ = data.draw(st.sampled_from(CALLS))
    try:
        call(owner, method, {argument: data.draw(JSON)}, models, folders)
    except UserError as error:
        assert error.hint or error.place
        assert len(str(error).splitlines()) <= 5


@pytest.mark.parametrize("owner", CLASSES)
def test_a_path_may_be_a_path_and_a_device_torchs(owner: str, folders: dict[str, Path]) -> None:
    model = CLASSES[owner].load(folders[owner], device=torch.device("cpu"))
    assert repr(model) == repr(CLASSES[owner].load(str(folders[owner]), device="cpu"))


@pytest.mark.parametrize("form", [tuple, iter, np.array, pd.Series, lambda rows: (row for row in rows)])
def test_sequences_and_iterators_are_read_as_lists(form: Any, models: dict[str, Any]) -> None:
    knowledge, response = ["the river is long", "music"], ["it is long", "a dog"]
    for owner, method in (("critic", "score"), ("tagger", "predict")):
        judge = getattr(models[owner], method)
        assert judge(form(knowledge), form(response)) == judge(knowledge, response)
        assert judge(form(knowledge), "it is long", form(response)) == judge(knowledge, "it is long", response)
        assert list(models[owner].stream(form(knowledge), form(response), progress=False)) == judge(knowledge, response)
    reply = models["generator"].reply
    assert reply(form(knowledge), form(response), decoding=SHORT) == reply(knowledge, response, decoding=SHORT)


def test_numbers_of_numpy_are_numbers(models: dict[str, Any], folders: dict[str, Path]) -> None:
    assert Critic.load(folders["critic"], batch_tokens=np.int64(64)).batch_tokens == 64
    score = next(iter(models["critic"].stream(["a dog"], ["a dog"], threshold=np.float32(0), progress=False)))
    assert score.label == "hallucinated"


def test_turns_of_a_chat_are_read_alike(models: dict[str, Any]) -> None:
    """An assistant's turns are the wizard's of the training data; a turn without a speaker alternates."""
    texts, pairs = ["hello", "is it long"], [("wizard", "hello"), ("user", "is it long")]
    chat = [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "is it long"}]
    named = [Turn(speaker=speaker, text=text) for speaker, text in pairs]
    reply, tag = (models["generator"].reply, models["tagger"].predict)
    for turns in (chat, named, [{"text": "hello"}, {"speaker": "seeker", "text": "is it long"}]):
        assert reply("the river", turns, decoding=SHORT) == reply("the river", texts, decoding=SHORT)
        assert tag("the river", "it is", turns) == tag("the river", "it is", texts)
    for turns in (pairs, "hello\nis it long"):
        assert tag("the river", "it is", turns) == tag("the river", "it is", texts)


def test_examples_may_come_from_a_generator(models: dict[str, Any]) -> None:
    examples = [example(knowledge="the river is long", response="it is long")]
    for model in models.values():
        assert list(model.predict_examples(one for one in examples)) == list(model.predict_examples(examples))
