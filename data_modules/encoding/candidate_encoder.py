"""Encodes turns with negative responses, for contrastive objectives (`generation.objectives.infonce`).

The candidates of a row are its gold response and its negatives. In a batch they follow one another, gold first,
so that a model reads their context once for all of them (`generation.objectives.infonce`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import (
    Columns,
    Encoder,
    Ints,
    Ragged,
    constant_rows,
    join_rows,
    offsets_of,
    pad_rows,
    stack_rows,
    steps_of,
)
from data_modules.encoding.sequence_layout import CAUSAL
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.records import Example

VERSION = 1  # part of every cache key: raise it when the same records would encode differently
CUT, NONE = "negative cut to its room", "rows without negatives"


@dataclass(frozen=True)
class CandidateEncoder(Encoder):
    """Adds the negatives of each row to what another encoder makes.

    Args:
        encoder: Makes the columns and batches of knowledge, history and response.
        turns: Knows their layout and tokens.
        num_negatives: Of a row, at most: the first of `Example.negatives`.
    """

    encoder: Encoder
    turns: TurnEncoder
    num_negatives: int

    def fingerprint(self) -> str:
        return f"{self.encoder.fingerprint()}:candidates:{VERSION}:{self.num_negatives}"

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Adds the columns `negative` (tokens of a row's negatives, each with its eos) and `negative_length`.

        A negative that has no room is cut: to `max_response_length`, or to what its context leaves of a sequence.
        """
        columns = dict(self.encoder.encode(examples, counts))
        context = columns["context"]
        assert isinstance(context, Ragged)
        texts = [example.negatives[: self.num_negatives] for example in examples]
        count = np.array([len(each) for each in texts], np.int64)  # negatives of each row
        ids = self.turns.text_ids([text for each in texts for text in each])

        layout = self.turns.layout
        room = np.full(len(examples), layout.max_response_length, np.int64)  # of a response after its context
        if layout.kind == CAUSAL:
            room = np.minimum(room, layout.max_length - context.lengths - len(layout.control))
        size = np.minimum(ids.lengths, np.repeat(room, count) - 1)  # the eos takes one place
        counts[CUT] += int((size < ids.lengths).sum())
        counts[NONE] += int((count == 0).sum())
        cut = ids.slice_rows(np.arange(len(ids)), np.zeros(len(ids), np.int64), size)
        ended = join_rows([cut, constant_rows([self.turns.tokenizer.eos_token_id], len(ids))])

        row_begin = offsets_of(count)
        columns["negative"] = negative = Ragged(ended.values, ended.offsets[row_begin])
        columns["negative_length"] = Ragged(ended.lengths.astype(np.int32), row_begin)
        for name in ("length", "second_length"):
            if name in columns:
                columns[name] = (np.asarray(columns[name]) + negative.lengths).astype(np.int32)
        return columns

    def collate(self, columns: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Adds arrays of the candidates to the other encoder's.

        Places are counted over the whole of the model's output, row by row.

        candidate_ids, candidate_places: tokens and their positions, counted anew in each candidate [rows, width];
            of causal models in one row with the contexts in front [1, tokens]
        candidate_row, candidate_length, candidate_last [candidates]: its row, its tokens, and the place of its last one
        candidate_first [rows]: the place before the responses, where the model has read the context alone
        candidate_target_at [tokens]: the places that predict the gold responses' tokens
        candidate_owner (seq2seq) [rows, width]: number of the token's candidate in its row, -1 for padding
        context_length (causal) [rows]
        """
        batch = dict(self.encoder.collate(dict(columns)))
        candidates, count = self._candidates(columns)
        row_begin = offsets_of(count)  # number of each row's first candidate [rows + 1]
        row_tokens = candidates.offsets[row_begin]  # where each row's candidates begin, counted in tokens [rows + 1]
        row = np.repeat(np.arange(len(count)), count)
        # `begin` is the place of each row's first candidate.
        if self.turns.layout.kind == CAUSAL:
            # Each row's context, then its candidates, whose positions go on from it: they branch off there.
            context = self.turns.whole_contexts(columns)
            branch = steps_of(candidates.lengths) + np.repeat(context.lengths[row], candidates.lengths)
            ids = join_rows([context, Ragged(candidates.values, row_tokens)])
            own_steps = Ragged(steps_of(context.lengths).astype(np.int32), context.offsets)
            places = join_rows([own_steps, Ragged(branch.astype(np.int32), row_tokens)])
            arrays = {
                "candidate_ids": ids.values[None].astype(np.int64),
                "candidate_places": places.values[None].astype(np.int64),
                "context_length": context.lengths,
            }
            begin = ids.offsets[:-1] + context.lengths
        else:
            step = steps_of(candidates.lengths).astype(np.int32)
            owner = np.repeat(steps_of(count), candidates.lengths).astype(np.int32)
            arrays = {
                "candidate_ids": pad_rows(Ragged(candidates.values, row_tokens), self.turns.tokenizer.pad_token_id),
                "candidate_places": pad_rows(Ragged(step, row_tokens), 0),
                "candidate_owner": pad_rows(Ragged(owner, row_tokens), -1),
            }
            begin = np.arange(len(count)) * arrays["candidate_ids"].shape[1]

        # A candidate is as far behind `begin` as in the row.
        start = begin[row] + candidates.offsets[:-1] - row_tokens[row]
        first = begin + len(self.turns.decoder_prefix) - 1  # the decoder's prefix, or the last token of the context
        response = columns["response"].lengths
        return batch | {
            **arrays,
            "candidate_row": row,
            "candidate_length": candidates.lengths,
            "candidate_last": start + candidates.lengths - 1,
            "candidate_first": first,
            "candidate_target_at": np.repeat(first, response) + steps_of(response),
        }

    def _candidates(self, columns: Mapping[str, Any]) -> tuple[Ragged, Ints]:
        """Returns the tokens of all candidates, row by row with the gold response first, and each row's number of them.

        Each keeps its eos, unlike a plain response: the state there represents the whole candidate.
        """
        gold, tokens, length = columns["response"], columns["negative"], columns["negative_length"]
        negatives = Ragged(tokens.values, offsets_of(length.values.astype(np.int64)))  # one a row, not all of a row
        count = length.lengths + 1
        row_begin = offsets_of(count)[:-1]

        # `both` holds all gold responses, then all negatives; `order` sorts them row by row.
        both = stack_rows([gold, negatives])
        order = np.empty(int(count.sum()), np.int64)
        is_negative = np.ones(len(order), bool)
        is_negative[row_begin] = False
        order[row_begin] = np.arange(len(gold))
        order[is_negative] = len(gold) + np.arange(len(negatives))
        ordered = both.take(order)
        return join_rows([constant_rows(self.turns.decoder_prefix, len(ordered)), ordered]), count
