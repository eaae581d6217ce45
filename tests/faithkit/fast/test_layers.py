"""Linear layers, attention and dropout: the outputs and gradients of torch, and bits that follow from the seed."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from faithkit.fast.hardware import uses_onednn
from faithkit.fast.layers import (
    MIN_ROWS,
    Dropout,
    OneDnnLinear,
    SequenceAttention,
    draw_kept,
    missing_rows,
    replace_dropout,
    round_up,
    speed_up_linear_layers,
)

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


def make_pair(*, bias: bool = True) -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(0)
    plain, fast = nn.Linear(24, 40, bias=bias), nn.Linear(24, 40, bias=bias)
    fast.load_state_dict(plain.state_dict())
    fast.__class__ = OneDnnLinear
    return plain, fast


def gradients(layer: nn.Linear, states: Tensor) -> list[Tensor]:
    """Gives the output, and the gradients of the inputs and of the parameters."""
    inputs = states.clone().requires_grad_()
    output = layer(inputs)
    output.pow(3).sum().backward()
    found = [output.detach(), inputs.grad, *(each.grad for each in layer.parameters())]
    return [side for side in found if side is not None]


@pytest.mark.parametrize("shape", [(50, 24), (1, 50, 24), (3, 17, 24), (8, 24), (2, 24), (24, 50)])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_those_of_torch(shape: tuple[int, ...], bias: bool) -> None:
    plain, fast = make_pair(bias=bias)
    states = torch.randn(shape)
    states = states.t() if shape == (24, 50) else states  # not contiguous
    for expected, found in zip(gradients(plain, states), gradients(fast, states), strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    with torch.inference_mode():
        assert torch.allclose(fast(states), plain(states), rtol=1e-5, atol=1e-6)


def test_frozen_weights_get_no_gradient() -> None:
    plain, fast = make_pair()
    for layer in (plain, fast):
        layer.requires_grad_(False)
    states = torch.randn(50, 24)
    (of_plain, of_fast) = (gradients(layer, states) for layer in (plain, fast))
    assert len(of_fast) == 2 and torch.allclose(of_fast[1], of_plain[1], rtol=1e-4, atol=1e-4)


def test_bf16_differs_by_its_rounding_alone() -> None:
    plain, fast = (gradients(layer.bfloat16(), torch.randn(50, 24).bfloat16()) for layer in make_pair())
    for expected, found in zip(plain, fast, strict=True):
        assert found.dtype == torch.bfloat16 and found.shape == expected.shape


def test_other_precisions_are_torchs() -> None:
    plain, fast = make_pair()
    states = torch.randn(50, 24)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fast(states), plain(states))
    assert torch.equal(fast.double()(states.double()), plain.double()(states.double()))


@pytest.mark.parametrize("slow", [True, False])
def test_a_model_keeps_its_weights_and_their_names(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faithkit.fast.hardware.has_slow_mkl", lambda: slow)
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 3)))
    before = {name: weights.data_ptr() for name, weights in model.state_dict().items()}
    ids = torch.arange(10)
    expected = model(ids)
    speed_up_linear_layers(model)
    assert {name: weights.data_ptr() for name, weights in model.state_dict().items()} == before
    assert isinstance(model[1], OneDnnLinear) == slow
    assert torch.allclose(model(ids), expected, atol=1e-6)


def test_few_numbers_of_rows_occur() -> None:
    rounded = [round_up(number) for number in range(MIN_ROWS, 4097)]
    assert all(0 <= found - number <= max(MIN_ROWS - 1, number / 16) for number, found in enumerate(rounded, MIN_ROWS))
    assert len(set(rounded)) <= 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rows_are_rounded_where_onednn_computes_them(dtype: torch.dtype) -> None:
    """It keeps a compiled product for each number of rows, so memory would grow with the numbers that occur."""
    model = nn.Linear(4, 4, dtype=dtype)
    used = uses_onednn(dtype, torch.device("cpu"))
    assert missing_rows(model, 1000) == (round_up(1000) - 1000 if used else 0)


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
