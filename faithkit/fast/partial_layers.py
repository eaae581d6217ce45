"""Layers that compute only what the logits of a head depend on; the results are exact, and weights stay as they are.

A classifier's head reads the first token, so the last layer needs only that token's query, feed-forward network and
norms, besides the keys and values of all tokens. With six layers of MiniLM this saves a seventh of the arithmetic.

A token classifier's head reads the answers' tokens. Each layer of a packed row reads a stretch of every window and
returns a shorter one: the last layer returns the tokens of the answer, a layer below a layer with local attention
returns these and the tokens that they can see. The keys and values of a layer with full attention are still those of
all tokens. A row of ModernBERT is filled to a rounded number of tokens (`missing_rows`); attention leaves it out.

A training that reads states of other tokens (`critic.auxiliary_losses`) needs complete layers.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from faithkit.fast.hardware import is_enabled
from faithkit.fast.linear_layers import OneDnnLinear, missing_rows, multiply
from faithkit.fast.packing import Packing, packed_attention, places_between

FAMILIES = ("Bert", "Roberta", "XLMRoberta", "Camembert")  # encoders with BERT's layers


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
