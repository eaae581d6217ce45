"""The encoder of the detector `default` computes what transformers computes, and does not wait for its import."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from critic.support.detector import load_encoder
from critic.support.word_states import load_bert
from faithkit.errors import UserError
from tests.model_folders import config
from tests.tiny import words, write_bert


@settings(deadline=None, max_examples=20)
@given(texts=st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5))
def test_states_equal_those_of_transformers(tiny_bert: Path, texts: list[str]) -> None:
    from transformers import AutoModel

    reference = AutoModel.from_pretrained(tiny_bert).eval()
    model, tokenizer = load_bert(tiny_bert)
    sequences = [tokenizer.encode(text).ids for text in texts]
    with torch.inference_mode():
        for ids, states in zip(sequences, model.encode(sequences), strict=True):
            expected = reference(torch.tensor([ids]), output_hidden_states=True).hidden_states[-2][0]
            torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 100_000])
def test_words_of_long_and_short_texts_do_not_depend_on_the_batch(tiny_bert: Path, batch_tokens: int) -> None:
    encoder = load_encoder(str(tiny_bert), "cpu", batch_tokens)
    texts = [words(count, shift=count) for count in (1, 2000, 7, 700)]
    assert len(encoder.tokenizer.encode(texts[1]).ids) > 2 * encoder.model.max_length  # several windows
    for text, together in zip(texts, encoder.encode(texts), strict=True):
        (alone,) = encoder.encode([text])
        assert alone.words[-1].end == len(text)
        np.testing.assert_allclose(together.states, alone.states, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(alone.states, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"hidden_act": "relu"}, "hidden_act"), ({"hidden_size": 16, "num_attention_heads": 2}, "of shape")],
)
def test_another_architecture_is_refused(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    config(**change)(write_bert(tmp_path / "model"))
    with pytest.raises(UserError, match=problem):
        load_encoder(str(tmp_path / "model"), "cpu")


def test_a_verdict_needs_no_transformers(tiny_bert: Path) -> None:
    code = f"""
import sys
from critic.support.detector import FILE, SupportDetector, load_encoder
from critic.support.word_model import WordModel
detector = SupportDetector(load_encoder({str(tiny_bert)!r}, "cpu"), WordModel.read(FILE))
assert 0 <= detector.predict("The king lives in the city.", "The queen lives in the city.").probability <= 1
print([name for name in ("transformers", "sklearn", "scipy", "torch._dynamo") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
