"""A key-value cache that grows in place, and an attention of one query that does not copy it.

transformers' own cache copies all keys and values at every token, and its attention repeats them where several query
heads share a key head (grouped-query attention); at large batches both cost more than the model itself.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import create_position_bias_mask, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

SPARE = 64  # columns (tokens) allocated ahead
GROUPED = "faithkit_grouped"


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer [B, heads, width, size], with room to grow.

    Args:
        spare: Columns to allocate beyond those that are needed.
    """

    keys: Any
    values: Any

    def __init__(self, spare: int = SPARE) -> None:
        super().__init__()
        self.spare = spare
        self._stores: list[Tensor] = []
        self._start = self._end = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Appends columns; gives the keys and values of all columns."""
        count = key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if not self._stores or self._end + count > self._stores[0].shape[-2]:
            self._move(count, key_states, value_states)
        for store, states in zip(self._stores, (key_states, value_states), strict=True):
            store[:, :, self._end : self._end + count] = states
        self._end += count
        return self._show()

    def _move(self, count: int, *states: Tensor) -> None:
        """Moves the columns in use into larger stores."""
        width = self._end - self._start
        stores = []
        for number, new in enumerate(states):
            shape = (*new.shape[:2], width + count + self.spare, new.shape[-1])
            store = new.new_empty(shape)  # columns are shown only once they are written
            if width:
                store[:, :, :width] = self._stores[number][:, :, self._start : self._end]
            stores.append(store)
        self._stores, self._start, self._end = stores, 0, width

    def _show(self) -> tuple[Tensor, Tensor]:
        self.keys, self.values = (store[:, :, self._start : self._end] for store in self._stores)
        return self.keys, self.values

    def keep_last(self, width: int) -> None:
        """Forgets all columns but the last ones."""
        self._start = self._end - width
        self._show()

    def copy_rows(self, source: Tensor, target: Tensor) -> None:
        """Copies rows over others."""
        for mine in (self.keys, self.values):
            mine[target] = mine[source]

    def move_right(self, row: int, width: int, by: int) -> None:
        """Moves the first columns of a row over those behind them."""
        for mine in (self.keys, self.values):
            mine[row, :, by : by + width] = mine[row, :, :width].clone()

    def put(self, rows: Tensor, keys: Tensor, values: Tensor, *, align_right: bool) -> None:
        """Overwrites rows; columns beyond the new ones keep their old values, which the mask hides."""
        width = keys.shape[-2]
        begin = self.get_seq_length() - width if align_right else 0
        assert begin >= 0, "longer prompts come first"
        for mine, theirs in ((self.keys, keys), (self.values, values)):
            mine[rows, :, begin : begin + width] = theirs


class GrowingCache(Cache):
    """Keys and values of all layers; a row is a text.

    Args:
        spare: Columns to allocate beyond those that are needed; 0 for keys that never grow (cross-attention).
    """

    layers: Any

    def __init__(self, spare: int = SPARE) -> None:
        super().__init__(layer_class_to_replicate=partial(GrowingLayer, spare))  # type: ignore[arg-type]
        self.spare = spare

    @property
    def width(self) -> int:
        """Columns of every row."""
        return self.get_seq_length()

    def keep_last(self, width: int) -> None:
        """Forgets all columns but the last ones."""
        for layer in self.layers:
            layer.keep_last(width)

    def select(self, rows: Tensor) -> None:
        """Keeps these rows, in this order; a row may come several times."""
        self._hold([(layer.keys[rows], layer.values[rows]) for layer in self.layers])

    def repeated(self, count: int, *, spare: int) -> "GrowingCache":
        """Copies a single row to `count` rows of another cache, with room for `spare` columns more."""
        other = GrowingCache(spare)
        other._hold(
            [(layer.keys.expand(count, -1, -1, -1), layer.values.expand(count, -1, -1, -1)) for layer in self.layers]
        )
        return other

    def close_gaps(self, width: int, gaps: Tensor) -> None:
        """Moves the first `width` columns of each row to the right, by its gap: over columns that hold nothing."""
        for row, gap in enumerate(gaps.tolist()):
            for layer in self.layers if gap else ():
                layer.move_right(row, width, gap)

    def reorder(self, rows: Tensor) -> None:
        """Does as `select` for as many rows, in place: only rows that move are copied."""
        moved = torch.nonzero(rows != torch.arange(len(rows), device=rows.device))[:, 0]
        if len(moved):
            for layer in self.layers:
                layer.copy_rows(rows[moved], moved)

    def put(self, rows: Tensor, other: "GrowingCache", *, align_right: bool) -> None:
        """Overwrites rows with those of another cache, which has no more columns."""
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            mine.put(rows, theirs.keys, theirs.values, align_right=align_right)

    @classmethod
    def join(cls, caches: Sequence["GrowingCache"], *, align_right: bool) -> "GrowingCache":
        """Joins the rows of caches; narrower ones are padded with zeros, at the left where they align right."""
        width = max(cache.width for cache in caches)
        joined = cls(caches[0].spare)
        states = []
        for layers in zip(*(cache.layers for cache in caches), strict=True):
            keys = torch.cat([_widened(layer.keys, width, align_right) for layer in layers])
            states.append((keys, torch.cat([_widened(layer.values, width, align_right) for layer in layers])))
        joined._hold(states)
        return joined

    def _hold(self, states: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.layers = []
        for number, (keys, values) in enumerate(states):
            self.update(keys, values, number)


def _widened(states: Tensor, width: int, align_right: bool) -> Tensor:
    extra = width - states.shape[-2]
    return pad(states, (0, 0, extra, 0) if align_right else (0, 0, 0, extra)) if extra else states


def attend_grouped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attends as transformers' sdpa does, without repeating keys that query heads or rows share.

    With one query a row (decoding), the query heads of a key head become several queries of that head. With fewer rows
    of keys than of queries (beams of a prompt), the rows that share keys become several queries of them.
    """
    if len(key) < len(query):
        return _attend_shared(query, key, value, attention_mask, **kwargs), None
    groups = getattr(module, "num_key_value_groups", 1)
    shared = attention_mask is None or (attention_mask.shape[1] == 1 and attention_mask.dtype == torch.bool)
    if groups == 1 or query.shape[2] > 1 or not shared or kwargs.get("position_bias") is not None:
        attended, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return attended, None
    batch, heads, _, size = query.shape
    grouped = query.reshape(batch, heads // groups, groups, size)  # [B, key heads, queries, size]
    attended = scaled_dot_product_attention(
        grouped,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=kwargs.get("dropout", 0.0),
        scale=kwargs.get("scaling"),
    )
    return attended.reshape(batch, 1, heads, value.shape[-1]), None


def _attend_shared(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Attends with queries [prompts * copies, heads, 1, size] to keys [prompts, heads, width, size]."""
    assert query.shape[2] == 1, "rows that share keys ask for one token each"
    copies = len(query) // len(key)
    rows = query[:, :, 0].unflatten(0, (-1, copies)).transpose(1, 2)  # [prompts, heads, rows, size]
    if position_bias is not None:
        attention_mask = create_position_bias_mask(position_bias, attention_mask, is_causal=False, query=rows, key=key)
    attended = scaled_dot_product_attention(rows, key, value, attn_mask=attention_mask, scale=scaling)
    return attended.transpose(1, 2).flatten(0, 1)[:, None]


AttentionInterface.register(GROUPED, attend_grouped)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


def use_grouped_attention(model: Any) -> None:
    """Switches a model from sdpa attention to `attend_grouped`, which gives the same result."""
    for part in model.modules():  # not the model alone: T5's decoder has a configuration of its own
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation == "sdpa":
            part.set_attn_implementation(GROUPED)


def shares_keys(model: Any) -> bool:
    """Tells whether rows of the model's decoder may share a prompt's keys in `attend_grouped`."""
    decoder = model.get_decoder()
    grouped = any(getattr(part, "num_key_value_groups", 1) > 1 for part in decoder.modules())
    return decoder.config._attn_implementation == GROUPED and not grouped
