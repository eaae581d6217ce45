"""Keeps the state of decoding: keys and values of the texts that a model is writing, one row for each text.

Rows begin together, or one by one in the place of finished ones. All rows end in the last column of the cache; a mask
hides the columns before a row's first token, and its positions count from there.

The cache grows in place, and attention does not repeat shared keys. transformers' cache copies all keys and values at
every token, and its attention repeats them where several query heads share a key head (grouped-query attention). In
large batches both cost more than the model itself.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutput

from faithkit.fast.batch_planning import pad_rows

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
            width, stores = self._end - self._start, []  # the columns in use move to larger stores
            for number, new in enumerate((key_states, value_states)):
                store = new.new_empty((*new.shape[:2], width + count + self.spare, new.shape[-1]))
                if width:
                    store[:, :, :width] = self._stores[number][:, :, self._start : self._end]
                stores.append(store)
            self._stores, self._start, self._end = stores, 0, width
        for store, states in zip(self._stores, (key_states, value_states), strict=True):
            store[:, :, self._end : self._end + count] = states
        self._end += count
        return self._update_views()

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

    def select(self, rows: Tensor) -> None:
        """Keeps these rows in this order; a row may occur several times."""
        self.layers = self.of([(layer.keys[rows], layer.values[rows]) for layer in self.layers], self.spare).layers

    def put(self, rows: Tensor, other: "GrowingCache") -> None:
        """Overwrites rows with those of a cache that is not wider; the mask hides the remaining old columns."""
        begin = self.width - other.width
        assert begin >= 0, "longer prompts come first"
        for states, new in zip(self.states(), other.states(), strict=True):
            states[rows, :, begin:] = new

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
    """Computes the attention of transformers' sdpa without repeating keys that query heads share.

    With one query per row (decoding), the query heads of a key head become several queries of that head.
    """
    if (packed := kwargs.get("packed_pass")) is not None:
        return packed.attend(query, key, value, kwargs.get("scaling")), None
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


AttentionInterface.register(GROUPED, attend_grouped)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


class CausalState:
    """The state of a causal model.

    Args:
        cache: Keys and values [B, heads, width, size] of every layer.
        lengths: Tokens of each row so far, including the prompt [B]; 0 for a finished row.

    Attributes:
        can_refill: New texts can take the rows of finished ones.
        can_share: Texts can continue a prefix that is read once.
        can_join: The rows of several states can become one.
    """

    can_refill = can_share = can_join = True

    def __init__(self, cache: GrowingCache, lengths: Tensor):
        self.cache, self.lengths = cache, lengths

    @classmethod
    def read(
        cls,
        model: Any,
        ids: Sequence[NDArray[np.int32]],
        pad_id: int,
        decoder_prefix: Sequence[int],
        prefix: "CausalState | None" = None,
    ) -> tuple["CausalState", Tensor]:
        """Reads prompts of similar lengths in one pass.

        Args:
            decoder_prefix: Tokens that every text of an encoder-decoder begins with.
            prefix: A single row, which stays unchanged: the prompts continue it.

        Returns:
            A state with a row for each prompt, and the next tokens' logits [prompts, V].
        """
        tokens, new = pad_rows(ids, model.device)
        lengths, done, cache = new.sum(1), prefix.cache.width if prefix else 0, GrowingCache()
        if prefix is not None:
            shape, spare = (len(ids), -1, -1, -1), tokens.shape[1] + SPARE_COLUMNS
            copies = [(layer.keys.expand(shape), layer.values.expand(shape)) for layer in prefix.cache.layers]
            cache = GrowingCache.of(copies, spare)
        output = model(
            input_ids=tokens,
            attention_mask=_unless_all(torch.cat([new.new_ones(len(ids), done), new], dim=1)),
            position_ids=done + (new.long().cumsum(1) - 1).clamp_min(0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        if prefix is not None:  # close the gaps between the prefix and shorter texts
            for row, gap in enumerate((tokens.shape[1] - lengths).tolist()):
                for states in cache.states() if gap else ():
                    states[row, :, gap : gap + done] = states[row, :, :done].clone()
        return cls(cache, done + lengths), output.logits[:, -1]

    def step(self, model: Any, tokens: Tensor) -> Tensor:
        """Adds a token to each row [B]; returns the next tokens' logits [B, V]."""
        self.lengths += 1
        mask = visible_columns(self.lengths, self.cache.width + 1)
        output = model(
            input_ids=tokens[:, None],
            attention_mask=_unless_all(mask),
            position_ids=self.lengths[:, None] - 1,
            past_key_values=self.cache,
            use_cache=True,
        )
        return output.logits[:, -1]

    def forget(self, rows: Tensor) -> None:
        """Marks rows as finished: they stay in the batch, attending to nothing, until new texts replace them."""
        self.lengths[rows] = 0

    def select(self, rows: Tensor) -> None:
        """Keeps these rows in this order; a row may occur several times."""
        self.cache.select(rows)
        self.lengths = self.lengths[rows]
        self._crop()

    def put(self, rows: Tensor, other: "CausalState") -> None:
        """Replaces rows by those of new texts."""
        self.cache.put(rows, other.cache)
        self.lengths[rows] = other.lengths
        self._crop()

    def _crop(self) -> None:
        width = int(self.lengths.max())
        for layer in self.cache.layers:
            layer.keep_last(width)

    @classmethod
    def join(cls, states: Sequence["CausalState"]) -> "CausalState":
        """Concatenates the rows of states."""
        cache = GrowingCache.join([state.cache for state in states], align_right=True)
        return cls(cache, torch.cat([state.lengths for state in states]))


class Seq2SeqState(CausalState):
    """The state of an encoder-decoder: that of the decoder's self-attention, and the encoder's output.

    Args:
        hidden: The encoder's output [B, L, H].
        readable: Which of its positions are not padding [B, L].
        crossed: Keys and values of the cross-attention, B rows, which never change.
    """

    # A decoder that counts its positions by the columns of the cache cannot begin rows one by one.
    can_refill = can_share = False

    def __init__(
        self,
        cache: GrowingCache,
        lengths: Tensor,
        hidden: Tensor,
        readable: Tensor,
        crossed: GrowingCache,
    ):
        super().__init__(cache, lengths)
        self.hidden, self.readable, self.crossed = hidden, readable, crossed

    @classmethod
    def read(
        cls,
        model: Any,
        ids: Sequence[NDArray[np.int32]],
        pad_id: int,
        decoder_prefix: Sequence[int],
        prefix: CausalState | None = None,
    ) -> tuple["Seq2SeqState", Tensor]:
        """Encodes prompts of similar lengths, and decodes `decoder_prefix`; there is no shared prefix."""
        hidden, readable = encode_prompts(model, ids, pad_id)
        lengths = torch.zeros(len(ids), dtype=torch.long, device=model.device)
        state = cls(GrowingCache(), lengths, hidden, readable, GrowingCache(spare=0))
        begin = torch.tensor([list(decoder_prefix)], device=model.device).expand(len(ids), -1)
        return state, state._forward(model, begin)

    def step(self, model: Any, tokens: Tensor) -> Tensor:
        """Adds a token to each row [B]; returns the next tokens' logits [B, V]."""
        return self._forward(model, tokens[:, None])

    def _forward(self, model: Any, tokens: Tensor) -> Tensor:
        self.lengths += tokens.shape[1]
        mask = visible_columns(self.lengths, self.cache.width + tokens.shape[1])
        output = model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self.hidden),  # type: ignore[arg-type]
            attention_mask=_unless_all(self.readable),
            decoder_input_ids=tokens,
            decoder_attention_mask=_unless_all(mask),
            past_key_values=EncoderDecoderCache(self.cache, self.crossed),
            use_cache=True,
        )
        return output.logits[:, -1]

    def select(self, rows: Tensor) -> None:
        """Keeps these rows in this order; a row may occur several times."""
        super().select(rows)
        self.crossed.select(rows)
        self.hidden, self.readable = self.hidden[rows], self.readable[rows]

    @classmethod
    def join(cls, states: Sequence[Any]) -> "Seq2SeqState":
        """Concatenates the rows of states."""
        width = max(state.hidden.shape[1] for state in states)
        extra = [width - state.hidden.shape[1] for state in states]
        rows = CausalState.join(states)
        return cls(
            rows.cache,
            rows.lengths,
            torch.cat([pad(state.hidden, (0, 0, 0, more)) for state, more in zip(states, extra, strict=True)]),
            torch.cat([pad(state.readable, (0, more)) for state, more in zip(states, extra, strict=True)]),
            GrowingCache.join([state.crossed for state in states], align_right=False),
        )


class PlainState:
    """The state as transformers keeps it, with padded prompts, its cache and its attention; all rows begin together.

    It has the interface of `CausalState`, and takes any model.

    Args:
        model_inputs: What the model reads again at every token: the mask of all columns, or of an encoder-decoder the
            encoder's output and its mask.
    """

    can_refill = can_share = can_join = False

    def __init__(self, model_inputs: dict[str, Any]):
        self.model_inputs, self.cache = model_inputs, None

    @classmethod
    def read(
        cls,
        model: Any,
        ids: Sequence[NDArray[np.int32]],
        pad_id: int,
        decoder_prefix: Sequence[int],
        prefix: None = None,
    ) -> tuple["PlainState", Tensor]:
        """Reads prompts, and decodes the beginning of every text; returns their state and the logits [B, V]."""
        tokens, mask = pad_rows(ids, model.device, pad_id if decoder_prefix else None)
        if not decoder_prefix:
            state = cls({"attention_mask": mask.long()})
            return state, state._run(model, input_ids=tokens)
        hidden = model.get_encoder()(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        state = cls({"encoder_outputs": BaseModelOutput(last_hidden_state=hidden), "attention_mask": mask.long()})
        begin = torch.tensor([list(decoder_prefix)], device=model.device).expand(len(ids), -1)
        return state, state._run(model, decoder_input_ids=begin)

    def _run(self, model: Any, **tokens: Tensor) -> Tensor:
        mask = self.model_inputs["attention_mask"]
        if "input_ids" in tokens:  # rows are padded on the left
            places = (mask.cumsum(1) - 1).clamp_min(0)
            tokens["position_ids"] = places[:, -tokens["input_ids"].shape[1] :]
        output = model(**self.model_inputs, **tokens, past_key_values=self.cache, use_cache=True)
        self.cache = output.past_key_values
        return output.logits[:, -1]

    def step(self, model: Any, tokens: Tensor) -> Tensor:
        """Adds a token to each row [B]; returns the next tokens' logits [B, V]."""
        if model.config.is_encoder_decoder:
            return self._run(model, decoder_input_ids=tokens[:, None])
        mask = self.model_inputs["attention_mask"]
        self.model_inputs["attention_mask"] = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        return self._run(model, input_ids=tokens[:, None])

    def forget(self, rows: Tensor) -> None:
        """Finished rows stay in the batch until `select` drops them."""

    def select(self, rows: Tensor) -> None:
        """Keeps these rows in this order; a row may occur several times."""
        inputs = self.model_inputs
        inputs["attention_mask"] = inputs["attention_mask"][rows]
        if "encoder_outputs" in inputs:
            inputs["encoder_outputs"] = BaseModelOutput(last_hidden_state=inputs["encoder_outputs"][0][rows])
        assert self.cache is not None
        self.cache.batch_select_indices(rows)


def encode_prompts(model: Any, ids: Sequence[NDArray[np.int32]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Encodes prompts; returns the encoder's output [B, L, H], and which of its positions are not padding [B, L]."""
    tokens, readable = pad_rows(ids, model.device, pad_id)
    return model.get_encoder()(input_ids=tokens, attention_mask=_unless_all(readable)).last_hidden_state, readable


def visible_columns(lengths: Tensor, width: int) -> Tensor:
    """Marks the columns of each row, of which the last is the last column of all [B, width]."""
    return torch.arange(width, device=lengths.device) >= width - lengths[:, None]


def _unless_all(mask: Tensor) -> Tensor | None:
    """Returns None for a mask that hides nothing, so that attention takes its faster path."""
    return None if bool(mask.all()) else mask.long()
