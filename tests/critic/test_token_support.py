"""The weakest tokens: worked by hand, whatever it is batched with, and in a critic from training to export."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from critic import Critic
from critic.export import export
from critic.sequence.evidence import TOKEN_WEIGHTS
from critic.token_support import EMPTY_KNOWLEDGE, EMPTY_RESPONSE, SECOND_TO_LAST, TokenSupport, token_support, weakest
from critic.weights import load_classifier
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer, single_template
from faithkit.errors import UserError
from tests.critic.test_evidence import KNOWLEDGE, PAIRS, scores_alone_in_lists_and_cached
from tests.running import SMALL, train_here

ALONE = (
    *("model.evidence=words_and_tokens", "model.evidence_alone=true", "model.freeze_encoder=true"),
    *("model.support_weight=0", "model.span_weight=0"),
)
TEXTS = st.lists(st.sampled_from("the king lives in a city of music . !".split()), max_size=40).map(" ".join)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "alone"
    train_here(
        f"model.weights={tiny_bert}", f"run_dir={folder}", "logger=none", *SMALL, *ALONE,
        "model.max_knowledge_words=10",
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def support(tiny_bert: Path) -> TokenSupport:
    tokenizer = load_tokenizer(str(tiny_bert))
    model = load_classifier(str(tiny_bert)).eval()
    return TokenSupport(model, tokenizer, max_length=16, batch_tokens=64, layer=SECOND_TO_LAST)


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


def test_texts_are_read_apart_with_their_special_tokens_which_do_not_count(
    support: TokenSupport, tiny_bert: Path
) -> None:
    tokenizer = load_tokenizer(str(tiny_bert))
    model = load_classifier(str(tiny_bert)).eval().bert
    with torch.inference_mode():
        states = [
            model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[-2][0, 1:-1]
            for text in ("the city is old", "the king lives")
        ]
    each = torch.nn.functional.cosine_similarity(states[1][:, None], states[0][None], dim=-1).amax(1)
    wanted = -torch.log(torch.exp(-20 * each).mean()) / 20
    assert of(support, tiny_bert, [("the city is old", "the king lives")])[0] == pytest.approx(float(wanted), abs=1e-5)
    assert single_template(tokenizer) == ((tokenizer.cls_token_id,), (tokenizer.sep_token_id,))


@settings(max_examples=20, deadline=None)
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6), seed=st.integers(0, 9))
def test_neither_batch_nor_padding_nor_order_changes_it(
    support: TokenSupport, tiny_bert: Path, pairs: list[tuple[str, str]], seed: int
) -> None:
    together = of(support, tiny_bert, pairs)
    alone = np.concatenate([of(support, tiny_bert, [pair]) for pair in pairs])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    order = np.random.default_rng(seed).permutation(len(pairs))
    np.testing.assert_allclose(of(support, tiny_bert, [pairs[i] for i in order]), together[order], atol=1e-5)
    assert np.all(together[[not said for _, said in pairs]] == EMPTY_RESPONSE)
    assert np.all(together[[bool(said) and not known for known, said in pairs]] == EMPTY_KNOWLEDGE)


def test_long_knowledge_is_read_to_its_end_and_once_for_all_its_responses(
    support: TokenSupport, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_with_max_windows_those_that_share_most_with_the_response_are_read(
    support: TokenSupport, tiny_bert: Path
) -> None:
    options = {"max_length": 16, "batch_tokens": 64, "layer": SECOND_TO_LAST}
    one = TokenSupport(load_classifier(str(tiny_bert)).eval(), load_tokenizer(str(tiny_bert)), **options, max_windows=1)
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
