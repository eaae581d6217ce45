"""Layers that replace those of transformers' models; the results are exact, and weights keep their names.

Some compute only what the logits of a head depend on.
A classifier's head reads the first token, so the last layer needs only that token's query, feed-forward network and
norms, besides the keys and values of all tokens. With six layers of MiniLM this saves a seventh of the arithmetic.

A token classifier's head reads the answers' tokens. Each layer of a packed row reads a stretch of every window and
returns a shorter one: the last layer returns the tokens of the answer, a layer below a layer with local attention
returns these and the tokens that they can see. The keys and values of a layer with full attention are still those of
all tokens. A row of ModernBERT is filled to a rounded number of tokens (`missing_rows`); attention leaves it out.

A training that reads states of other tokens (`critic.auxiliary_losses`) needs complete layers.

Others make fewer passes over activations in training. transformers' T5 cannot take packed rows, because its position
biases count tokens over the whole row; here they are computed once for the longest sequence.

On a GPU autocast computes norms in fp32 and leaves their result in fp32, so that each linear layer that follows casts
it again, and a layer of BERT adds to it in fp32. A kernel of half precision sums in fp32 too, so only the result is
rounded, as autocast rounds it for the next layer.
"""

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from faithkit.fast.hardware import has_operator, is_enabled
from faithkit.fast.layers import OneDnnLinear, missing_rows, multiply
from faithkit.fast.packing import Packing, allow_packed_attention, pack_rows, packed_attention, places_between

MODELS = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration")
RMS_NORMS = ("LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm")  # of transformers, all alike
FAMILIES = ("Bert", "Roberta", "XLMRoberta", "Camembert")  # encoders with BERT's layers


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


def reads_first_token(model: Any) -> bool:
    """Returns whether this is a classifier with known layers whose head reads the first token."""
    family = type(model).__name__.removesuffix("ForSequenceClassification")
    return family in FAMILIES and not model.config.is_decoder


def first_token_only(model: Any) -> Any:
    """Replaces the last layer by one that computes the first token alone; other models are unchanged."""
    if reads_first_token(model):
        layers = model.base_model.encoder.layer
        layers[-1] = FirstTokenLayer(layers[-1])
    return model


def without_last_layer(model: Any) -> Any | None:
    """Returns the encoder of such a classifier without its last layer; weights are shared. None for other models."""
    if not is_enabled() or not reads_first_token(model):
        return None
    shorter = _copy_module(model.base_model)
    shorter.encoder = _copy_module(shorter.encoder)
    shorter.encoder.layer = shorter.encoder.layer[:-1]
    return shorter


def _copy_module(module: Any) -> Any:
    copied = copy(module)
    copied._modules = dict(module._modules)  # a shallow copy shares the dictionary
    return copied


class FirstTokenLayer(nn.Module):
    """A layer of BERT that computes the first token's state alone [rows, 1, hidden]; weights keep their names."""

    def __init__(self, layer: Any):
        super().__init__()
        self.attention, self.intermediate, self.output = layer.attention, layer.intermediate, layer.output
        self.training = layer.training

    def forward(
        self,
        states: Tensor,
        attention_mask: Tensor | None = None,
        *_: Any,
        packing: Packing | None = None,
        **__: Any,
    ) -> Tensor:
        if packing is not None:
            return self._forward_packed(states[0], packing)
        attention = self.attention.self
        first = states[:, :1]
        query, key, value = (
            projection(inputs).unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)
            for projection, inputs in (
                (attention.query, first),
                (attention.key, states),
                (attention.value, states),
            )
        )
        mask = None if attention_mask is None else attention_mask[:, :, :1]  # [rows, 1, queries, tokens]
        options: dict[str, Any] = {"attn_mask": mask, "scale": attention.scaling, "dropout_p": self._dropout}
        context = scaled_dot_product_attention(query, key, value, **options)
        return self._finish(context.transpose(1, 2).flatten(2), first)

    @property
    def _dropout(self) -> float:
        return self.attention.self.dropout.p if self.training else 0.0

    def _forward_packed(self, states: Tensor, packing: Packing) -> Tensor:
        attention = self.attention.self
        first = states[packing.boundaries[:-1]]
        query, key, value = (
            projection(inputs).unflatten(-1, (-1, attention.attention_head_size)).transpose(0, 1)[None]
            for projection, inputs in ((attention.query, first), (attention.key, states), (attention.value, states))
        )
        one_query = replace(packing, queries=(1,) * len(packing.lengths))
        options: dict[str, Any] = {"scaling": attention.scaling, "dropout": self._dropout}
        context, _weights = packed_attention(attention, query, key, value, None, packing=one_query, **options)
        return self._finish(context[0].flatten(1)[:, None], first[:, None])

    def _finish(self, context: Tensor, first: Tensor) -> Tensor:
        attended = self.attention.output(context, first)
        return self.output(self.intermediate(attended), attended)


@dataclass(frozen=True)
class Stretch:
    """What a layer reads of the windows, and where what it returns lies in it.

    Args:
        packing: The lengths of its inputs and, of a layer with full attention, of its queries.
        inputs: Places of its inputs in the whole row, filled; None is the whole row.
        kept: Places of its outputs in its inputs, filled; None is all.
    """

    packing: Packing
    inputs: Tensor | None
    kept: Tensor | None


def keep_answers(model: Any) -> Any:
    """Replaces the layers of a packed token classifier; other models are unchanged."""
    layers = _layers(model)
    names = {type(layer).__name__ for layer in layers}
    if names == {"ModernBertEncoderLayer"}:
        model.base_model.layers = nn.ModuleList(ModernBertAnswerLayer(layer, i) for i, layer in enumerate(layers))
    elif len(names) == 1 and names <= {f"{name}Layer" for name in FAMILIES} and not model.config.is_decoder:
        layers[-1] = BertAnswerLayer(layers[-1])
    return model


def plan_answers(
    model: Any, batch: Mapping[str, Tensor], lengths: Tensor, begin: Tensor, end: Tensor
) -> tuple[dict[str, Tensor], list[Stretch]]:
    """Plans what each replaced layer reads, on the CPU, so that a GPU is not asked for each length.

    Args:
        batch: The packed inputs.
        lengths: Tokens of each window [windows].
        begin: The place in its window at which the answer begins [windows].
        end: And ends.

    Returns:
        The inputs, filled to the number of tokens that the layers expect, and the stretches that the model takes as
        `stretches`, the last layer last; none for a model that was not changed.
    """
    per_token = ("input_ids", "position_ids", "token_type_ids")
    filled = {name: _fill(model, side) if name in per_token else side for name, side in batch.items()}
    layers = [layer for layer in _layers(model) if isinstance(layer, (BertAnswerLayer, ModernBertAnswerLayer))]
    size, device = lengths, model.device
    stretches: list[Stretch] = []
    row = size.cumsum(0) - size  # the place of each window in the row
    for layer in reversed(layers):
        reach = layer.reach
        first = begin.new_zeros(len(begin)) if reach is None else (begin - reach).clamp(min=0)
        last = size if reach is None else torch.minimum(end + reach, size)
        read = last - first
        whole = bool((read == size).all())
        inputs = None if whole else _fill(model, places_between(row + first, row + last)).to(device)
        kept, queries = None, None
        if bool((read != end - begin).any()):
            start = read.cumsum(0) - read - first
            kept = _fill(model, places_between(start + begin, start + end)).to(device)
            queries = tuple((end - begin).tolist()) if reach is None else None
        packing = Packing(tuple(read.tolist()), device, queries=queries)
        if stretches and stretches[-1].packing == packing:
            packing = stretches[-1].packing  # with its biases
        stretches.append(Stretch(packing, inputs, kept))
        begin, end = first, last
    return filled, stretches[::-1]


def _fill(model: Any, side: Tensor) -> Tensor:
    """Adds zeros, which are valid tokens and places, up to the number of rows that layers of ModernBERT expect."""
    is_filled = any(isinstance(layer, ModernBertAnswerLayer) for layer in _layers(model))
    filling = missing_rows(model, side.shape[-1]) if is_filled else 0
    return F.pad(side, (0, filling)) if filling else side


def _layers(model: Any) -> Any:
    encoder = getattr(model.base_model, "encoder", model.base_model)
    return getattr(encoder, "layer", getattr(encoder, "layers", ()))


class BertAnswerLayer(nn.Module):
    """The last layer of BERT: queries and feed-forward network for the answers' tokens; weights keep their names."""

    reach = None

    def __init__(self, layer: Any):
        super().__init__()
        self.attention, self.intermediate, self.output = layer.attention, layer.intermediate, layer.output

    def forward(self, states: Tensor, *_: Any, stretches: Sequence[Stretch], **__: Any) -> Tensor:
        attention, stretch = self.attention.self, stretches[-1]
        read = states if stretch.kept is None else states[:, stretch.kept]
        query, key, value = (
            projection(inputs).unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)
            for projection, inputs in ((attention.query, read), (attention.key, states), (attention.value, states))
        )
        seen, _weights = packed_attention(
            self, query, key, value, None, packing=stretch.packing, scaling=attention.scaling
        )
        attended = self.attention.output(seen.flatten(2), read)
        return self.output(self.intermediate(attended), attended)


class ModernBertAnswerLayer(nn.Module):
    """A layer of ModernBERT, with rotary positions as one complex product; weights keep their names.

    The rows of `Wqkv` that make queries and keys are reordered, the two parts of a rotated pair side by side.
    """

    def __init__(self, layer: Any, index: int):
        super().__init__()
        self.attn_norm, self.attn, self.mlp_norm, self.mlp = layer.attn_norm, layer.attn, layer.mlp_norm, layer.mlp
        self.attention_type, self.index = layer.attention_type, index
        self.reach = None if self.attn.sliding_window is None else self.attn.sliding_window - 1
        size, weights = self.attn.head_dim, self.attn.Wqkv
        self.rotated = 2 * weights.out_features // 3  # queries and keys
        order = torch.arange(self.rotated).view(-1, 2, size // 2).transpose(1, 2).flatten()
        for tensor in (weights.weight, weights.bias):
            if tensor is not None:
                tensor.data[: self.rotated] = tensor.data[order.to(tensor.device)]

    def forward(
        self,
        states: Tensor,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        stretches: Sequence[Stretch],
        **_: Any,
    ) -> Tensor:
        stretch, attention = stretches[self.index], self.attn
        qkv = attention.Wqkv(self.attn_norm(states))
        self._rotate(qkv[..., : self.rotated], position_embeddings, stretch.inputs)
        query, key, value = qkv.unflatten(-1, (3, -1, attention.head_dim)).permute(2, 0, 3, 1, 4)
        if stretch.packing.queries is not None:
            query = query[:, :, stretch.kept]
        seen, _weights = packed_attention(
            self,
            query,
            key,
            value,
            None,
            packing=stretch.packing,
            scaling=attention.head_dim**-0.5,
            sliding_window=attention.sliding_window,
        )
        seen = seen.flatten(2)
        if stretch.kept is not None:
            states = states[:, stretch.kept]
            seen = seen if stretch.packing.queries is not None else seen[:, stretch.kept]
        states = _add(attention.Wo(seen), states)
        hidden = compute_gated(self.mlp.Wi, self.mlp_norm(states), self.mlp.act)
        return _add(self.mlp.Wo(hidden), states)

    def _rotate(self, states: Tensor, positions: tuple[Tensor, Tensor], places: Tensor | None) -> None:
        """Rotates queries and keys in place [1, tokens, 2 * heads * size]."""
        half = self.attn.head_dim // 2
        cos, sin = (side[0, :, :half].float() for side in positions)
        angles = torch.complex(cos, sin)
        angles = angles if places is None else angles[places]
        pairs = torch.view_as_complex(states.float().unflatten(-1, (-1, half, 2)))  # a view of fp32 states
        pairs.mul_(angles[:, None])
        if states.dtype != torch.float32:
            states.copy_(torch.view_as_real(pairs).flatten(2))


def compute_gated(linear: Any, states: Tensor, activation: nn.Module) -> Tensor:
    """Computes `activation(hidden) * gate`, where `linear` gives hidden and gate side by side (GEGLU, Shazeer 2020).

    oneDNN computes the activation of a product that is still in the cache.
    """
    if type(linear) is not OneDnnLinear or type(activation).__name__ != "GELUActivation" or torch.is_grad_enabled():
        hidden, gate = linear(states).chunk(2, dim=-1)
        gated: Tensor = activation(hidden) * gate
        return gated
    weights = linear.weight.chunk(2)
    biases = (None, None) if linear.bias is None else linear.bias.chunk(2)
    return multiply(states, weights[1], biases[1]).mul_(multiply(states, weights[0], biases[0], "gelu"))


def _add(output: Tensor, states: Tensor) -> Tensor:
    """Adds the states to a layer's output, in place where no gradient is needed: large tensors are slow to allocate."""
    return output + states if torch.is_grad_enabled() else output.add_(states)
