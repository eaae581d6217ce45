"""Responses beside those that were not to be given: what a contrastive objective learns from.

Gold response and negatives of a row are candidates. They stand one behind the other, gold first, so that their context
is read once for all of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.pairs import Columns, Encoder
from data_modules.encoding.ragged import Ragged, constant_rows, join_rows, offsets_of, pad_rows, stack_rows, steps_of
from data_modules.encoding.turn_layout import CAUSAL
from data_modules.encoding.turns import TurnEncoder
from faithkit.records import Example

VERSION = 1  # part of every cache key: raise it when the same records would encode differently
CUT, NONE = "negative cut to its room", "rows without negatives"


@dataclass(frozen=True)
class CandidateEncoder:
    """What another encoder makes of turns, and the negatives of each.

    Args:
        encoder: Makes columns and batches of knowledge, history and response.
        turns: What lays these out.
        num_negatives: Of a row at most: the first of `Example.negatives`.
    """

    encoder: Encoder
    turns: TurnEncoder
    num_negatives: int

    def fingerprint(self) -> str:
        return f"{self.encoder.fingerprint()}:candidates:{VERSION}:{self.num_negatives}"

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Further columns: `negative` (the tokens of all negatives, each with its eos) and `negative_length`.

        A negative that has no room is cut: to `max_response_length`, or to what its context leaves of a sequence.
        """
        columns = dict(self.encoder.encode(examples, counts))
        context = columns["context"]
        assert isinstance(context, Ragged)
        texts = [example.negatives[: self.num_negatives] for example in examples]
        num = np.array([len(own) for own in texts], np.int64)
        ids = self.turns.text_ids([text for own in texts for text in own])
        size = np.minimum(ids.lengths, np.repeat(self._room(context.lengths), num) - 1)
        counts[CUT] += int((size < ids.lengths).sum())
        counts[NONE] += int((num == 0).sum())
        every = np.arange(len(ids))
        cut = ids.slice_rows(every, np.zeros(len(ids), np.int64), size)
        ended = join_rows([cut, constant_rows([self.turns.tokenizer.eos_token_id], len(ids))])
        offsets = offsets_of(num)
        columns["negative"] = negative = Ragged(ended.values, ended.offsets[offsets])
        columns["negative_length"] = Ragged(ended.lengths.astype(np.int32), offsets)
        for name in ("length", "second_length"):
            if name in columns:
                columns[name] = (np.asarray(columns[name]) + negative.lengths).astype(np.int32)
        return columns

    def _room(self, context: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens that a response may have beside each context."""
        layout = self.turns.layout
        left = layout.max_length - context - len(layout.control)
        own = np.full(len(context), layout.max_response_length, np.int64)
        return np.minimum(own, left) if layout.kind == CAUSAL else own

    def collate(self, columns: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The other encoder's arrays, and for the rows' candidates:

        candidate_ids, candidate_places: tokens and their positions, counted anew in each candidate [rows, width];
            of causal models with the contexts in front [1, tokens]
        candidate_row, candidate_length, candidate_last [candidates]: whose it is, and where in the model's output the
            state at its end stands
        candidate_first [rows]: where the state stands that nothing of a response is known to yet
        candidate_target_at [tokens]: where the targets are predicted
        candidate_owner (seq2seq) [rows, width]: which candidate of its row a token is of, -1 for padding
        context_length (causal) [rows]
        """
        batch = dict(self.encoder.collate(dict(columns)))
        candidates, num = self._candidates(columns)
        row, rows, of_row = np.repeat(np.arange(len(num)), num), np.arange(len(num)), offsets_of(num)
        behind = candidates.offsets[of_row]  # where a row's candidates begin and end
        step = steps_of(candidates.lengths).astype(np.int32)
        if self.turns.layout.kind == CAUSAL:
            context = self.turns.whole_contexts(columns)
            joined = join_rows([context, Ragged(candidates.values, behind)])
            begin = joined.offsets[:-1] + context.lengths
            step += np.repeat(context.lengths[row], candidates.lengths).astype(np.int32)
            places = join_rows(
                [Ragged(steps_of(context.lengths).astype(np.int32), context.offsets), Ragged(step, behind)]
            )
            batch |= {"candidate_ids": joined.values[None].astype(np.int64)}
            batch |= {"candidate_places": places.values[None].astype(np.int64), "context_length": context.lengths}
        else:
            owner = Ragged(np.repeat(steps_of(num), candidates.lengths).astype(np.int32), behind)
            batch["candidate_ids"] = pad_rows(Ragged(candidates.values, behind), self.turns.tokenizer.pad_token_id)
            batch["candidate_places"], batch["candidate_owner"] = pad_rows(Ragged(step, behind), 0), pad_rows(owner, -1)
            begin = rows * batch["candidate_ids"].shape[1]
        start = begin[row] + candidates.offsets[:-1] - behind[row]
        first = begin + len(self.turns.decoder_prefix) - 1
        response = columns["response"].lengths
        return batch | {
            "candidate_row": row,
            "candidate_length": candidates.lengths,
            "candidate_last": start + candidates.lengths - 1,
            "candidate_first": first,
            "candidate_target_at": np.repeat(first, response) + steps_of(response),
        }

    def _candidates(self, columns: Mapping[str, Any]) -> tuple[Ragged, NDArray[np.int64]]:
        """What is read of all candidates, row by row, and how many each row has."""
        gold, tokens, length = columns["response"], columns["negative"], columns["negative_length"]
        num = length.lengths + 1
        negatives = Ragged(tokens.values, offsets_of(length.values.astype(np.int64)))
        first = offsets_of(num)[:-1]
        order = np.empty(int(num.sum()), np.int64)
        others = np.ones(len(order), bool)
        others[first] = False
        order[first], order[others] = np.arange(len(gold)), len(gold) + np.arange(len(negatives))
        every = stack_rows([gold, negatives]).take(order)
        return join_rows([constant_rows(self.turns.decoder_prefix, len(every)), every]), num
