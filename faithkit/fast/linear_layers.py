"""Computes linear layers with oneDNN where that is faster (`hardware.uses_onednn`), in training and inference.

torch multiplies fp32 matrices with MKL, which uses AVX-512 on Intel's processors only: on AMD's its products take twice
the time. torch also contains oneDNN, but calls it in bf16 only.

oneDNN compiles a product for each number of rows, and keeps half a megabyte of each. The rows are filled with zeros so
that few numbers occur, in bf16 too.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faithkit.fast.hardware import uses_onednn

MIN_ROWS = 8  # with fewer rows MKL is as fast


def round_up(number: int) -> int:
    """Rounds a number of rows up: 32 numbers occur up to 256, and 16 for each doubling."""
    step = max(MIN_ROWS, (1 << (number - 1).bit_length()) // 32)
    return -(-number // step) * step


class LinearProduct(torch.autograd.Function):
    """Computes `F.linear` of rows [rows, inputs] and its gradients with oneDNN."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return multiply(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            multiply(gradient, weight.t()) if of_rows else None,
            multiply(gradient.t(), rows.t()) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def multiply(rows: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """Computes activation(rows @ weight^T + bias) with oneDNN."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, activation, [], "none")
    return product


class OneDnnLinear(nn.Linear):
    """A linear layer that oneDNN computes in fp32 or bf16 on a CPU; elsewhere, and for a few rows, torch does."""

    def forward(self, input: Tensor) -> Tensor:
        is_known = input.dtype == self.weight.dtype and input.dtype in (torch.float32, torch.bfloat16)
        is_elsewhere = input.device.type != "cpu" or torch.is_autocast_enabled("cpu")
        if not is_known or is_elsewhere or input.numel() < MIN_ROWS * self.in_features:
            return F.linear(input, self.weight, self.bias)
        rows = input.flatten(0, -2)
        filling = round_up(len(rows)) - len(rows)
        filled = F.pad(rows, (0, 0, 0, filling)) if filling else rows
        if torch.is_grad_enabled():
            product: Tensor = LinearProduct.apply(filled, self.weight, self.bias)
        else:
            product = multiply(filled, self.weight, self.bias)
        return product[: len(rows)].unflatten(0, input.shape[:-1])


def speed_up_linear_layers(model: nn.Module) -> None:
    """Lets oneDNN compute a model's linear layers if it is faster here. The weights and their names stay."""
    if _uses_onednn(model):
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = OneDnnLinear


def missing_rows(model: nn.Module, number: int) -> int:
    """Returns the rows that a batch lacks to a rounded number; a model that adds them spares its layers the copies."""
    return round_up(number) - number if _uses_onednn(model) else 0


def _uses_onednn(model: nn.Module) -> bool:
    first = next(model.parameters())
    return uses_onednn(first.dtype, first.device)
