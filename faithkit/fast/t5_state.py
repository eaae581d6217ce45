"""Keeps the state of a T5 that decodes, and computes its decoder's steps.

transformers' decoder needs the keys of the cross-attention in one tensor, as wide as the longest prompt of all. Here
prompts that were read together have a tensor as wide as the longest of them, and those of finished texts are removed.
After the products most of a step is the reading of keys and values. On a CPU these are in fp32, because attention in
bf16 takes longer.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from faithkit.fast.decoder_state import CausalState, GrowingCache, encode_prompts, visible_columns


class PromptKeys:
    """Keys and values of the cross-attention of prompts that were read together.

    Args:
        rows: The prompts' numbers in the batch [prompts].
        states: Keys and values of every layer [prompts, heads, width, size].
        bias: 0 where a prompt has a token, and -inf elsewhere [prompts, 1, 1, width].
    """

    def __init__(self, rows: Tensor, states: list[tuple[Tensor, Tensor]], bias: Tensor):
        self.rows, self.states, self.bias = rows, states, bias

    def select(self, rows: Tensor) -> "PromptKeys":
        """Keeps the prompts of these rows, which get new numbers; a row may occur several times."""
        places, numbers = (self.rows[:, None] == rows).nonzero().unbind(1)
        if torch.equal(places, torch.arange(len(self.rows), device=rows.device)):
            return PromptKeys(numbers, self.states, self.bias)
        states = [(keys[places], values[places]) for keys, values in self.states]
        return PromptKeys(numbers, states, self.bias[places])

    def remove(self, rows: Tensor) -> None:
        """Removes the prompts of these rows; the last ones move into their places, which copies the least."""
        kept = ~torch.isin(self.rows, rows)
        count = int(kept.sum())
        if count == len(kept):
            return
        gaps, moved = (~kept[:count]).nonzero()[:, 0], kept[count:].nonzero()[:, 0] + count

        def close_gaps(side: Tensor) -> Tensor:
            side[gaps] = side[moved]
            return side[:count]

        self.rows, self.bias = close_gaps(self.rows), close_gaps(self.bias)
        self.states = [(close_gaps(keys), close_gaps(values)) for keys, values in self.states]


class T5State(CausalState):
    """The state of a T5 that writes texts.

    Args:
        crossed: The keys and values of the cross-attention, in parts.
    """

    can_share = False

    def __init__(self, cache: GrowingCache, lengths: Tensor, crossed: list[PromptKeys]):
        super().__init__(cache, lengths)
        self.crossed = crossed

    @classmethod
    def read(
        cls,
        model: Any,
        ids: Sequence[NDArray[np.int32]],
        pad_id: int,
        decoder_prefix: Sequence[int],
        prefix: CausalState | None = None,
    ) -> tuple["T5State", Tensor]:
        """Encodes prompts of similar lengths, and decodes `decoder_prefix`; there is no shared prefix."""
        hidden, readable = encode_prompts(model, ids, pad_id)
        layers = [block.layer[1].EncDecAttention for block in model.decoder.block]
        states = [(_as_keys(layer.k(hidden), layer), _as_keys(layer.v(hidden), layer)) for layer in layers]
        rows = torch.arange(len(ids), device=model.device)
        crossed = PromptKeys(rows, states, _bias_of(readable, hidden.dtype)[:, None, None])
        state = cls(GrowingCache(), torch.zeros_like(rows), [crossed])
        for token in decoder_prefix:
            logits = state.step(model, torch.full_like(rows, token))
        return state, logits

    def step(self, model: Any, tokens: Tensor) -> Tensor:
        """Adds a token to each row [B]; returns the next tokens' logits [B, V]."""
        decoder, width = model.decoder, self.cache.width + 1
        self.lengths += 1
        states = decoder.embed_tokens(tokens)  # [B, H]
        bias = decoder.block[0].layer[0].SelfAttention.compute_bias(1, width, past_seen_tokens=width - 1)
        bias = bias + _bias_of(visible_columns(self.lengths, width), states.dtype)[:, None, None]
        for number, block in enumerate(decoder.block):
            to_text, to_prompt, feed_forward = block.layer

            attention, normed = to_text.SelfAttention, to_text.layer_norm(states)[:, None]
            key, value = (_as_keys(side(normed), attention) for side in (attention.k, attention.v))
            keys, values = self.cache.update(key, value, number)
            query = _split_heads(attention.q(normed), attention)
            states = states + attention.o(attend(query, keys, values, bias).flatten(1))

            attention, normed = to_prompt.EncDecAttention, to_prompt.layer_norm(states)
            query = _split_heads(attention.q(normed)[:, None], attention)
            attended = torch.zeros_like(query)  # [B, heads, 1, size]
            for part in self.crossed:
                attended[part.rows] = attend(query[part.rows], *part.states[number], part.bias)
            states = states + attention.o(attended.transpose(1, 2).flatten(2).flatten(0, 1))

            states = states + feed_forward.DenseReluDense(feed_forward.layer_norm(states))
        states = decoder.final_layer_norm(states)
        if getattr(model.config, "scale_decoder_outputs", False):
            states = states * model.config.d_model**-0.5
        logits: Tensor = model.lm_head(states)
        return logits

    def forget(self, rows: Tensor) -> None:
        """Marks rows as finished, and removes what they would read of their prompts."""
        super().forget(rows)
        for part in self.crossed:
            part.remove(rows)
        self.crossed = [part for part in self.crossed if len(part.rows)]

    def select(self, rows: Tensor) -> None:
        """Keeps these rows in this order; a row may occur several times."""
        super().select(rows)
        self.crossed = [part for part in (part.select(rows) for part in self.crossed) if len(part.rows)]

    def put(self, rows: Tensor, other: Any) -> None:
        """Replaces rows of finished texts by those of new ones."""
        super().put(rows, other)
        self.crossed += [PromptKeys(rows[part.rows], part.states, part.bias) for part in other.crossed]

    @classmethod
    def join(cls, states: Sequence[Any]) -> "T5State":
        """Concatenates the rows of states."""
        joined, crossed, begin = CausalState.join(states), [], 0
        for state in states:
            crossed += [PromptKeys(part.rows + begin, part.states, part.bias) for part in state.crossed]
            begin += len(state.lengths)
        return cls(joined.cache, joined.lengths, crossed)


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Computes T5's attention, which has no scale, of a few queries of each row [B, heads, queries, size]."""
    if query.is_cuda:
        return scaled_dot_product_attention(query, keys, values, attn_mask=bias, scale=1.0)
    # On a CPU torch's fused kernel reads keys at two thirds of this rate.
    weights = (query.float() @ keys.transpose(2, 3)).add_(bias).softmax(-1)
    return (weights @ values).to(query.dtype)


def _split_heads(states: Tensor, attention: Any) -> Tensor:
    """Splits [B, tokens, heads * size] into [B, heads, tokens, size]."""
    return states.unflatten(-1, (attention.n_heads, attention.key_value_proj_dim)).transpose(1, 2)


def _as_keys(states: Tensor, attention: Any) -> Tensor:
    split = _split_heads(states, attention)
    return (split if split.is_cuda else split.float()).contiguous()


def _bias_of(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)
