"""BERTScore against the package of its authors, and how much an encoder reads at once."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertModel, RobertaConfig, RobertaModel

from faithkit.errors import UserError
from faithkit.metrics.responses.bert_score import BertScore
from faithkit.weights.load import longest_input

SIZE = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 9}
MODELS = {
    "bert": lambda: BertModel(BertConfig(**SIZE, max_position_embeddings=20)),
    # Its positions begin behind that of padding, 1: two of 22 are never used.
    "roberta": lambda: RobertaModel(RobertaConfig(**SIZE, max_position_embeddings=22, pad_token_id=1)),
}


@pytest.mark.parametrize("family", MODELS)
def test_the_longest_input_is_read_and_one_token_more_is_not(family: str) -> None:
    model, tokenizer = MODELS[family]().eval(), SimpleNamespace(model_max_length=10**30)
    longest = longest_input(model, tokenizer)
    assert longest == 20
    assert model(input_ids=torch.full((1, longest), 5)).last_hidden_state.shape[1] == longest
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.full((1, longest + 1), 5))
    assert longest_input(model, SimpleNamespace(model_max_length=7)) == 7, "what the tokenizer allows"


RESPONSES = ["the river is long", "a dog", "music is food and food is music", "the king [SEP] plays", "yes", "he plays"]
KNOWLEDGE = ["a long river", "the dog lives in the old city with the king", "music", "he plays", "no", "a stone"]


@pytest.fixture(scope="module")
def scorer(tiny_bert):
    return BertScore.load(str(tiny_bert), num_layers=1, device="cpu")


@pytest.mark.parametrize("num_layers", [1, 2])
def test_values_are_bert_scores(tiny_bert, monkeypatch, num_layers):
    import bert_score

    monkeypatch.setattr(
        bert_score.scorer, "get_tokenizer", lambda name, fast: AutoTokenizer.from_pretrained(name, model_max_length=128)
    )
    library = bert_score.BERTScorer(model_type=str(tiny_bert), num_layers=num_layers, device="cpu")
    # One pair at a time: in a batch the package lets padding count as a similarity of 0.
    expected = library.score(RESPONSES, KNOWLEDGE, batch_size=1)
    found = BertScore.load(str(tiny_bert), num_layers=num_layers, device="cpu").score(RESPONSES, KNOWLEDGE)
    for name, values in zip(("precision", "recall", "f1"), expected, strict=True):
        assert found[f"bertscore_{name}"] == pytest.approx(values.numpy(), abs=1e-6)


def test_a_pair_scores_the_same_in_any_batch(scorer):
    together = scorer.score(RESPONSES, KNOWLEDGE)
    alone = [scorer.score([r], [k]) for r, k in zip(RESPONSES, KNOWLEDGE, strict=True)]
    for name, values in together.items():
        assert values == pytest.approx(np.concatenate([one[name] for one in alone]), abs=1e-6)


def test_empty_texts_score_nothing(scorer):
    for values in scorer.score(["", "the river", " \n", "river"], ["the river", "", "river", "river"]).values():
        assert values[:3].tolist() == [0, 0, 0] and values[3] == pytest.approx(1.0)
    assert scorer.score([], [])["bertscore_f1"].shape == (0,)


def test_each_distinct_text_is_encoded_once(scorer, monkeypatch):
    seen, encode = [], scorer._encode
    monkeypatch.setattr(scorer, "_encode", lambda texts: seen.extend(texts) or encode(texts))
    scorer.score(["a", "b", "a"], ["b", "b", "c"])
    assert seen == ["a", "b", "c"]


def test_long_texts_are_cut_and_counted(tiny_bert):
    scorer = BertScore.load(str(tiny_bert), device="cpu")
    scorer.score(["the river " * 200], ["the river"])
    assert scorer.num_cut == 1


def test_a_layer_that_is_not_there_is_told(tiny_bert):
    with pytest.raises(UserError, match="num_layers is 7"):
        BertScore.load(str(tiny_bert), num_layers=7, device="cpu")
