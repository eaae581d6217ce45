"""Linear layers of oneDNN: the outputs and gradients of torch's own."""

import pytest
import torch
from torch import Tensor, nn

from faithkit.fast.hardware import uses_onednn
from faithkit.fast.linear_layers import MIN_ROWS, OneDnnLinear, missing_rows, round_up, speed_up_linear_layers

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
    plain, fast = (layer.bfloat16() for layer in make_pair())
    for expected, found in zip(
        gradients(plain, torch.randn(50, 24).bfloat16()), gradients(fast, torch.randn(50, 24).bfloat16()), strict=True
    ):
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
