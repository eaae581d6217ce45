"""int8 layers: close to fp32, the same in any batch, and only where every token passes."""

import pytest
import torch
from torch import Tensor, nn

from critic.runtime import apply_precision, check_precision
from faithkit.errors import UserError
from faithkit.fast.layers import Int8Linear

needs_kernels = pytest.mark.skipif(
    "onednn" not in torch.backends.quantized.supported_engines, reason="no int8 kernels for this CPU"
)


class Encoder(nn.Module):
    """One layer over all tokens, two over the first, of which one keeps its place; a fourth that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.first = nn.Linear(64, 32), nn.Linear(32, 32)
        self.head, self.idle = nn.Linear(32, 2), nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.first(self.layer(inputs)[:, :1])[:, 0])


@pytest.fixture
def inputs() -> Tensor:
    torch.manual_seed(0)
    made = torch.randn(8, 5, 64)
    made[..., 7] *= 30  # an input that outlies the others, as encoders have them
    return made


@needs_kernels
def test_a_layer_is_close_to_its_original_despite_an_outlier_and_its_rows_are_apart(inputs: Tensor) -> None:
    torch.manual_seed(1)
    linear, rows = nn.Linear(64, 32), inputs.flatten(0, -2)
    layer = Int8Linear(linear, rows.amin(0), rows.amax(0))
    assert layer.outliers.tolist() == [7]
    with torch.inference_mode():
        wanted, got = linear(inputs), layer(inputs)
        torch.testing.assert_close(got[3:4], layer(inputs[3:4]), rtol=0, atol=1e-5)
    assert got.shape == wanted.shape
    assert float((got - wanted).norm() / wanted.norm()) < 0.01


@needs_kernels
def test_only_layers_that_see_every_token_are_replaced(inputs: Tensor) -> None:
    model = Encoder().eval()

    def calibrate() -> None:
        with torch.inference_mode():
            model(inputs)

    made = apply_precision(model, "int8", "cpu", calibrate)
    is_int8 = {name: isinstance(module, Int8Linear) for name, module in made.named_children()}
    assert is_int8 == {"layer": True, "first": False, "head": False, "idle": False}
    assert not made.layer._forward_pre_hooks


def test_an_unknown_precision_and_int8_on_a_gpu_are_refused() -> None:
    with pytest.raises(UserError, match="precision is 'fp8'"):
        check_precision("fp8")
    with pytest.raises(UserError, match="x86 CPUs"):
        apply_precision(Encoder(), "int8", "cuda", lambda: None)
