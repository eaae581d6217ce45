"""Critics and NLI models give the same three probabilities."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from critic.sequence.scorer import Critic
from faithkit.detector import CONTRADICTION, ENTAILMENT, NEUTRAL
from faithkit.errors import UserError
from faithkit.files.model_folder import SIDECAR
from faithkit_workflows.detectors.entailment import ANSWERS, MAX_TOKENS, QUESTION, CriticEntailment, load_entailment
from tests.tiny import write_critic, write_language_model, write_nli

PREMISES = ["the river is long", "a small dog lives in the city " * 8, "music is food", "the king plays"]
TEXTS = st.text(max_size=60)
HYPOTHESES = ["the river is high", "the dog is small", "food is music and music is food", "he plays"]


@pytest.fixture(scope="module")
def nli_folder(tmp_path_factory):
    return write_nli(tmp_path_factory.mktemp("nli"))


def test_an_nli_model_is_read_by_its_labels_and_equal_in_any_batch(nli_folder):
    model: Any = load_entailment(str(nli_folder), device="cpu")
    together = model.entailment(PREMISES, HYPOTHESES)
    alone = np.concatenate([model.entailment([p], [h]) for p, h in zip(PREMISES, HYPOTHESES, strict=True)])
    assert together.sum(axis=1) == pytest.approx(np.ones(4)) and together == pytest.approx(alone, abs=1e-5)
    tokens = model.encoder.tokenizer(PREMISES[0], HYPOTHESES[0], return_tensors="pt")
    [expected] = model.model(**tokens).logits.softmax(-1).tolist()
    assert together[0, [CONTRADICTION, NEUTRAL, ENTAILMENT]].tolist() == pytest.approx(expected, abs=1e-5)
    assert model.entailment([], []).shape == (0, 3)


def test_of_a_long_premise_the_window_that_entails_most_decides(nli_folder):
    model: Any = load_entailment(str(nli_folder), device="cpu")
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


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = write_language_model(tmp_path_factory.mktemp("asked") / "t5", "t5")
    config = json.loads((folder / "config.json").read_text())  # as Flan-T5's says, which the tiny one leaves out
    (folder / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": config["pad_token_id"]}))
    return load_entailment(str(folder), device="cpu", batch_tokens=300)


def test_an_encoder_decoder_is_asked_and_its_answers_likelihoods_are_read(asked):
    found = asked.entailment(PREMISES[:1], HYPOTHESES[:1])[0]
    question = f"Premise: {PREMISES[0]} Hypothesis: {HYPOTHESES[0]} {QUESTION}"
    ids = asked.tokenizer(question, return_tensors="pt").input_ids
    each = []
    for column in (ENTAILMENT, NEUTRAL, CONTRADICTION):
        answer = asked.tokenizer(ANSWERS[column], return_tensors="pt").input_ids
        each.append(-asked.model(input_ids=ids, labels=answer).loss.item() * answer.shape[1])  # the loss is a mean
    assert found.tolist() == pytest.approx(torch.tensor(each).softmax(0).tolist(), abs=1e-5)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=6))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_answer_is_the_same_in_any_batch(asked, pairs):
    together = asked.entailment([p for p, _ in pairs], [h for _, h in pairs])
    alone = [asked.entailment([p], [h])[0] for p, h in pairs]
    assert together.shape == (len(pairs), 3) and together.sum(axis=1) == pytest.approx(np.ones(len(pairs)))
    assert together == pytest.approx(np.array(alone).reshape(-1, 3), abs=1e-5)


def test_a_question_that_is_too_long_loses_its_premises_end(asked):
    [ids, short] = asked.encode_questions(["river " * 3000, "river " * 40], ["city " * 300, "city"])
    end = asked.tokenizer(QUESTION).input_ids[1:]  # without the token that begins a text
    assert len(ids) == MAX_TOKENS and ids[-len(end) :] == end
    assert ids[:20] == short[:20]
    assert np.isfinite(asked.entailment(["river " * 3000], ["city " * 300])).all()


def test_a_long_hypothesis_is_read_to_its_end_where_the_premise_leaves_room(asked):
    said = " ".join(["the city is old"] * 35)
    [ids] = asked.encode_questions(["the river is long"], [f"{said} and music is loved"])
    shown = asked.tokenizer.decode(ids)
    assert MAX_TOKENS * 2 / 3 < len(ids) < MAX_TOKENS and "music is loved" in shown
    [full] = asked.encode_questions(["the river is long"], [said + " king" * 3000])
    assert len(full) == MAX_TOKENS and "river is long" in asked.tokenizer.decode(full)


def test_generators_of_ours_and_models_of_other_labels_are_refused(tmp_path):
    folder = write_language_model(tmp_path / "t5", "t5")
    (folder / SIDECAR).write_text('{"format": 1, "kind": "generator"}')
    for path, words in (
        (folder, "generator"),
        (write_critic(tmp_path / "c", "label_0", "label_1"), "not an NLI model"),
    ):
        with pytest.raises(UserError, match=words):
            load_entailment(str(path), device="cpu")
