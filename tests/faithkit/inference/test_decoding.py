"""Settings of decoding are checked where they are made; tokens are chosen as the arithmetic, and transformers, say."""

from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from faithkit.errors import UserError
from faithkit.inference.text import Decoding
from faithkit.inference.transformers_engine import LIKELIEST, choose_tokens, sample_nucleus, uniforms


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "topk"}, "topk.*\n.*greedy, beam, nucleus"),
        ({"strategy": "beam", "num_beams": 0}, "num_beams is 0"),
        ({"num_beams": 2.5}, "num_beams is 2.5"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.2}, "top_p is 1.2"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"repetition_penalty": -1.0}, "repetition_penalty is -1.0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"min_new_tokens": 5, "max_new_tokens": 4}, "lower min_new_tokens"),
        ({"num_samples": 2}, "all be the same"),
        ({"strategy": "beam", "num_beams": 2, "num_samples": 3}, "3 samples of 2 beams"),
    ],
)
def test_a_bad_setting_is_refused_with_its_hint(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Decoding(**options)


def test_a_stream_of_random_numbers_belongs_to_its_seed_prompt_and_sample() -> None:
    decoding = Decoding(strategy="nucleus", seed=3)
    first = uniforms(decoding, "a:1", 0)
    assert (first == uniforms(decoding, "a:1", 0)).all() and len(first) == decoding.max_new_tokens
    others = [(decoding, "a:1", 1), (decoding, "a:2", 0), (Decoding(strategy="nucleus", seed=4), "a:1", 0)]
    assert all((first != uniforms(*other)).all() for other in others)
    assert len(uniforms(decoding, "lone \ud800", 0))


def test_the_first_and_the_last_draw_stay_inside_the_nucleus() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, -torch.inf]]).expand(2, -1)
    tokens = sample_nucleus(logits, 1.0, torch.tensor([0.0, 1.0 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [0, 2]


def test_a_nucleus_of_many_tokens_is_found_too() -> None:
    size = 4 * LIKELIEST
    draws = (torch.arange(size, dtype=torch.float64) + 0.5) / size
    tokens = sample_nucleus(torch.zeros(size, size), 0.5, draws)
    assert len(set(tokens.tolist())) == size // 2
    # A row with a small nucleus gives the same beside a flat one.
    steep = torch.linspace(0, 40, size)
    alone = sample_nucleus(steep[None], 0.9, draws[5:6])
    assert sample_nucleus(torch.stack([steep, torch.zeros(size)]), 0.9, draws[[5, 5]])[0] == alone[0]


def test_the_logprob_is_before_penalty_and_the_end_is_barred_until_it_may_come() -> None:
    logits = torch.tensor([[2.0, 1.5, -1.0], [2.0, 1.5, -1.0]])
    seen = torch.tensor([[True, False, True], [False, True, False]])
    decoding = Decoding(repetition_penalty=2.0, min_new_tokens=2)
    options = {"eos_id": 0, "counts": torch.tensor([5, 0]), "seen": seen, "draws": None}
    tokens, logprobs = choose_tokens(logits, decoding, **options)
    assert tokens.tolist() == [1, 1]  # 2 / 2 < 1.5; the end is barred, and 1.5 / 2 > -1
    assert logprobs.tolist() == pytest.approx(logits.log_softmax(-1)[:, 1].tolist())
    assert logits[1, 0] == 2.0, "the model's logits are left alone"


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
