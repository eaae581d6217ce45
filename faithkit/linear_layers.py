"""Computes linear layers in fp32 with oneDNN where torch's MKL is slow, in training and inference.

torch multiplies fp32 matrices with MKL, which uses AVX-512 on Intel's processors only: on AMD's its products take twice
the time (`faithkit.hardware.has_slow_mkl`). torch also contains oneDNN, but calls it in bf16 only.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faithkit.hardware import has_slow_mkl

MIN_ROWS = 8  # with fewer rows MKL is as fast


class LinearProduct(torch.autograd.Function):
    """Computes `F.linear` and its gradients with oneDNN."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return multiply(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        flat = gradient.flatten(0, -2)
        return (
            multiply(gradient, weight.t()) if of_rows else None,
            multiply(flat.t(), rows.flatten(0, -2).t()) if of_weight else None,
            flat.sum(0) if of_bias else None,
        )


def multiply(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes rows @ weight^T + bias in fp32 with oneDNN."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], None)
    return product


class OneDnnLinear(nn.Linear):
    """A linear layer that oneDNN computes in fp32 on a CPU; elsewhere, and for a few rows, torch does."""

    def forward(self, input: Tensor) -> Tensor:
        is_fp32 = input.dtype == self.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if not is_fp32 or input.device.type != "cpu" or input.numel() < MIN_ROWS * self.in_features:
            return F.linear(input, self.weight, self.bias)
        if not torch.is_grad_enabled():
            return multiply(input, self.weight, self.bias)
        product: Tensor = LinearProduct.apply(input, self.weight, self.bias)
        return product


def speed_up_linear_layers(model: nn.Module) -> None:
    """Lets oneDNN compute a model's linear layers if it is faster here. The weights and their names stay."""
    if has_slow_mkl() and torch.backends.mkldnn.is_available():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = OneDnnLinear
