"""Records to model inputs: what is cached, and what a batch is made of.

An `Encoder` belongs to a task; the cache and the DataModule know nothing of what it encodes. This file holds the
encoder of (knowledge, response) pairs; a new task adds its own beside it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.ragged import Ragged, constant_rows, join_rows, pad_rows
from data_modules.encoding.tokens import PairTemplate, Tokenizer, fingerprint_of, tokenize
from faithkit.errors import UserError
from faithkit.records import HALLUCINATED, LABELS, Example

ENCODING_VERSION = 3  # part of every cache key: raise it when the same records would encode differently
NO_LABEL = -1
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # of a batch, what an encoder takes
KNOWLEDGE, RESPONSE = 1, 2  # values of `segment`; 0 is special tokens and padding

# One entry a row in each; `length` orders the batches, and `second_length` those rows of them that are about as long.
Columns = dict[str, NDArray[Any] | Ragged]


class Encoder(Protocol):
    """Turns records into columns of numbers, and some rows of them into a batch.

    A method `fit(subsets)` is optional: it is shown the rows that train, encoded, before any batch is made.
    """

    def fingerprint(self) -> str: ...

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns: ...

    def collate(self, columns: Columns) -> Mapping[str, NDArray[Any]]: ...


@dataclass(frozen=True, kw_only=True)
class PairEncoder:
    """(knowledge, response) as a sentence pair.

    Only the knowledge is cut to fit; the response too where it alone exceeds half of `max_length`. Both are counted.

    Args:
        max_length: Tokens of a sequence, special tokens counted.
        order: `knowledge_response` or `response_knowledge`: which text stands first.
    """

    tokenizer: Tokenizer
    max_length: int
    order: str = "knowledge_response"
    template: PairTemplate = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "template", PairTemplate.of(self.tokenizer))
        if self.order not in ("knowledge_response", "response_knowledge"):
            raise UserError(f"model.order is {self.order!r}", hint="use knowledge_response or response_knowledge")
        if self.max_length < self.template.num_special + 8:
            raise UserError(f"model.max_length is {self.max_length}", hint="use at least 16")

    def fingerprint(self) -> str:
        return f"pair:{ENCODING_VERSION}:{self.max_length}:{self.order}:{fingerprint_of(self.tokenizer)}"

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Columns of the examples: input_ids, second_start, length, label, target (what training aims at)."""
        knowledge = tokenize(self.tokenizer, [example.knowledge for example in examples])
        response = tokenize(self.tokenizer, [example.response for example in examples])
        room = self.room(response.lengths)
        counts["truncated: knowledge"] += int((knowledge.lengths > room.knowledge).sum())
        counts["truncated: response"] += int((response.lengths > room.response).sum())
        rows, zeros = np.arange(len(examples)), np.zeros(len(examples), np.int64)
        ids, second_start = self.assemble(
            knowledge.slice_rows(rows, zeros, np.minimum(knowledge.lengths, room.knowledge)),
            response.slice_rows(rows, zeros, np.minimum(response.lengths, room.response)),
        )
        labels = [NO_LABEL if e.label is None else LABELS.index(e.label) for e in examples]
        return {
            "input_ids": ids,
            "second_start": second_start.astype(np.int32),
            "length": ids.lengths.astype(np.int32),
            "label": np.array(labels, np.int8),
            "target": np.array([target_of(example) for example in examples], np.float32),
        }

    def room(self, response_lengths: NDArray[np.int64]) -> "Room":
        """How many tokens of each text fit: the response first, up to half; the knowledge gets the rest."""
        available = self.max_length - self.template.num_special
        response = np.minimum(response_lengths, available // 2)
        return Room(available - response, response)

    def assemble(self, knowledge: Ragged, response: Ragged) -> tuple[Ragged, NDArray[np.int64]]:
        """Whole sequences, and where the second text begins in each."""
        count, template = len(knowledge), self.template
        first, second = (knowledge, response) if self.order == "knowledge_response" else (response, knowledge)
        ids = join_rows(
            [
                constant_rows(template.prefix, count),
                first,
                constant_rows(template.middle, count),
                second,
                constant_rows(template.suffix, count),
            ]
        )
        return ids, len(template.prefix) + first.lengths + len(template.middle)

    def collate(self, columns: Columns) -> dict[str, NDArray[Any]]:
        """Padded arrays of a batch, as wide as its longest row."""
        ids, second_start = columns["input_ids"], columns["second_start"]
        assert isinstance(ids, Ragged) and not isinstance(second_start, Ragged)
        place = np.arange(int(ids.lengths.max(initial=0)))[None, :]
        inside = place < ids.lengths[:, None]
        batch: dict[str, NDArray[Any]] = {
            "input_ids": pad_rows(ids, self.tokenizer.pad_token_id),
            "attention_mask": inside.astype(np.int64),
        }
        if self.template.typed:
            batch["token_type_ids"] = ((place >= second_start[:, None]) & inside).astype(np.int64)
        if "label" in columns:
            batch["label"] = np.asarray(columns["label"], np.int64)
            batch["target"] = np.asarray(columns["target"], np.float32)
            batch["segment"] = self._segment(place, ids.lengths[:, None], second_start[:, None])
        return batch

    def _segment(self, place: NDArray[Any], length: NDArray[Any], second_start: NDArray[Any]) -> NDArray[np.int8]:
        """Which text each place belongs to: KNOWLEDGE, RESPONSE or neither."""
        first = (place >= len(self.template.prefix)) & (place < second_start - len(self.template.middle))
        second = (place >= second_start) & (place < length - len(self.template.suffix))
        knowledge, response = (first, second) if self.order == "knowledge_response" else (second, first)
        return (knowledge * KNOWLEDGE + response * RESPONSE).astype(np.int8)


@dataclass(frozen=True, slots=True)
class Room:
    knowledge: NDArray[np.int64]
    response: NDArray[np.int64]


def target_of(example: Example) -> float:
    """What training aims at: `meta["probability"]` of a weak label, else 0 or 1 by the label, NaN without one."""
    probability = example.meta.get("probability")
    if probability is None:
        return math.nan if example.label is None else float(LABELS.index(example.label))
    assert 0 <= probability <= 1, f"{example.id}: probability {probability}"
    return float(probability)


def hallucinated_index() -> int:
    """The class whose probability is the score."""
    return LABELS.index(HALLUCINATED)
