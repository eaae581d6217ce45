"""Computes linear layers of prediction together with what follows them: activation, gate, residual sum.

On x86 CPUs oneDNN does so in bf16, and in fp32 where MKL does not know the CPU (`faithkit.hardware.has_slow_mkl`): a
sum or an activation of a product that is still in the cache costs next to nothing. Elsewhere, for int8 and where
gradients are needed, the same functions compute one step after the other.

oneDNN compiles a product for each number of rows, so that `row_step` is the step to which a batch is filled.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation

from faithkit.hardware import uses_onednn
from faithkit.linear_layers import OneDnnLinear, multiply

ROWS = 128


def row_step(model: Any) -> int:
    """Returns the step to which the rows of a batch are rounded up."""
    first = next(model.parameters())
    return ROWS if uses_onednn(first.dtype, first.device) else 1


def project(linear: Any, states: Tensor, added: Tensor | None = None) -> Tensor:
    """Computes `linear(states) + added`."""
    if not _is_fused(linear, states):
        projected: Tensor = linear(states)
        return projected if added is None else added + projected
    if added is None:
        return multiply(states, linear.weight, linear.bias)
    return _binary_product(states, added, linear.weight, linear.bias, "add")


def project_gated(linear: Any, states: Tensor, activation: nn.Module) -> Tensor:
    """Computes `activation(hidden) * gate`, where `linear` gives hidden and gate side by side (GEGLU, Shazeer 2020)."""
    if not _is_fused(linear, states) or not isinstance(activation, GELUActivation):
        hidden, gate = linear(states).chunk(2, dim=-1)
        gated: Tensor = activation(hidden) * gate
        return gated
    weights = linear.weight.chunk(2)
    biases = (None, None) if linear.bias is None else linear.bias.chunk(2)
    hidden = multiply(states, weights[0], biases[0], "gelu")
    return _binary_product(states, hidden, weights[1], biases[1], "mul")


def _is_fused(linear: Any, states: Tensor) -> bool:
    is_plain = type(linear) in (nn.Linear, OneDnnLinear) and not torch.is_grad_enabled()
    return is_plain and uses_onednn(states.dtype, states.device)


def _binary_product(states: Tensor, other: Tensor, weight: Tensor, bias: Tensor | None, operation: str) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(states, other, weight, bias, operation)
    return result
