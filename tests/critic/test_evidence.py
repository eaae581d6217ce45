"""Evidence of words and of the weakest tokens: equal to features computed alone, in any batch, from fit to export."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from critic import Critic
from critic.export import export
from critic.sequence.settings import TOKEN_WEIGHTS, WEIGHTS
from critic.sequence.task import fit_evidence
from critic.token_support import EMPTY_KNOWLEDGE, EMPTY_RESPONSE, SECOND_TO_LAST, TokenSupport, token_support, weakest
from critic.weights import load_classifier
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer, single_template
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.training.checkpoints import best_weights, model_state
from tests.data_modules.examples import example
from tests.running import SMALL, train_here

KNOWLEDGE = "The river is long. The city is old. The king lives in it. Music is loved by the king."
PAIRS = ([KNOWLEDGE, "music", KNOWLEDGE], ["The king is old.", "I like it.", "Nine dogs!"])


FROZEN = ("model.freeze_encoder=true", "model.support_weight=0", "model.span_weight=0")


def train_on_words(weights: Path, folder: Path, *options: str) -> Path:
    """A run with a frozen encoder whose pairs show ten words of the knowledge."""
    given = (f"model.weights={weights}", "logger=none", *SMALL, *FROZEN, "model.max_knowledge_words=10")
    train_here(f"run_dir={folder}", *given, *options)
    return folder


@pytest.fixture(scope="module")
def general(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    return train_on_words(tiny_bert, tmp_path_factory.mktemp("runs") / "general", "model.evidence=true")


def test_a_frozen_encoder_stays_as_it_was_and_its_head_learns(general: Path, tiny_bert: Path) -> None:
    before = load_classifier(str(tiny_bert)).state_dict()
    after = model_state(best_weights(RunFolder(general)))
    moved = {name for name in before if not np.array_equal(before[name].numpy(), after[name].float().numpy())}
    assert moved == {name for name in before if name.startswith(("classifier.", "bert.pooler."))}


def test_an_export_with_evidence_is_offered_as_no_classifier(general: Path, trained: Path, tmp_path: Path) -> None:
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


ALONE = ("model.evidence=words_and_tokens", "model.evidence_alone=true", *FROZEN)
TEXTS = st.lists(st.sampled_from("the king lives in a city of music . !".split()), max_size=40).map(" ".join)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    return train_on_words(tiny_bert, tmp_path_factory.mktemp("runs") / "alone", *ALONE)


def load_support(weights: Path, **options: int) -> TokenSupport:
    model, tokenizer = load_classifier(str(weights)).eval(), load_tokenizer(str(weights))
    return TokenSupport(model, tokenizer, max_length=16, batch_tokens=64, layer=SECOND_TO_LAST, **options)


@pytest.fixture(scope="module")
def support(tiny_bert: Path) -> TokenSupport:
    return load_support(tiny_bert)


def of(support: TokenSupport, tiny_bert: Path, pairs: list[tuple[str, str]]) -> np.ndarray:
    encoder = PairEncoder(tokenizer=load_tokenizer(str(tiny_bert)), max_length=32, whole=True)
    return support.weakest(encoder.encode_texts(*zip(*pairs, strict=True)))


def test_the_tokens_that_are_least_like_any_of_the_knowledge_count() -> None:
    knowledge = torch.tensor([[2.0, 0, 0], [0, 5, 0]])
    response = torch.tensor([[1.0, 0, 0], [3, 4, 0], [0, 1, 1]])  # cosines 1; .6 and .8; 0 and sqrt(.5)
    found = token_support(response, knowledge)
    assert found.tolist() == pytest.approx([1, 0.8, 0.5**0.5])
    by_hand = -math.log(sum(math.exp(-20 * one) for one in (1, 0.8, 0.5**0.5)) / 3) / 20
    assert weakest(found, knowledge_tokens=2) == pytest.approx(by_hand) and 0.5**0.5 < by_hand < 0.8
    assert weakest(found[:0], knowledge_tokens=2) == EMPTY_RESPONSE == 1
    assert weakest(found, knowledge_tokens=0) == EMPTY_KNOWLEDGE == 0


def test_texts_are_read_apart_and_their_special_tokens_do_not_count(support: TokenSupport, tiny_bert: Path) -> None:
    tokenizer, model = load_tokenizer(str(tiny_bert)), load_classifier(str(tiny_bert)).eval().bert
    inputs = [tokenizer(text, return_tensors="pt") for text in ("the city is old", "the king lives")]
    with torch.inference_mode():
        states = [model(**one, output_hidden_states=True).hidden_states[-2][0, 1:-1] for one in inputs]
    each = torch.nn.functional.cosine_similarity(states[1][:, None], states[0][None], dim=-1).amax(1)
    wanted = -torch.log(torch.exp(-20 * each).mean()) / 20
    assert of(support, tiny_bert, [("the city is old", "the king lives")])[0] == pytest.approx(float(wanted), abs=1e-5)
    assert single_template(tokenizer) == ((tokenizer.cls_token_id,), (tokenizer.sep_token_id,))


@settings(max_examples=20, deadline=None)
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6), seed=st.integers(0, 9))
def test_no_batch_or_order_changes_it(support: TokenSupport, tiny_bert: Path, pairs: Any, seed: int) -> None:
    together = of(support, tiny_bert, pairs)
    alone = np.concatenate([of(support, tiny_bert, [pair]) for pair in pairs])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    order = np.random.default_rng(seed).permutation(len(pairs))
    np.testing.assert_allclose(of(support, tiny_bert, [pairs[i] for i in order]), together[order], atol=1e-5)
    assert np.all(together[[not said for _, said in pairs]] == EMPTY_RESPONSE)
    assert np.all(together[[bool(said) and not known for known, said in pairs]] == EMPTY_KNOWLEDGE)


def test_long_knowledge_is_read_to_its_end_and_once(support: TokenSupport, tiny_bert: Path, monkeypatch: Any) -> None:
    long = " ".join(["the city is old ."] * 14)  # 70 tokens, and 14 fit a window
    pairs = [(f"{long} music", "music"), (long, "music"), (long, "the king"), (f"{long} music", "the king")]
    read = Counter[int]()
    forward = support.model.forward

    def counting(**inputs: torch.Tensor) -> object:
        read.update([len(inputs["input_ids"])])
        return forward(**inputs)

    monkeypatch.setattr(support.model, "forward", counting)
    ended, without, *_ = of(support, tiny_bert, pairs)
    assert ended == pytest.approx(1, abs=1e-5), "the last window holds the response itself"
    assert without < 0.99
    windows = sum(rows * times for rows, times in read.items())
    assert windows == 6 + 5 + 2, "six and five windows of knowledge, one for each response"
    monkeypatch.setattr("critic.token_support.BLOCK", 1)
    assert of(support, tiny_bert, pairs)[:2] == pytest.approx([ended, without], abs=1e-5)


def test_max_windows_reads_those_that_share_most_with_the_response(support: TokenSupport, tiny_bert: Path) -> None:
    one = load_support(tiny_bert, max_windows=1)
    other = "the city is old . a dog is long . a dog is old "  # a window of 14 tokens
    about = "the king plays music and lives in it . a dog is long . "
    assert of(one, tiny_bert, [(other + about + other, "king plays music")]) == pytest.approx(
        of(support, tiny_bert, [(about, "king plays music")]), abs=1e-5
    )


def test_evidence_reads_all_of_a_knowledge_that_the_pair_shows_in_part(alone: Path) -> None:
    critic = Critic.load(str(alone))
    columns = critic.encoder.encode_texts([KNOWLEDGE] * 2, ["Music is loved.", "the river is long"])
    assert columns["knowledge"].lengths.max() < columns["whole knowledge"].lengths.min()
    found = critic.features(columns)
    assert found.shape == (2, len(TOKEN_WEIGHTS) - 1) and np.isfinite(found).all()
    support = TokenSupport(critic.model, critic.encoder.tokenizer, batch_tokens=512, layer=SECOND_TO_LAST)
    cut, whole = (
        support.weakest({"knowledge": columns[name], "response": columns["response"]})
        for name in ("knowledge", "whole knowledge")
    )
    assert found[:, -1] == pytest.approx(whole, abs=1e-5)
    assert found[:, -1] != pytest.approx(cut, abs=1e-3), "the rows differ by what the pair does not show"


def test_scores_are_the_same_alone_in_lists_from_cached_tokens_and_after_export(alone: Path, tmp_path: Path) -> None:
    together = scores_alone_in_lists_and_cached(Critic.load(str(alone)))
    export(str(alone), str(tmp_path / "folder"))
    again = Critic.load(str(tmp_path / "folder"))
    np.testing.assert_allclose(again.probabilities(*PAIRS), together, atol=1e-6)
    assert np.isfinite(again.probabilities(["", KNOWLEDGE], ["The king is old.", ""])).all(), "texts without a token"


def test_a_graph_is_refused_since_it_gives_no_states(alone: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="weakest token"):
        export(str(alone), str(tmp_path / "folder"), graph=True)
    with pytest.raises(UserError, match="weakest token"):
        Critic.load(str(alone), precision="onnx")
