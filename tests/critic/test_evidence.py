"""A critic that weighs words beside its encoder: what it learns, that it is kept, and that texts decide it alone."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from critic import Critic
from critic.export import export
from critic.sequence.evidence import TOKEN_WEIGHTS, WEIGHTS, fit_evidence
from critic.weights import load_classifier
from faithkit.files.run_folder import RunFolder
from faithkit.training.checkpoints import best_weights, model_state
from tests.data_modules.examples import example
from tests.running import SMALL, train_here

KNOWLEDGE = "The river is long. The city is old. The king lives in it. Music is loved by the king."


PAIRS = ([KNOWLEDGE, "music", KNOWLEDGE], ["The king is old.", "I like it.", "Nine dogs!"])


@pytest.fixture(scope="module")
def general(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "general"
    options = ["model.evidence=true", "model.freeze_encoder=true", "model.support_weight=0", "model.span_weight=0"]
    train_here(
        f"model.weights={tiny_bert}", f"run_dir={folder}", "logger=none", *SMALL, *options,
        "model.max_knowledge_words=10",
    )  # fmt: skip
    return folder


def test_a_frozen_encoder_stays_as_it_was_and_its_head_learns(general: Path, tiny_bert: Path) -> None:
    before = load_classifier(str(tiny_bert)).state_dict()
    after = model_state(best_weights(RunFolder(general)))
    moved = {name for name in before if not np.array_equal(before[name].numpy(), after[name].float().numpy())}
    assert moved == {name for name in before if name.startswith(("classifier.", "bert.pooler."))}


def test_an_export_with_evidence_is_not_offered_as_a_plain_classifier(
    general: Path, trained: Path, tmp_path: Path
) -> None:
    """A plain pipeline leaves out the evidence, and so gives other labels."""
    tagged = {}
    for name, run in (("evidence", general), ("plain", trained)):
        export(str(run), str(tmp_path / name))
        tagged[name] = "pipeline_tag: text-classification" in (tmp_path / name / "README.md").read_text()
    assert tagged == {"evidence": False, "plain": True}


def scores_alone_in_lists_and_cached(critic: Critic) -> np.ndarray:
    together = critic.probabilities(*PAIRS)
    alone = [critic.score(k, r).probability for k, r in zip(*PAIRS, strict=True)]
    np.testing.assert_allclose(alone, together, atol=1e-6)
    rows = [example(knowledge=k, response=r) for k, r in zip(*PAIRS, strict=True)]
    columns = critic.encoder.encode(rows, Counter())
    cached = critic.calibration.scores(critic.odds(columns))
    np.testing.assert_allclose(cached, together, atol=1e-6)
    return together


def test_scores_are_the_same_alone_in_lists_and_from_cached_tokens(general: Path) -> None:
    scores_alone_in_lists_and_cached(Critic.load(str(general)))


def test_a_good_fit_is_kept_where_datasets_differ_in_level_or_words_stand_first() -> None:
    random = np.random.default_rng(0)
    gold = np.tile([0, 1], 300).astype(np.int8)
    sources, dataset = ["a"] * 300 + ["b"] * 300, np.repeat([0.0, 1.0], 300)
    evidence = np.zeros((600, len(WEIGHTS) - 1))
    evidence[:, 0] = gold + random.normal(0, 0.7, 600) - 6 * dataset  # the log-odds: right within each, far lower in b
    evidence[:, 2] = gold + random.normal(0, 0.7, 600) + 6 * dataset
    weights, note = fit_evidence(evidence, gold, sources)
    assert not note and weights[0] > 0.5 and weights[2] > 0.5
    evidence[:, 1] = -gold + random.normal(0, 2, 600)  # words alone: their first number falls with the labels
    weights, note = fit_evidence(evidence, gold, sources, with_odds=False)
    assert not note and weights[0] == 0 and weights[1] < 0 < weights[2]


def test_log_odds_that_fall_with_the_labels_are_not_turned_round() -> None:
    gold = np.tile([0, 1], 50).astype(np.int8)
    evidence = np.zeros((100, len(WEIGHTS) - 1))
    evidence[:, 0] = -3.0 * gold
    weights, note = fit_evidence(evidence, gold, ["a"] * 100)
    assert "do not rise" in note and weights == (1.0, *[0.0] * (len(WEIGHTS) - 1))


def test_the_encoder_of_an_nli_model_is_a_beginning_and_its_head_is_not(tiny_bert: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    nli = AutoModelForSequenceClassification.from_pretrained(
        tiny_bert, num_labels=3, id2label={0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
    )
    nli.save_pretrained(tmp_path)
    made = load_classifier(str(tmp_path)).state_dict()
    assert made["classifier.weight"].shape[0] == 2
    kept = [name for name in made if name.startswith("bert.")]
    assert kept and all((made[name] == nli.state_dict()[name]).all() for name in kept)


@pytest.mark.parametrize("own", [True, False])
def test_regression_runs_and_tokens_have_a_vote_each_however_large_their_numbers(own: bool) -> None:
    random = np.random.default_rng(1)
    gold, sources = (random.random(600) < 0.5).astype(np.int8), np.repeat(["wow", "snli"], 300)
    evidence = random.normal(0, 1, (600, len(TOKEN_WEIGHTS) - 1)) + 0.5 * gold[:, None]
    evidence[:, -2] *= 0.01  # unknown runs
    evidence[:, -1] = 100 * (1 - gold + random.normal(0, 3, 600))  # support: lower where hallucinated, and hardly so
    evidence[300:] += 7  # another dataset's level
    weights, note = fit_evidence(evidence, gold, sources.tolist(), with_odds=own)
    rest = evidence - np.repeat([evidence[:300].mean(0), evidence[300:].mean(0)], 300, axis=0)
    votes = [rest[:, :-2] @ weights[:-3], rest[:, -2] * weights[-3], rest[:, -1] * weights[-2]]
    assert np.std(votes, axis=1) == pytest.approx(np.std(votes[0]), rel=0.02) and not note
    assert weights[-3] > 0 > weights[-2] and (weights[0] != 0) == own
