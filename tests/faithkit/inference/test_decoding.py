"""Settings of decoding are checked where they are made; choosing tokens is the arithmetic that it says it is."""

from typing import Any

import pytest
import torch

from faithkit.errors import UserError
from faithkit.inference.decoding import Decoding
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
