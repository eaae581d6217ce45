"""Nucleus sampling draws from the distribution that transformers' own processors leave."""

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from faithkit.inference.decoding import Decoding
from faithkit.inference.transformers_engine import choose_tokens

EOS, NUM_DRAWS = 3, 20_000


@pytest.mark.slow
@pytest.mark.parametrize("size", [7, 60, 900])  # the largest is looked through in blocks
@pytest.mark.parametrize(
    "options",
    [
        {"top_p": 0.6},
        {"top_p": 0.9, "temperature": 0.5},
        {"top_p": 0.95, "temperature": 1.7, "repetition_penalty": 1.4},
        {"top_p": 1.0, "repetition_penalty": 0.8, "min_new_tokens": 4},
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_share_of_every_token_is_transformers(size, options, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(1, size, generator=generator)
    before = torch.randint(size, (1, 5), generator=generator)
    decoding = Decoding(strategy="nucleus", max_new_tokens=8, **options)
    # Draws that lie evenly in [0, 1) give the distribution itself, without chance.
    draws = (torch.arange(NUM_DRAWS, dtype=torch.float64) + 0.5) / NUM_DRAWS
    tokens, logprobs = choose_tokens(
        logits.expand(NUM_DRAWS, -1),
        decoding,
        eos_id=EOS,
        counts=torch.full((NUM_DRAWS,), 2),
        seen=torch.zeros(1, size, dtype=torch.bool).scatter(1, before, True).expand(NUM_DRAWS, -1),
        draws=draws,
    )
    wanted = reference(decoding)(before, logits.clone()).softmax(-1)[0]
    found = tokens.bincount(minlength=size) / NUM_DRAWS
    assert set(found.nonzero()[:, 0].tolist()) <= set(wanted.nonzero()[:, 0].tolist()), "outside the nucleus"
    assert found.tolist() == pytest.approx(wanted.tolist(), abs=2 / NUM_DRAWS)
    assert logprobs.tolist() == pytest.approx(logits.log_softmax(-1)[0, tokens].tolist(), abs=1e-5)


def reference(decoding):
    """Makes the processors that `generate` makes of the same settings, in its order."""
    steps = [
        RepetitionPenaltyLogitsProcessor(decoding.repetition_penalty),
        MinNewTokensLengthLogitsProcessor(3, decoding.min_new_tokens, EOS),  # 2 tokens stand behind a prompt of 3
        TemperatureLogitsWarper(float(decoding.temperature)),
        TopPLogitsWarper(float(decoding.top_p)),
    ]
    return LogitsProcessorList(steps)
