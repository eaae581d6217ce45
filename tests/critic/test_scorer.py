"""Scoring from Python: three lines, one pair or many, the same in any batch, texts of any length."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from critic import Critic
from critic.score_calibration import log_odds
from critic.scorer import encode_windows, window_logits
from faithkit.errors import UserError

TEXT = st.text(min_size=1, max_size=80).filter(lambda text: bool(text.strip()))
KNOWLEDGE = ["the river is long", "the city is old and the king lives in it " * 3, "music", "a dog and a cat " * 8]
RESPONSE = ["it is long", "the king plays music", "i love it " * 6, "dog"]


@pytest.fixture(scope="module")
def critic(trained: Path) -> Critic:
    return Critic.load(str(trained))


def test_one_pair_gives_one_score_and_lists_give_lists(critic: Critic) -> None:
    score = critic.score(knowledge=KNOWLEDGE[0], response=RESPONSE[0])
    assert score.label in ("faithful", "hallucinated") and 0 <= score.probability <= 1
    many = critic.score(knowledge=KNOWLEDGE, response=RESPONSE)
    assert len(many) == 4 and many[0].probability == pytest.approx(score.probability, abs=1e-6)


def test_scores_are_the_same_in_any_batch_and_order(critic: Critic) -> None:
    knowledge, response = KNOWLEDGE * 5, RESPONSE * 4 + RESPONSE[::-1]
    together = critic.probabilities(knowledge, response)
    alone = [critic.score(k, r).probability for k, r in zip(knowledge, response, strict=True)]
    backwards = critic.probabilities(knowledge[::-1], response[::-1])[::-1]
    small = Critic(critic.model, critic.encoder, critic.calibration, batch_tokens=64).probabilities(knowledge, response)
    for other in (alone, backwards, small):
        np.testing.assert_allclose(other, together, atol=1e-6)


@given(knowledge=TEXT, response=TEXT)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_gets_a_probability(critic: Critic, knowledge: str, response: str) -> None:
    assert 0 <= critic.score(knowledge, response).probability <= 1


def test_knowledge_of_any_length_is_read_to_its_end(critic: Critic) -> None:
    long = "the river is long and the city is old " * 2500  # 95,000 characters
    assert 0 <= critic.score(long, "it is long").probability <= 1
    assert 0 <= critic.score("it is long", long).probability <= 1
    ids, _, owner = encode_windows(critic.encoder, [long, "music"], ["it is long", "music"])
    assert (owner == 0).sum() > 100 and (owner == 1).sum() == 1
    assert ids.lengths.max() <= critic.encoder.max_length
    texts = [critic.encoder.tokenizer.decode(ids.row(i)) for i in np.flatnonzero(owner == 0)]
    assert texts[-1].count("city is old [SEP]") == 1, "the last window ends where the knowledge ends"


def test_a_response_is_as_hallucinated_as_its_best_window_leaves_it(critic: Critic) -> None:
    knowledge, response = "the king lives in the city " * 40, "the king lives"
    logits, _ = window_logits(critic.model, critic.encoder, [knowledge], [response], batch_tokens=512)
    windows = critic.calibration.scores(log_odds(logits))
    assert critic.score(knowledge, response).probability == pytest.approx(windows.min(), abs=1e-6)


@pytest.mark.parametrize(
    ("knowledge", "response", "words"),
    [
        ("", "text", "knowledge"),
        ("text", "  \n", "response"),
        (["a", "b"], ["a"], "2 knowledge texts but 1"),
        ("a", ["a"], "both"),
        (["a", None], ["a", "b"], "item 1"),
    ],
)
def test_what_cannot_be_scored_is_explained(critic: Critic, knowledge: object, response: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        critic.score(knowledge, response)  # type: ignore[call-overload]


def test_int8_scores_stay_close(trained: Path, critic: Critic) -> None:
    quantised = Critic.load(str(trained), precision="int8")
    np.testing.assert_allclose(
        quantised.probabilities(KNOWLEDGE, RESPONSE), critic.probabilities(KNOWLEDGE, RESPONSE), atol=0.05
    )


def test_a_folder_of_another_kind_is_refused(tiny_bert: Path, tmp_path: Path, trained: Path) -> None:
    import json
    import shutil

    with pytest.raises(UserError, match="another kind"):
        Critic.load(str(tiny_bert))
    other = tmp_path / "tagger"
    shutil.copytree(trained / "hf", other)
    sidecar = json.loads((other / "faithkit.json").read_text())
    (other / "faithkit.json").write_text(json.dumps({**sidecar, "kind": "tagger"}))
    with pytest.raises(UserError, match="another kind: 'tagger'"):
        Critic.load(str(other))


def test_weights_that_are_cut_short_are_refused(tmp_path: Path, trained: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(trained / "hf", broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with pytest.raises(UserError, match="cannot be read"):
        Critic.load(str(broken))


def test_a_hub_out_of_reach_is_explained() -> None:
    with pytest.raises(UserError, match="hub was not reached"):
        Critic.load("someone/some-critic")
