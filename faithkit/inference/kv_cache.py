"""A key-value cache that grows in place, and attention that does not repeat shared keys.

transformers' cache copies all keys and values at every token, and its attention repeats them where several query heads
share a key head (grouped-query attention). In large batches both cost more than the model itself.
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

SPARE_COLUMNS = 64  # columns (tokens) allocated in advance
GROUPED = "faithkit_grouped"


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer [B, heads, width, size], stored with room to grow.

    Args:
        spare: Columns to allocate in addition to those in use.
    """

    keys: Any
    values: Any

    def __init__(self, spare: int = SPARE_COLUMNS) -> None:
        super().__init__()
        self.spare = spare
        self._stores: list[Tensor] = []
        self._start = self._end = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Appends columns and returns the keys and values of all columns."""
        count = key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if not self._stores or self._end + count > self._stores[0].shape[-2]:
            self._reallocate(count, key_states, value_states)
        for store, states in zip(self._stores, (key_states, value_states), strict=True):
            store[:, :, self._end : self._end + count] = states
        self._end += count
        return self._update_views()

    def _reallocate(self, count: int, *states: Tensor) -> None:
        """Moves the columns in use to larger stores."""
        width = self._end - self._start
        stores = []
        for number, new in enumerate(states):
            store = new.new_empty((*new.shape[:2], width + count + self.spare, new.shape[-1]))
            if width:
                store[:, :, :width] = self._stores[number][:, :, self._start : self._end]
            stores.append(store)
        self._stores, self._start, self._end = stores, 0, width

    def _update_views(self) -> tuple[Tensor, Tensor]:
        self.keys, self.values = (store[:, :, self._start : self._end] for store in self._stores)
        return self.keys, self.values

    def keep_last(self, width: int) -> None:
        """Drops all columns but the last ones."""
        self._start = self._end - width
        self._update_views()


class GrowingCache(Cache):
    """Keys and values of all layers; each row is a text.

    Args:
        spare: Columns to allocate in addition to those in use; 0 for keys that never grow (cross-attention).
    """

    layers: Any

    def __init__(self, spare: int = SPARE_COLUMNS) -> None:
        super().__init__(layer_class_to_replicate=partial(GrowingLayer, spare))  # type: ignore[arg-type]
        self.spare = spare

    @classmethod
    def of(cls, states: Sequence[tuple[Tensor, Tensor]], spare: int) -> "GrowingCache":
        """Builds a cache from the keys and values of each layer."""
        cache = cls(spare)
        for number, (keys, values) in enumerate(states):
            cache.update(keys, values, number)
        return cache

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.get_seq_length()

    def states(self) -> list[Tensor]:
        """Returns views of the keys and values of all layers; changes to them change the cache."""
        return [states for layer in self.layers for states in (layer.keys, layer.values)]

    def keep_last(self, width: int) -> None:
        """Drops all columns but the last ones."""
        for layer in self.layers:
            layer.keep_last(width)

    def select(self, rows: Tensor) -> None:
        """Keeps these rows in this order; a row may occur several times."""
        self.layers = self.of([(layer.keys[rows], layer.values[rows]) for layer in self.layers], self.spare).layers

    def reorder(self, rows: Tensor) -> None:
        """Does the same as `select` for the same number of rows, in place: only rows that move are copied."""
        moved = torch.nonzero(rows != torch.arange(len(rows), device=rows.device))[:, 0]
        for states in self.states() if len(moved) else ():
            states[moved] = states[rows[moved]]

    def repeated(self, count: int, *, spare: int) -> "GrowingCache":
        """Copies a single row to `count` rows of a new cache with `spare` additional columns."""
        shape = (count, -1, -1, -1)
        return self.of([(layer.keys.expand(shape), layer.values.expand(shape)) for layer in self.layers], spare)

    def close_gaps(self, width: int, gaps: Tensor) -> None:
        """Moves the first `width` columns of each row to the right by its gap, over unused columns."""
        for row, gap in enumerate(gaps.tolist()):
            for states in self.states() if gap else ():
                states[row, :, gap : gap + width] = states[row, :, :width].clone()

    def put(self, rows: Tensor, other: "GrowingCache", *, align_right: bool) -> None:
        """Overwrites rows with those of a cache that is not wider; the mask hides the remaining old columns."""
        begin = self.width - other.width if align_right else 0
        assert begin >= 0, "longer prompts come first"
        for states, new in zip(self.states(), other.states(), strict=True):
            states[rows, :, begin : begin + other.width] = new

    @classmethod
    def join(cls, caches: Sequence["GrowingCache"], *, align_right: bool) -> "GrowingCache":
        """Joins the rows of caches; narrower ones are padded with zeros, on the left if they align right."""
        width = max(cache.width for cache in caches)

        def widened(states: Tensor) -> Tensor:
            extra = width - states.shape[-2]
            return pad(states, (0, 0, extra, 0) if align_right else (0, 0, 0, extra)) if extra else states

        joined = [
            torch.cat([widened(part) for part in parts]) for parts in zip(*(c.states() for c in caches), strict=True)
        ]
        return cls.of(list(zip(joined[::2], joined[1::2], strict=True)), caches[0].spare)


def attend_grouped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Computes the attention of transformers' sdpa without repeating keys that query heads or rows share.

    With one query per row (decoding), the query heads of a key head become several queries of that head. With fewer
    rows of keys than of queries (beams of a prompt), the rows that share keys become several queries of them.
    """
    if len(key) < len(query):
        return _attend_shared(query, key, value, attention_mask, **kwargs), None
    groups = getattr(module, "num_key_value_groups", 1)
    is_shared = attention_mask is None or (attention_mask.shape[1] == 1 and attention_mask.dtype == torch.bool)
    if groups == 1 or query.shape[2] > 1 or not is_shared or kwargs.get("position_bias") is not None:
        attended, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return attended, None
    batch, heads, _, size = query.shape
    attended = scaled_dot_product_attention(
        query.reshape(batch, heads // groups, groups, size),  # [B, key heads, queries, size]
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
    assert query.shape[2] == 1, "rows that share keys have one query each"
    copies = len(query) // len(key)
    rows = query[:, :, 0].unflatten(0, (-1, copies)).transpose(1, 2)  # [prompts, heads, rows, size]
    if position_bias is not None:
        attention_mask = create_position_bias_mask(position_bias, attention_mask, is_causal=False, query=rows, key=key)
    attended = scaled_dot_product_attention(rows, key, value, attn_mask=attention_mask, scale=scaling)
    return attended.transpose(1, 2).flatten(0, 1)[:, None]


AttentionInterface.register(GROUPED, attend_grouped)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


def use_grouped_attention(model: Any) -> None:
    """Switches a model from sdpa attention to `attend_grouped`, which computes the same result."""
    for part in model.modules():  # T5's decoder has a configuration of its own
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation == "sdpa":
            part.set_attn_implementation(GROUPED)


def shares_keys(model: Any) -> bool:
    """Whether rows of the model's decoder may share a prompt's keys in `attend_grouped`."""
    decoder = model.get_decoder()
    is_grouped = any(getattr(part, "num_key_value_groups", 1) > 1 for part in decoder.modules())
    return decoder.config._attn_implementation == GROUPED and not is_grouped
