"""Layers of training in fewer passes over activations: T5's on a CPU, and norms of half precision on a GPU.

transformers' T5 cannot take packed rows, because its position biases count tokens over the whole row; here they are
computed once for the longest sequence. The weights keep their names.

On a GPU autocast computes norms in fp32 and leaves their result in fp32, so that each linear layer that follows casts
it again, and a layer of BERT adds to it in fp32. A kernel of half precision sums in fp32 too, so only the result is
rounded, as autocast rounds it for the next layer.
"""

import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faithkit.fast.hardware import has_operator
from faithkit.fast.packing import allow_packed_attention, pack_rows

MODELS = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration")
RMS_NORMS = ("LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm")  # of transformers, all alike


class RmsNorm(torch.autograd.Function):
    """Computes weight * x / sqrt(mean(x^2) + eps); under autocast in its precision, which all readers ask for."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(states.float(), dim=-1, keepdim=True)
        scale = norm.square_().div_(states.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(states, weight, scale)
        normed = (states * scale).mul_(weight)
        device = states.device.type
        return normed.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else normed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        states, weight, scale = ctx.saved_tensors
        gradient, size = gradient.to(states.dtype), states.shape[-1]
        # That of layer norm, with 0 as the mean. Its part that comes from the mean is taken back.
        mean, needed = torch.zeros_like(scale), [True, True, False]
        of_states, of_weight, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, states, [size], mean, scale, weight, None, needed
        )
        return of_states.add_((gradient @ weight)[..., None] * scale, alpha=1 / size), of_weight, None


class Norm(nn.Module):
    """T5's norm."""

    def __init__(self, norm: Any):
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, states: Tensor) -> Tensor:
        normed: Tensor = RmsNorm.apply(states, self.weight, self.eps)
        return normed


class GatedFeedForward(nn.Module):
    """T5's feed-forward network with a gate, without the casts that transformers' makes under autocast."""

    def __init__(self, network: Any):
        super().__init__()
        self.wi_0, self.wi_1, self.wo = network.wi_0, network.wi_1, network.wo
        self.act = nn.GELU(approximate="tanh")
        self.dropout = network.dropout

    def forward(self, states: Tensor) -> Tensor:
        output: Tensor = self.wo(self.dropout(self.act(self.wi_0(states)) * self.wi_1(states)))
        return output


def replace_layers(model: Any) -> None:
    """Replaces layers of a T5 that is trained on a CPU, and packs the rows of its encoder; changes no other model."""
    if type(model).__name__ not in MODELS or model.device.type != "cpu" or not allow_packed_attention(model.encoder):
        return
    model.decoder.set_attn_implementation("eager")  # with few tokens quicker than sdpa, which has no kernel for a bias
    model.encoder.register_forward_pre_hook(_pack, with_kwargs=True)
    model.encoder.register_forward_hook(_unpack, with_kwargs=True)
    for name, module in list(model.named_modules()):
        if name.endswith("layer_norm") and has_operator("ops.aten.native_layer_norm_backward"):
            model.set_submodule(name, Norm(module).train(module.training))
        elif type(getattr(module, "act", None)).__name__ == "NewGELUActivation" and hasattr(module, "wi_1"):
            model.set_submodule(name, GatedFeedForward(module).train(module.training))


def _pack(encoder: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Packs the rows of an encoder, and computes the position biases of the longest one."""
    attention, mask = encoder.block[0].layer[0].SelfAttention, options.get("attention_mask")
    # Set for the previous batch; gradient checkpointing calls it in the backward pass too.
    vars(attention).pop("compute_bias", None)
    if inputs or mask is None or options.get("input_ids") is None or mask.device.type != "cpu":
        return inputs, options
    packed = pack_rows({"input_ids": options["input_ids"], "attention_mask": mask})
    longest = packed["packing"].longest
    attention.compute_bias = lambda *_, **__: type(attention).compute_bias(attention, longest, longest)
    changed = {"attention_mask": None, "input_ids": packed["input_ids"], "packing": packed["packing"]}
    return inputs, {**options, **changed, "padded_mask": mask.bool()}


def _unpack(encoder: Any, _: Any, options: dict[str, Any], output: Any) -> Any:
    """Pads the states of a packed row again, with zeros."""
    if (mask := options.get("padded_mask")) is not None:
        states = output.last_hidden_state[0]
        padded = states.new_zeros(*mask.shape, states.shape[-1])
        output.last_hidden_state = padded.index_put(mask.nonzero().unbind(1), states)
    return output


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
