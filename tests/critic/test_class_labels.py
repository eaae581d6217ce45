"""A critic from elsewhere loads once it is said what its classes mean, and scores as its weights say."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification

from critic import Critic
from critic.sequence.scorer import hallucinated_classes
from faithkit.errors import UserError
from tests.model_folders import config, make_foreign
from tests.running import compose, evaluate_here
from tests.tiny import bert_config, write_tokenizer

KNOWLEDGE = ["the river is long", "music", "a dog and a cat " * 80]
RESPONSE = ["it is long", "the king plays music", "dog"]


def foreign(trained: Path, folder: Path) -> str:
    """The trained critic as someone else's, with classes that have no names."""
    make_foreign(Path(shutil.copytree(trained / "hf", folder)))
    config(id2label={"0": "LABEL_0", "1": "LABEL_1"}, label2id={"LABEL_0": 0, "LABEL_1": 1})(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("labels", "sign"),
    [
        ({0: "faithful", 1: "hallucinated"}, 1),
        ({"LABEL_1": "hallucinated", "label_0": "faithful"}, 1),
        ({"0": "hallucinated", "1": "faithful"}, -1),
    ],
)
def test_classes_without_names_are_what_is_said(labels: Any, sign: int, trained: Path, tmp_path: Path) -> None:
    theirs = Critic.load(foreign(trained, tmp_path / "critic"), labels=labels)
    pairs = KNOWLEDGE[:2], RESPONSE[:2]  # of one window each: of several the lowest odds decide
    found, own = (one.odds(one.encoder.encode_texts(*pairs)) for one in (theirs, Critic.load(trained)))
    np.testing.assert_allclose(found, sign * own, atol=1e-6)
    assert (theirs.calibration.temperature, theirs.calibration.threshold) == (1.0, 0.5)


def test_several_classes_may_mean_hallucinated(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    torch.manual_seed(0)
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    model = BertForSequenceClassification(bert_config(num_hidden_layers=1, id2label=names, initializer_range=0.5))
    model.save_pretrained(tmp_path)
    labels = {"contradiction": "hallucinated", "neutral": "hallucinated", "entailment": "faithful"}
    critic = Critic.load(tmp_path, labels=labels, device="cpu")
    tokens = critic.encoder.tokenizer(KNOWLEDGE[:2], RESPONSE[:2], padding=True, return_tensors="pt")
    with torch.inference_mode():
        wanted = critic.model(**tokens).logits.softmax(-1)[:, :2].sum(-1)
    assert critic.probabilities(KNOWLEDGE[:2], RESPONSE[:2]) == pytest.approx(wanted.numpy(), abs=1e-5)


@pytest.mark.parametrize(
    "labels",
    [
        {0: "faithful"},
        {0: "faithful", 1: "faithful"},
        {},
        {0: "faithful", 2: "hallucinated"},
        {True: "faithful", 0: "hallucinated"},
        {0: "faithful", "LABEL_0": "hallucinated"},
        {0: "faithful", 1: None},
        ["faithful", "hallucinated"],
    ],
)
def test_labels_that_do_not_go_with_the_classes_are_refused(labels: Any) -> None:
    with pytest.raises(UserError, match=r"labels is .*; it must give every class its meaning") as caught:
        hallucinated_classes(["LABEL_0", "LABEL_1"], labels, "some/critic")
    assert str(caught.value).count("\n") < 5


def test_a_benchmark_takes_labels_from_the_command_line(trained: Path, tmp_path: Path, capsys: Any) -> None:
    checkpoint = f"checkpoint={foreign(trained, tmp_path / 'critic')}"
    options = ("benchmark=embedded", "benchmark.options.num_test=40", checkpoint, "num_examples=0")
    evaluate_here(*options, f"run_dir={tmp_path / 'run'}", "labels={0: faithful, 1: hallucinated}")
    assert "macro-F1" in capsys.readouterr().out
    assert dict(compose("evaluate", "labels={LABEL_0: faithful, LABEL_1: hallucinated}").labels)
    with pytest.raises(UserError, match=r"labels=\{0: faithful, 1: hallucinated\}, in quotes on the command line"):
        evaluate_here(*options, f"run_dir={tmp_path / 'other'}")
