"""Gated feed-forward layers: with oneDNN the results are those of the product, activation and gate one by one."""

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from faithkit.fast.answer_layers import compute_gated
from faithkit.fast.linear_layers import OneDnnLinear


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_a_product_with_its_activation_equals_the_steps(dtype: torch.dtype, error: float, bias: bool) -> None:
    torch.manual_seed(0)
    linear, states = nn.Linear(16, 24, bias=bias).to(dtype), torch.randn(1, 7, 16, dtype=dtype)
    linear.__class__ = OneDnnLinear
    for activation in (ACT2FN["gelu"], ACT2FN["relu"]):
        steps = compute_gated(linear, states, activation)
        with torch.inference_mode():
            found = compute_gated(linear, states, activation)
        assert steps.requires_grad and not found.requires_grad
        torch.testing.assert_close(found, steps, rtol=0, atol=error)
