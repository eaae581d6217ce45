"""Critics and NLI models give the same three probabilities."""

import numpy as np
import pytest
import torch

from critic.scorer import Critic
from faithkit.entailment import CONTRADICTION, ENTAILMENT, NEUTRAL
from faithkit.errors import UserError
from tests.tiny import write_nli
from workflows.entailment import CriticEntailment, load_entailment, nli_columns

PREMISES = ["the river is long", "a small dog lives in the city " * 8, "music is food", "the king plays"]
HYPOTHESES = ["the river is high", "the dog is small", "food is music and music is food", "he plays"]


@pytest.fixture(scope="module")
def nli_folder(tmp_path_factory):
    return write_nli(tmp_path_factory.mktemp("nli"))


def test_an_nli_model_is_read_by_its_labels_and_equal_in_any_batch(nli_folder):
    model = load_entailment(str(nli_folder), device="cpu")
    together = model.entailment(PREMISES, HYPOTHESES)
    alone = np.concatenate([model.entailment([p], [h]) for p, h in zip(PREMISES, HYPOTHESES, strict=True)])
    assert together.sum(axis=1) == pytest.approx(np.ones(4)) and together == pytest.approx(alone, abs=1e-5)
    tokens = model.encoder.tokenizer(PREMISES[0], HYPOTHESES[0], return_tensors="pt")
    [expected] = model.model(**tokens).logits.softmax(-1).tolist()
    assert together[0, [CONTRADICTION, NEUTRAL, ENTAILMENT]].tolist() == pytest.approx(expected, abs=1e-5)
    assert model.entailment([], []).shape == (0, 3)


def test_of_a_long_premise_the_window_that_entails_most_decides(nli_folder):
    model = load_entailment(str(nli_folder), device="cpu")
    premise = " ".join(PREMISES)  # windows that differ
    found = model.entailment([premise], [HYPOTHESES[1]])[0]
    columns = model.encoder.encode_texts([premise], [HYPOTHESES[1]])
    windows = model.encoder.windows(columns)
    each = []
    for i in range(len(windows)):
        batch = model.encoder.collate_windows(columns, windows.take(np.array([i])))
        logits = model.model(**{name: torch.from_numpy(array) for name, array in batch.items()}).logits
        each.append(logits.softmax(-1)[0].tolist())
    most = max(each, key=lambda row: row[2])  # the model's third class is entailment
    assert len({round(row[2], 4) for row in each}) > 1
    assert found[[CONTRADICTION, NEUTRAL, ENTAILMENT]].tolist() == pytest.approx(most, abs=1e-5)


def test_a_critic_entails_what_it_calls_faithful(trained):
    critic = Critic.load(str(trained), device="cpu")
    found = load_entailment(str(trained), device="cpu").entailment(PREMISES, HYPOTHESES)
    scores = critic.score(PREMISES, HYPOTHESES)
    assert [row.argmax() for row in found] == [NEUTRAL if s.label == "hallucinated" else ENTAILMENT for s in scores]
    assert (found[:, CONTRADICTION] == 0).all()


def test_the_critics_threshold_is_where_both_are_as_likely():
    class Threshold:
        calibration = type("Verdict", (), {"threshold": 0.2})

        def probabilities(self, knowledge, response):
            return np.array([0.0, 0.2, 0.9])

    found = CriticEntailment(Threshold()).entailment(["a"] * 3, ["b"] * 3)
    assert found[:, NEUTRAL].tolist() == pytest.approx([0, 0.5, 9 / (9 + 0.25)], abs=1e-9)


@pytest.mark.parametrize("labels", [["label_0", "label_1"], ["entailment", "entailment"], ["positive", "neutral"]])
def test_models_of_other_labels_are_refused(labels):
    with pytest.raises(UserError, match="not an NLI model"):
        nli_columns(labels, "somewhere")


def test_two_classes_are_entailment_and_the_rest():
    assert nli_columns(["not_entailment", "entailment"], "somewhere") == [NEUTRAL, ENTAILMENT]
