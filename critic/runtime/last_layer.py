"""Leaves out what nobody reads of an encoder's last layer, without a change to its weights.

A classifier's head reads the first token alone, so the last layer needs the queries, the products and the norms of that
token only; keys and values of all remain. Of six layers of MiniLM that saves a seventh of the arithmetic. Whoever reads
the states of the layer before needs nothing of the last one.

Use it to score; a training that reads other tokens' last states (`critic.losses.overlap_supervision`) needs the
whole layer.
"""

from copy import copy
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

# Encoders with BERT's layers, by the names of their classifiers, whose heads read the first token.
CLASSIFIERS = tuple(f"{name}ForSequenceClassification" for name in ("Bert", "Roberta", "XLMRoberta", "Camembert"))


def reads_first_token(model: Any) -> bool:
    """Tells whether this is a classifier whose layers are known here and whose head reads the first token."""
    return type(model).__name__ in CLASSIFIERS and not model.config.is_decoder


def first_token_only(model: Any) -> Any:
    """Puts a last layer that computes the first token alone in the place of a classifier's; others stay as they are."""
    if reads_first_token(model):
        layers = model.base_model.encoder.layer
        layers[-1] = FirstTokenLayer(layers[-1])
    return model


def without_last_layer(model: Any) -> Any:
    """The encoder below such a classifier, less its last layer; it shares its weights, and the classifier keeps all."""
    shorter = _own_modules(model.base_model)
    shorter.encoder = _own_modules(shorter.encoder)
    shorter.encoder.layer = shorter.encoder.layer[:-1]
    return shorter


def _own_modules(module: Any) -> Any:
    twin = copy(module)
    twin._modules = dict(module._modules)  # a copy shares it, and a change would be one to both
    return twin


class FirstTokenLayer(nn.Module):
    """A layer of BERT that gives the first token's state alone [rows, 1, hidden]; its weights keep their names."""

    def __init__(self, layer: Any):
        super().__init__()
        self.attention, self.intermediate, self.output = layer.attention, layer.intermediate, layer.output

    def forward(self, states: Tensor, attention_mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        own = self.attention.self
        first = states[:, :1]
        query, key, value = (
            layer(read).unflatten(-1, (-1, own.attention_head_size)).transpose(1, 2)
            for layer, read in ((own.query, first), (own.key, states), (own.value, states))
        )
        mask = None if attention_mask is None else attention_mask[:, :, :1]  # [rows, 1, queries, tokens]
        found = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=own.scaling)
        attended = self.attention.output(found.transpose(1, 2).flatten(2), first)
        return self.output(self.intermediate(attended), attended)
