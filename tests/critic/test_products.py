"""Linear layers with what follows them: the same by oneDNN in one pass as step by step."""

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from critic.runtime.products import project, project_gated


@pytest.fixture(autouse=True)
def _onednn_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faithkit.hardware.has_slow_mkl", lambda: True)  # on the CPUs of all makers


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_a_pass_equals_its_steps(dtype: torch.dtype, error: float, bias: bool) -> None:
    torch.manual_seed(0)
    linear, states, added = nn.Linear(16, 24, bias=bias).to(dtype), torch.randn(1, 7, 16), torch.randn(1, 7, 24)
    states, added = states.to(dtype), added.to(dtype)
    for activation in (ACT2FN["gelu"], ACT2FN["relu"]):
        steps = project(linear, states), project(linear, states, added), project_gated(linear, states, activation)
        with torch.inference_mode():
            passes = project(linear, states), project(linear, states, added), project_gated(linear, states, activation)
        for step, one_pass in zip(steps, passes, strict=True):
            assert step.requires_grad and not one_pass.requires_grad
            torch.testing.assert_close(one_pass, step, rtol=0, atol=error)
