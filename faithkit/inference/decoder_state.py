"""What a model remembers of the texts that it is writing: one row a text, of any age side by side.

Rows begin together or one by one, in the place of those that ended. All end in the last column of the cache; a mask
hides what lies before a row's own beginning, and positions count from there.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from faithkit.inference.cache import GrowingCache


class CausalState:
    """Rows of a causal model.

    Args:
        lengths: Tokens of each row so far [B].
    """

    def __init__(self, cache: GrowingCache, lengths: Tensor):
        self.cache, self.lengths = cache, lengths

    @classmethod
    def read(cls, model: Any, ids: Sequence[NDArray[np.int32]], pad_id: int) -> tuple["CausalState", Tensor]:
        """Reads prompts of like lengths; gives what it remembers and the logits of the next tokens [B, V]."""
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

    def step(self, model: Any, tokens: Tensor) -> Tensor:
        """Adds a token to each row [B]; gives the logits of the next ones [B, V]."""
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
        """Marks rows as ended: they stay in the batch, seeing nothing, until others take their place."""
        self.lengths[rows] = 0

    def reorder(self, rows: Tensor) -> None:
        """As `select`, of as many rows, where each takes the place of one that reads the same prompt."""
        self.cache.reorder(rows)

    def select(self, rows: Tensor) -> None:
        """Keeps these rows, in this order; a row may come several times."""
        self.cache.select(rows)
        self.lengths = self.lengths[rows]
        self._crop()

    def put(self, rows: Tensor, other: "CausalState") -> None:
        """Has rows that began later take the place of others."""
        self.cache.put(rows, other.cache, align_right=True)
        self.lengths[rows] = other.lengths
        self._crop()

    def _crop(self) -> None:
        self.cache.keep_last(int(self.lengths.max()))

    @classmethod
    def join(cls, states: Sequence["CausalState"]) -> "CausalState":
        """All rows, one state behind the other."""
        cache = GrowingCache.join([state.cache for state in states], align_right=True)
        return cls(cache, torch.cat([state.lengths for state in states]))


class Seq2SeqState:
    """Rows of an encoder-decoder model: what the encoder made of the prompt, and the decoder's side.

    Args:
        hidden: The encoder's states [B / copies, L, H].
        readable: Which of them are no padding [B / copies, L].
        written: The decoder's self-attention.
        crossed: Keys and values of the encoder's states, which never change.
        copies: Rows in succession that read the same prompt: its states stand there once.
    """

    def __init__(self, hidden: Tensor, readable: Tensor, written: CausalState, crossed: GrowingCache, copies: int = 1):
        self.hidden, self.readable, self.written, self.crossed, self.copies = hidden, readable, written, crossed, copies

    @classmethod
    def read(
        cls, model: Any, ids: Sequence[NDArray[np.int32]], pad_id: int, prefix: Sequence[int]
    ) -> tuple["Seq2SeqState", Tensor]:
        """Reads prompts of like lengths and what every text begins with; gives also the next tokens' logits [B, V]."""
        lengths = torch.tensor([len(row) for row in ids], device=model.device)
        tokens = _padded(ids, pad_id, model.device, align_right=False)
        readable = torch.arange(tokens.shape[1], device=model.device) < lengths[:, None]
        hidden = model.get_encoder()(input_ids=tokens, attention_mask=_unless_all(readable)).last_hidden_state
        counted = torch.zeros_like(lengths)
        state = cls(hidden, readable, CausalState(GrowingCache(), counted), GrowingCache(spare=0))
        begin = torch.tensor([list(prefix)], device=model.device).expand(len(ids), -1)
        return state, state._forward(model, begin)

    def step(self, model: Any, tokens: Tensor) -> Tensor:
        """Adds a token to each row [B]; gives the logits of the next ones [B, V]."""
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
        """Marks rows as ended."""
        self.written.forget(rows)

    def reorder(self, rows: Tensor) -> None:
        """As `select`, of as many rows, where each takes the place of one that reads the same prompt."""
        self.written.reorder(rows)

    def widen(self, copies: int) -> None:
        """Has each row stand there several times in succession, and what the encoder made of its prompt once."""
        self.written.select(torch.arange(len(self.hidden), device=self.hidden.device).repeat_interleave(copies))
        self.copies = copies

    def select(self, rows: Tensor) -> None:
        """Keeps these rows, in this order; a row may come several times. Copies stay together."""
        self.written.select(rows)
        prompts = rows[:: self.copies] // self.copies
        self.crossed.select(prompts)
        self.hidden, self.readable = self.hidden[prompts], self.readable[prompts]

    def put(self, rows: Tensor, other: "Seq2SeqState") -> None:
        """Has rows that began later take the place of others."""
        assert self.copies == other.copies == 1, "copies of a prompt begin and end together"
        self.written.put(rows, other.written)
        self.crossed.put(rows, other.crossed, align_right=False)
        width = other.hidden.shape[1]
        self.hidden[rows, :width] = other.hidden
        self.readable[rows] = False
        self.readable[rows, :width] = other.readable

    @classmethod
    def join(cls, states: Sequence["Seq2SeqState"]) -> "Seq2SeqState":
        """All rows, one state behind the other."""
        assert len({state.copies for state in states}) == 1, "as many copies of each prompt"
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
    """Which columns belong to rows that end in the last one [B, width]."""
    return torch.arange(width, device=lengths.device) >= width - lengths[:, None]


def _unless_all(mask: Tensor) -> Tensor | None:
    return None if bool(mask.all()) else mask.long()
