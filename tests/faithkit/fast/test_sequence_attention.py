"""Attention and dropout of training: torch's results and gradients, and bits that follow from the seed."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from faithkit.fast.sequence_attention import Dropout, SequenceAttention, draw_kept, replace_dropout

QUERIES, KEYS = (3, 1, 5), (4, 2, 5)


def sides(size: int = 4, heads: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(sum(QUERIES), heads, size), *[(sum(KEYS), heads, size)] * 2, (heads, max(QUERIES), max(KEYS))]
    return [torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]


def test_attention_is_torchs_of_each_sequence() -> None:
    query, key, value, bias = sides()
    found = SequenceAttention.apply(query, key, value, bias, QUERIES, KEYS, 0.5, 0.0)
    parts = zip(query.split(QUERIES), key.split(KEYS), value.split(KEYS), strict=True)
    expected = [
        torch.nn.functional.scaled_dot_product_attention(
            *(side.transpose(0, 1) for side in part), attn_mask=bias[:, : len(part[0]), : len(part[1])], scale=0.5
        ).transpose(0, 1)
        for part in parts
    ]
    assert torch.allclose(found, torch.cat(expected))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("has_bias", [False, True])
def test_gradients_are_those_of_the_output(dropout: float, has_bias: bool) -> None:
    query, key, value, bias = sides()

    def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(3)
        given = bias if has_bias else None
        return SequenceAttention.apply(query, key, value, given, QUERIES, KEYS, 0.5, dropout)

    assert gradcheck(attend, (query, key, value, bias))


def test_dropout_keeps_the_mean_and_follows_the_seed() -> None:
    torch.manual_seed(1)
    kept, share = draw_kept(100_001, 0.1)
    assert share == pytest.approx(0.9, abs=1e-5)
    assert kept.float().mean().item() == pytest.approx(0.9, abs=0.004)
    assert not torch.equal(draw_kept(100_001, 0.1)[0], kept)
    torch.manual_seed(1)
    assert torch.equal(draw_kept(100_001, 0.1)[0], kept)


def test_dropout_of_a_model_is_replaced_and_off_in_evaluation() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    replace_dropout(model)
    assert isinstance(model[1], Dropout)
    ones = torch.ones(1000, requires_grad=True)
    dropped = model[1](ones)
    dropped.sum().backward()
    assert set(dropped.tolist()) == {0.0, 2.0}
    assert torch.equal(ones.grad, dropped)
    assert model.eval()[1](ones) is ones
