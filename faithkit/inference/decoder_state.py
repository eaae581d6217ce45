"""The state of decoding: keys and values of the texts that a model is writing, one row for each text.

Rows begin together, or one by one in the place of finished ones. All rows end in the last column of the cache; a mask
hides the columns before a row's first token, and its positions count from there.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from faithkit.inference.kv_cache import SPARE_COLUMNS, GrowingCache


class CausalState:
    """The state of a causal model.

    Args:
        cache: Keys and values [B, heads, width, size] of every layer.
        lengths: Tokens of each row so far, including the prompt [B]; 0 for a finished row.
    """

    def __init__(self, cache: GrowingCache, lengths: Tensor):
        self.cache, self.lengths = cache, lengths

    @classmethod
    def read(cls, model: Any, ids: Sequence[NDArray[np.int32]], pad_id: int) -> tuple["CausalState", Tensor]:
        """Reads prompts of similar lengths in one pass; returns their state and the next tokens' logits [B, V]."""
        lengths = torch.tensor([len(row) for row in ids], device=model.device)
        cache, mask = GrowingCache(), _visible(lengths, int(lengths.max()))
        positions = (mask.long().cumsum(1) - 1).clamp_min(0)
        output = model(
            input_ids=_padded(ids, pad_id, model.device, align_right=True),
            attention_mask=_unless_all(mask),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return cls(cache, lengths), output.logits[:, -1]

    def read_after(self, model: Any, ids: Sequence[NDArray[np.int32]], pad_id: int) -> tuple["CausalState", Tensor]:
        """Reads texts of similar lengths as continuations of this single row in one pass; this state is unchanged.

        Returns:
            A state with a row for each continuation, and the next tokens' logits [texts, V].
        """
        tokens, done = _padded(ids, pad_id, model.device, align_right=True), self.cache.width
        lengths = torch.tensor([len(row) for row in ids], device=model.device)
        new = _visible(lengths, tokens.shape[1])
        cache = self.cache.repeated(len(ids), spare=tokens.shape[1] + SPARE_COLUMNS)
        output = model(
            input_ids=tokens,
            attention_mask=_unless_all(torch.cat([new.new_ones(len(ids), done), new], dim=1)),
            position_ids=done + (new.long().cumsum(1) - 1).clamp_min(0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache.close_gaps(done, tokens.shape[1] - lengths)
        return CausalState(cache, done + lengths), output.logits[:, -1]

    def step(self, model: Any, tokens: Tensor) -> Tensor:
        """Adds a token to each row [B]; returns the next tokens' logits [B, V]."""
        self.lengths += 1
        mask = _visible(self.lengths, self.cache.width + 1)
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

    def reorder(self, rows: Tensor) -> None:
        """Does the same as `select` for the same number of rows, each replaced by one with the same prompt."""
        self.cache.reorder(rows)

    def select(self, rows: Tensor) -> None:
        """Keeps these rows in this order; a row may occur several times."""
        self.cache.select(rows)
        self.lengths = self.lengths[rows]
        self._crop()

    def put(self, rows: Tensor, other: "CausalState") -> None:
        """Replaces rows by those of new texts."""
        self.cache.put(rows, other.cache, align_right=True)
        self.lengths[rows] = other.lengths
        self._crop()

    def _crop(self) -> None:
        self.cache.keep_last(int(self.lengths.max()))

    @classmethod
    def join(cls, states: Sequence["CausalState"]) -> "CausalState":
        """Concatenates the rows of states."""
        cache = GrowingCache.join([state.cache for state in states], align_right=True)
        return cls(cache, torch.cat([state.lengths for state in states]))


class Seq2SeqState:
    """The state of an encoder-decoder: the encoder's output, and the decoder's keys and values.

    Args:
        hidden: The encoder's output [B / copies, L, H].
        readable: Which of its positions are not padding [B / copies, L].
        written: The state of the decoder's self-attention, B rows.
        crossed: Keys and values of the cross-attention, B / copies rows, which never change.
        copies: Consecutive rows that share a prompt (beams), whose encoder output is stored once.
    """

    def __init__(self, hidden: Tensor, readable: Tensor, written: CausalState, crossed: GrowingCache, copies: int = 1):
        self.hidden, self.readable, self.written, self.crossed, self.copies = hidden, readable, written, crossed, copies

    @classmethod
    def read(
        cls, model: Any, ids: Sequence[NDArray[np.int32]], pad_id: int, prefix: Sequence[int]
    ) -> tuple["Seq2SeqState", Tensor]:
        """Encodes prompts of similar lengths and decodes the prefix; returns their state and the logits [B, V]."""
        lengths = torch.tensor([len(row) for row in ids], device=model.device)
        tokens = _padded(ids, pad_id, model.device, align_right=False)
        readable = torch.arange(tokens.shape[1], device=model.device) < lengths[:, None]
        hidden = model.get_encoder()(input_ids=tokens, attention_mask=_unless_all(readable)).last_hidden_state
        written = CausalState(GrowingCache(), torch.zeros_like(lengths))
        state = cls(hidden, readable, written, GrowingCache(spare=0))
        begin = torch.tensor([list(prefix)], device=model.device).expand(len(ids), -1)
        return state, state._forward(model, begin)

    def step(self, model: Any, tokens: Tensor) -> Tensor:
        """Adds a token to each row [B]; returns the next tokens' logits [B, V]."""
        return self._forward(model, tokens[:, None])

    def _forward(self, model: Any, tokens: Tensor) -> Tensor:
        written = self.written
        written.lengths += tokens.shape[1]
        mask = _visible(written.lengths, written.cache.width + tokens.shape[1])
        output = model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self.hidden),  # type: ignore[arg-type]
            attention_mask=_unless_all(self.readable),
            decoder_input_ids=tokens,
            decoder_attention_mask=_unless_all(mask),
            past_key_values=EncoderDecoderCache(written.cache, self.crossed),
            use_cache=True,
        )
        return output.logits[:, -1]

    def forget(self, rows: Tensor) -> None:
        """Marks rows as finished."""
        self.written.forget(rows)

    def reorder(self, rows: Tensor) -> None:
        """Does the same as `select` for the same number of rows, each replaced by one with the same prompt."""
        self.written.reorder(rows)

    def widen(self, copies: int) -> None:
        """Repeats each row `copies` times; the copies share the encoder output of their prompt."""
        self.written.select(torch.arange(len(self.hidden), device=self.hidden.device).repeat_interleave(copies))
        self.copies = copies

    def select(self, rows: Tensor) -> None:
        """Keeps these rows in this order; a row may occur several times. Copies of a prompt stay together."""
        self.written.select(rows)
        prompts = rows[:: self.copies] // self.copies
        self.crossed.select(prompts)
        self.hidden, self.readable = self.hidden[prompts], self.readable[prompts]

    def put(self, rows: Tensor, other: "Seq2SeqState") -> None:
        """Replaces rows by those of new texts."""
        assert self.copies == other.copies == 1, "copies of a prompt begin and end together"
        self.written.put(rows, other.written)
        self.crossed.put(rows, other.crossed, align_right=False)
        width = other.hidden.shape[1]
        self.hidden[rows, :width] = other.hidden
        self.readable[rows] = False
        self.readable[rows, :width] = other.readable

    @classmethod
    def join(cls, states: Sequence["Seq2SeqState"]) -> "Seq2SeqState":
        """Concatenates the rows of states."""
        assert len({state.copies for state in states}) == 1, "the same number of copies of each prompt"
        width = max(state.hidden.shape[1] for state in states)
        extra = [width - state.hidden.shape[1] for state in states]
        pad = torch.nn.functional.pad
        return cls(
            torch.cat([pad(state.hidden, (0, 0, 0, more)) for state, more in zip(states, extra, strict=True)]),
            torch.cat([pad(state.readable, (0, more)) for state, more in zip(states, extra, strict=True)]),
            CausalState.join([state.written for state in states]),
            GrowingCache.join([state.crossed for state in states], align_right=False),
            states[0].copies,
        )


State = CausalState | Seq2SeqState


def _padded(ids: Sequence[NDArray[np.int32]], fill: int, device: Any, *, align_right: bool) -> Tensor:
    width = max(len(row) for row in ids)
    padded = np.full((len(ids), width), fill, np.int64)
    for row, values in zip(padded, ids, strict=True):
        row[width - len(values) if align_right else 0 :][: len(values)] = values
    return torch.from_numpy(padded).to(device)


def _visible(lengths: Tensor, width: int) -> Tensor:
    """Marks the columns of each row, of which the last is the last column of all [B, width]."""
    return torch.arange(width, device=lengths.device) >= width - lengths[:, None]


def _unless_all(mask: Tensor) -> Tensor | None:
    """Returns None for a mask that hides nothing, so that attention takes its faster path."""
    return None if bool(mask.all()) else mask.long()
