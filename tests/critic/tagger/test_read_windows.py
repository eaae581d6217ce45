"""Texts of any length are read to their end, and each token keeps its best window."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from critic import Tagger
from critic.requests import Request
from tests.critic.tagger.answers import ANSWER, CONTEXT, QUESTION, assert_same, check


def test_a_token_is_as_hallucinated_as_its_best_window_leaves_it(tagger: Tagger, tagger_folder: Path) -> None:
    from transformers import AutoModelForTokenClassification

    model = AutoModelForTokenClassification.from_pretrained(tagger_folder).eval()
    encoder = replace(tagger.encoder, packed=False)
    columns = encoder.encode_texts([QUESTION[3]], [CONTEXT[1] * 3], [ANSWER[0]])
    windows = encoder.windows(columns)
    assert len(windows.row) > 4
    least = np.full(9, np.inf)
    for number in range(len(windows.row)):
        batch = encoder.collate_windows(columns, windows.take(np.array([number])))
        ((_, _, begin, end),) = batch["bounds"].tolist()
        inputs = {n: torch.from_numpy(batch[n]) for n in ("input_ids", "attention_mask", "token_type_ids")}
        with torch.inference_mode():
            logits = model(**inputs).logits[0, begin:end].double()
        odds = (logits[:, 1:].logsumexp(1) - logits[:, 0]).numpy()
        least[batch["token"]] = np.minimum(least[batch["token"]], odds[: len(batch["token"])])
    odds, _, _ = tagger.odds([Request(CONTEXT[1] * 3, QUESTION[3], ANSWER[0])])
    np.testing.assert_allclose(odds, least[: len(odds)], atol=1e-5)
    assert np.isfinite(odds).all()


def test_a_context_of_5000_words_is_read_to_its_end(tagger: Tagger) -> None:
    context = "the river is long and the city is old " * 556 + "the king plays music"
    check(tagger.predict(knowledge=context, response=ANSWER[0]), ANSWER[0])
    columns = tagger.encoder.encode_texts([""], [context], [ANSWER[0]])
    windows = tagger.encoder.windows(columns)
    assert windows.lengths.max() <= 96 and len(windows.row) > 50
    assert (windows.context_start + windows.context_size).max() == columns["context"].lengths[0]


@pytest.mark.slow
def test_an_answer_of_50_000_words(tagger: Tagger) -> None:
    answer = "the river is long and the city is old, say you. " * 5000 + "music"
    tagged = tagger.predict(knowledge="the river is long", history="is it", response=answer)
    check(tagged, answer)
    assert tagged.spans and tagged.spans[-1].end > len(answer) * 0.9 and tagged.spans[0].start < len(answer) * 0.1


def test_padded_batches_say_the_same_as_packed_ones(tagger: Tagger, tagger_folder: Path) -> None:
    from transformers import AutoModelForTokenClassification

    plain = AutoModelForTokenClassification.from_pretrained(tagger_folder).eval()
    padded = Tagger(plain, replace(tagger.encoder, packed=False), tagger.calibration)
    for one, other in zip(*(t.predict(CONTEXT, ANSWER, QUESTION) for t in (tagger, padded)), strict=True):
        assert_same(one, other, atol=1e-5)
