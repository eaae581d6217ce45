"""Features of models, which are kept by the model's content, and labels that can be predicted without the knowledge."""

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.files.model_folder import CARD
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit_workflows.domains import baselines as module
from faithkit_workflows.domains.baselines import ALL, AUTHOR, LENGTH, WORDS, Features, measure_response_only, model_key
from tests.tiny import write_bert


def example(number: int, response: str, hallucinated: bool, **meta: str) -> Example:
    values = {"id": str(number), "source": "s", "split": "t", "group": str(number // 2), "knowledge": "k"}
    return Example(**values, response=response, label=HALLUCINATED if hallucinated else FAITHFUL, meta=meta)


def draw_examples(num: int, response: dict[bool, str], seed: int = 0, **authors: dict[bool, str]) -> list[Example]:
    draw = random.Random(seed)
    found = []
    for i in range(num):
        wrong = draw.random() < 0.5
        words = " ".join(draw.choice("red blue green fox cat dog runs sits".split()) for _ in range(4))
        meta = {name: by_label[wrong] for name, by_label in authors.items()}
        found.append(example(i, f"{words} {response[wrong]}".strip(), wrong, **meta))
    return found


@pytest.mark.parametrize(
    ("kind", "response", "meta"),
    [
        (LENGTH, {True: "and so on and so forth", False: ""}, {}),
        (WORDS, {True: "perhaps", False: "surely"}, {}),
        (AUTHOR, {True: "", False: ""}, {"model": {True: "small", False: "large"}}),
    ],
)
def test_features_that_predict_labels_are_found(kind: str, response: dict[bool, str], meta: Any) -> None:
    found = measure_response_only(draw_examples(80, response, **meta), num_resamples=50)
    assert found[kind].value > 0.95 and (found[ALL].value > 0.95 or kind == AUTHOR)
    assert found[module.KNOWLEDGE].value == 0.5  # all of the same length


def test_labels_that_depend_on_the_knowledge_are_not_predicted() -> None:
    found = measure_response_only(draw_examples(200, {True: "", False: ""}), num_resamples=50)
    assert AUTHOR not in found and 0.35 < found[ALL].value < 0.65


@settings(max_examples=6)
@given(st.lists(st.tuples(st.text(max_size=30), st.booleans()), min_size=1, max_size=12))
def test_any_texts_are_measured_or_left_out(texts: list[tuple[str, bool]]) -> None:
    rows = [example(i, text, wrong) for i, (text, wrong) in enumerate(texts)]
    assert all(0 <= metric.value <= 1 for metric in measure_response_only(rows, num_resamples=2).values())


def test_a_model_is_identified_by_its_files(tiny_bert: Path, tmp_path: Path) -> None:
    key = model_key(str(tiny_bert))
    copy = Path(shutil.copytree(tiny_bert, tmp_path / "run" / "hf"))
    (copy / CARD).write_text("the model card is not part of the model")
    assert model_key(str(copy)) == model_key(str(tmp_path / "run")) == key
    assert model_key(str(write_bert(tmp_path / "other" / "hf", seed=1))) != key
    (copy / "tokenizer_config.json").write_text("{}")
    assert model_key(str(copy)) != key
    assert model_key("someone/some-model") == "someone/some-model"
    with pytest.raises(UserError, match="no such run or folder"):
        model_key("./nowhere")


def test_features_are_computed_again_for_another_model_at_the_same_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def compute_cosines(encoder: str, knowledge: list[str], responses: list[str]) -> np.ndarray:
        calls.append(encoder)
        return np.zeros(len(responses))

    monkeypatch.setattr(module, "compute_cosines", compute_cosines)
    rows = [Example(id="1", source="s", split="t", group="g", knowledge="k", response="r")]
    folder = tmp_path / "hf"
    for seed, times in ((0, 1), (1, 2)):
        write_bert(folder, seed=seed)
        for _ in range(2):
            Features(tmp_path / "kept", encoder=str(folder)).compute("d", rows, None)
            assert len(calls) == times
