"""The Python API explains every wrong call in one way: a UserError with the argument's name and a hint."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from critic import Critic, Tagger
from critic.sequence.settings import Settings
from critic.weights import load_classifier, load_token_classifier
from data_modules.encoding.tokens import load_tokenizer
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.errors import UserError
from faithkit.files.model_folder import write_folder
from faithkit.inference.decoding import Decoding
from generation import Generator
from judge.judge import Judge
from tests.data_modules.examples import example
from tests.faults.python_api import CALLS, Call

CLASSES = {"critic": Critic, "tagger": Tagger, "generator": Generator, "judge": Judge}
SHORT = Decoding(max_new_tokens=4)
RIGHT: dict[str, dict[str, Any]] = {
    "score": {"knowledge": "the river is long", "response": "it is long"},
    "predict": {"knowledge": "the river is long", "response": "it is long"},
    "predict_dialogue": {"knowledge": "the river is long", "turns": [("user", "is it"), ("assistant", "it is")]},
    "reply": {"knowledge": "the river is long", "history": ["is it long"], "decoding": SHORT},
    "predict_examples": {"examples": []},
    "candidates": {"examples": []},
    "judge": {"knowledge": "the river is long", "response": "it is long", "progress": False},
    "judgements": {"examples": []},
}
DETECTOR_STREAM = {"knowledge": ["the river", "music"], "response": ["it is", "a dog"], "progress": False}
GENERATOR_STREAM = {"rows": [{"knowledge": "the river", "history": ["is it"]}], "decoding": SHORT}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def folders(
    tiny_bert: Path, tiny_llama: Path, language_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A critic, a tagger, a generator and a judge of random weights."""
    from critic.tagger.settings import Settings as TaggerSettings
    from critic.tagger.settings import tagger_labels
    from critic.tagger.span_calibration import SpanCalibration

    base, tokenizer, labels = tmp_path_factory.mktemp("api"), load_tokenizer(str(tiny_bert)), tagger_labels(False)
    critic = Settings(max_length=64, order="knowledge_response", calibration=ScoreCalibration(), origin={})
    tagger = TaggerSettings(labels=labels, max_length=96, calibration=SpanCalibration(), origin={})
    write_folder(base / "critic", load_classifier(str(tiny_bert)), tokenizer, critic.to_sidecar())
    write_folder(base / "tagger", load_token_classifier(str(tiny_bert), labels), tokenizer, tagger.to_sidecar())
    detectors = {"critic": base / "critic", "tagger": base / "tagger", "judge": language_models["llama"]}
    return {**detectors, "generator": tiny_llama}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, Any]:
    return {name: CLASSES[name].load(folder, device="cpu") for name, folder in folders.items()}


def right(owner: str, method: str, folders: dict[str, Path]) -> dict[str, Any]:
    """The keywords of a call that works."""
    if method == "load":
        return {"model" if owner == "judge" else "path": folders[owner]}
    if method == "stream":
        return GENERATOR_STREAM if owner == "generator" else DETECTOR_STREAM
    return RIGHT[method]


def make(owner: str, method: str, keywords: dict[str, Any], models: dict[str, Any]) -> Any:
    """Makes a call, and runs an iterator that it gives to its end."""
    result = getattr(CLASSES[owner] if method == "load" else models[owner], method)(**keywords)
    return list(result) if isinstance(result, Iterator) else result


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_wrong_call_is_explained(call: Call, models: dict[str, Any], folders: dict[str, Path]) -> None:
    with pytest.raises(UserError) as refused:
        make(call.owner, call.method, right(call.owner, call.method, folders) | call.change, models)
    message = str(refused.value)
    assert call.blamed in refused.value.problem and refused.value.hint
    assert len(message.splitlines()) <= 5 and len(message) < 700


def test_the_table_is_long_and_names_every_public_method() -> None:
    assert len(CALLS) > 500
    names = {"load", "stream", *RIGHT}
    public = {(owner, name) for owner, kind in CLASSES.items() for name in names & set(dir(kind))}
    assert {(call.owner, call.method) for call in CALLS} == public


METHODS = sorted({(call.owner, call.method, call.blamed) for call in CALLS})


@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_value_in_any_argument_raises_anything_else(
    data: st.DataObject, models: dict[str, Any], folders: dict[str, Path]
) -> None:
    owner, method, argument = data.draw(st.sampled_from(METHODS))
    value = data.draw(JSON)
    try:
        make(owner, method, right(owner, method, folders) | {argument: value}, models)
    except UserError as error:
        assert error.hint or error.place
        assert len(str(error).splitlines()) <= 5


@pytest.mark.parametrize("owner", CLASSES)
def test_a_path_may_be_a_path_and_a_device_torchs(owner: str, folders: dict[str, Path]) -> None:
    model = CLASSES[owner].load(folders[owner], device=torch.device("cpu"))
    assert repr(model) == repr(CLASSES[owner].load(str(folders[owner]), device="cpu"))


@pytest.mark.parametrize("form", [tuple, iter, np.array, pd.Series, lambda rows: (row for row in rows)])
def test_what_stands_for_a_list_is_read_as_one(form: Any, models: dict[str, Any]) -> None:
    knowledge, response = ["the river is long", "music"], ["it is long", "a dog"]
    for owner, method in (("critic", "score"), ("tagger", "predict")):
        judge = getattr(models[owner], method)
        assert judge(form(knowledge), form(response)) == judge(knowledge, response)
        assert judge(form(knowledge), "it is long", form(response)) == judge(knowledge, "it is long", response)
        streamed = models[owner].stream(form(knowledge), form(response), progress=False)
        assert list(streamed) == judge(knowledge, response)
    reply = models["generator"].reply
    assert reply(form(knowledge), form(response), decoding=SHORT) == reply(knowledge, response, decoding=SHORT)
    histories, lists = [form(["is it"]), form(["who", "she"])], [["is it"], ["who", "she"]]
    assert reply(form(knowledge), histories, decoding=SHORT) == reply(knowledge, lists, decoding=SHORT)


def test_numbers_of_numpy_are_numbers(models: dict[str, Any], folders: dict[str, Path]) -> None:
    assert Critic.load(folders["critic"], batch_tokens=np.int64(64)).batch_tokens == 64
    (score,) = islice(models["critic"].stream(["a dog"], ["a dog"], threshold=np.float32(0), progress=False), 1)
    assert score.label == "hallucinated"


def test_turns_of_a_chat_are_read_alike(models: dict[str, Any]) -> None:
    """An assistant's turns are the wizard's of the training data; a turn without a speaker alternates."""
    chat = [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "is it long"}]
    for turns in (chat, [{"text": "hello"}, {"speaker": "seeker", "text": "is it long"}]):
        assert models["generator"].reply("the river", turns, decoding=SHORT) == models["generator"].reply(
            "the river", ["hello", "is it long"], decoding=SHORT
        )
    tagger = models["tagger"]
    assert tagger.predict("the river", "it is", chat) == tagger.predict("the river", "it is", ["hello", "is it long"])


def test_examples_may_come_from_a_generator(models: dict[str, Any]) -> None:
    examples = [example(knowledge="the river is long", response="it is long")]
    for model in models.values():
        assert list(model.predict_examples(one for one in examples)) == list(model.predict_examples(examples))
