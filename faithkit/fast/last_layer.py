"""Skips the unused part of an encoder's last layer, without a change to its weights.

A classifier's head reads the first token, so the last layer needs only that token's query, feed-forward network and
norms, besides the keys and values of all tokens. With six layers of MiniLM this saves a seventh of the arithmetic.

A training that reads the last states of other tokens (`critic.auxiliary_losses`) needs the complete layer.
"""

from copy import copy
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from faithkit.fast.hardware import is_enabled
from faithkit.fast.packing import Packing, packed_attention

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
