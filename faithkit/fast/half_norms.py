"""Norms for training in mixed precision on a GPU, which return half precision.

Autocast computes norms in fp32 and leaves their result in fp32, so that each linear layer that follows casts it again,
and a layer of BERT adds to it in fp32. A kernel of half precision sums in fp32 too, so only the result is rounded, as
autocast rounds it for the next layer.
"""

import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RMS_NORMS = ("LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm")  # of transformers, all alike


class HalfLayerNorm(nn.LayerNorm):
    """A layer norm that returns the type of autocast."""

    def forward(self, input: Tensor) -> Tensor:
        device = input.device.type
        if not torch.is_autocast_enabled(device):
            return super().forward(input)
        dtype = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            weight, bias = (None if one is None else one.to(input.dtype) for one in (self.weight, self.bias))
            return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps).to(dtype)


class HalfRmsNorm(nn.Module):
    """A norm of Llama in one kernel; it returns the type of autocast."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, input: Tensor) -> Tensor:
        device = input.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else input.dtype
        with torch.autocast(device, enabled=False):
            weight = self.weight.to(input.dtype)
            return F.rms_norm(input, weight.shape, weight, self.variance_epsilon).to(dtype)


def use_half_norms(model: Any) -> None:
    """Replaces the norms within the layers of a model; the weights and their names stay."""
    for name, module in model.named_modules():
        if re.search(r"\.\d+\.", name):
            if type(module) is nn.LayerNorm:
                module.__class__ = HalfLayerNorm
            elif type(module).__name__ in RMS_NORMS:
                module.__class__ = HalfRmsNorm
