"""Sequences of different lengths one behind the other in a single row: no padding, and each attends to itself alone.

A model takes a packed row through transformers' attention interface:

    use_packed_attention(model)
    model(input_ids=ids[None], position_ids=places[None], packing=Packing.of(lengths))

Everything but attention treats tokens one by one, so only attention needs to know where a sequence ends. It gets the
lengths with the call and works on each sequence by itself: exact isolation, and none of the work that a mask over the
whole row would cost. Resetting the positions alone would not isolate anything.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

NAME = "faithkit_packed"
BAND = 64  # queries that share a stretch of keys where attention reaches only so far


@dataclass(frozen=True)
class Packing:
    """Where the sequences of a packed row begin and end; made once a step and shared by all layers."""

    lengths: tuple[int, ...]
    device: torch.device
    _bands: dict[int, Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, lengths: Any, device: Any = "cpu") -> "Packing":
        return cls(tuple(int(length) for length in lengths), torch.device(device))

    @cached_property
    def longest(self) -> int:
        return max(self.lengths)

    @cached_property
    def boundaries(self) -> Tensor:
        """Cumulated lengths, from 0 [sequences + 1]."""
        ends = torch.tensor((0, *self.lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return ends.to(self.device)

    def band_mask(self, reach: int) -> Tensor:
        """Who may look where, for stretches of `BAND` queries and the keys around them [stretches, 1, BAND, keys]."""
        if reach not in self._bands:
            total = sum(self.lengths)
            count = -(-total // BAND)
            owner = torch.full((count * BAND,), -1)
            owner[:total] = torch.repeat_interleave(torch.arange(len(self.lengths)), torch.tensor(self.lengths))
            keys = F.pad(owner, (reach, reach), value=-2).unfold(0, BAND + 2 * reach, BAND)
            queries = owner.view(count, BAND)
            near = (torch.arange(BAND)[:, None] + reach - torch.arange(BAND + 2 * reach)).abs() <= reach
            seen = (queries[:, :, None] == keys[:, None, :]) & near
            seen |= (queries == -1)[:, :, None]  # filling: whatever it sees is thrown away, but must be a number
            self._bands[reach] = seen[:, None].to(self.device)
        return self._bands[reach]


def use_packed_attention(model: Any) -> bool:
    """Makes the model read packed rows; False where its architecture does not go through the attention interface."""
    from transformers import AttentionInterface

    if not getattr(model, "_supports_attention_backend", False):
        return False
    AttentionInterface.register(NAME, packed_attention)
    model.set_attn_implementation(NAME)
    return True


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention within each sequence of a row.

    Args:
        query: [1, heads, tokens, size], as key and value.
        sliding_window: A token sees those less than this far away; None sees its whole sequence.

    Returns:
        [1, tokens, heads, size], and no attention weights.
    """
    assert attention_mask is None and query.shape[0] == 1, "a packed row comes alone and without a mask"
    reach = sliding_window - 1 if sliding_window is not None and sliding_window <= packing.longest else None
    if query.is_cuda and not dropout and query.dtype in (torch.bfloat16, torch.float16):
        return _on_gpu(query, key, value, packing, scaling, reach), None
    if reach is not None:
        return _banded(query, key, value, packing, dropout, scaling, reach), None
    parts = zip(*(side.split(packing.lengths, dim=2) for side in (query, key, value)), strict=True)
    outputs = [F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling) for q, k, v in parts]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _on_gpu(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, scaling: float | None, reach: int | None
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (side[0].transpose(0, 1) for side in (query, key, value))  # [tokens, heads, size]
    ends, longest = packing.boundaries, packing.longest
    window = (-1, -1) if reach is None else (reach, reach)
    output = varlen_attn(q, k, v, ends, ends, longest, longest, scale=scaling, window_size=window)
    assert isinstance(output, Tensor)
    return output[None]


def _banded(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, dropout: float, scaling: float | None, reach: int
) -> Tensor:
    """Attention that reaches `reach` tokens to either side: the work grows with the length, not with its square."""
    mask = packing.band_mask(reach)
    count, total = len(mask), query.shape[2]
    filling = count * BAND - total
    queries = F.pad(query[0], (0, 0, 0, filling)).unflatten(1, (count, BAND)).transpose(0, 1)
    # [heads, tokens, size] to [stretches, heads, keys, size]
    keys, values = (
        F.pad(side[0], (0, 0, reach, reach + filling)).unfold(1, BAND + 2 * reach, BAND).permute(1, 0, 3, 2)
        for side in (key, value)
    )
    output = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return output.permute(0, 2, 1, 3).flatten(0, 1)[None, :total]
