"""Encodes (knowledge, response) pairs as model inputs, in windows over long knowledge."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import ENCODING_VERSION, NO_LABEL, Columns, Encoder, Ragged, steps_of
from data_modules.encoding.sequence_layout import KNOWLEDGE_FIRST, ORDERS
from data_modules.encoding.tokens import (
    OUTSIDE,
    PairTemplate,
    Tokenizer,
    fingerprint_of,
    tags_of,
    tokenize,
    tokenize_with_offsets,
    visible_extents,
)
from data_modules.encoding.window_choice import WindowChoice
from faithkit.baselines.word_features import WORD_EVIDENCE, unsupported_grams, word_evidence
from faithkit.errors import UserError
from faithkit.records import LABELS, Example
from faithkit.words import best_sentences

EVIDENCE = tuple(f"evidence: {name}" for name in WORD_EVIDENCE)  # names of columns
RUNS = "evidence: unknown runs of characters"  # the column of `unsupported_grams`
WHOLE = "whole knowledge"  # the column of its tokens where `knowledge` is cut to its best sentences
KNOWLEDGE, RESPONSE = 1, 2  # values of `segment`; 0 is special tokens and padding


@dataclass(frozen=True, kw_only=True)
class PairEncoder(Encoder):
    """(knowledge, response) as a sentence pair.

    The cache keeps both texts' tokens whole; they are cut to fit when a batch is made, so that training and every later
    reading of the same rows, through windows over long knowledge, take them from the same columns. Only the knowledge
    is cut to fit; the response too where it alone exceeds half of `max_length`. Training counts both.

    Args:
        max_length: Tokens of a sequence, special tokens counted.
        order: `knowledge_response` or `response_knowledge`: which text comes first.
        marked: Also says which response tokens lie in a marked span, for training.
        max_windows: Of longer knowledge, predictions read this many windows, made of the parts that share most tokens
            with the response (`data_modules.encoding.window_choice`). None reads all.
        max_knowledge_words: Longer knowledge is cut to the sentences that share most words with the response; None
            keeps all, which is read in windows.
        evidence: Adds the columns `EVIDENCE`, word statistics of each pair (`faithkit.baselines.word_features`).
        whole: Adds the column `RUNS` and, if `max_knowledge_words` is set, the column `WHOLE` (for
            `critic.token_support`).
    """

    tokenizer: Tokenizer
    max_length: int
    order: str = KNOWLEDGE_FIRST
    marked: bool = False
    max_windows: int | None = None
    max_knowledge_words: int | None = None
    evidence: bool = False
    whole: bool = False
    template: PairTemplate = field(init=False)
    choice: WindowChoice = field(init=False, repr=False, compare=False)
    # A sequence's five parts are prefix, first text, middle, second text and suffix. Shapes are (1, n), to be repeated.
    _special_ids: NDArray[np.int32] = field(init=False, repr=False, compare=False)  # of prefix, middle and suffix
    _part_sizes: NDArray[np.int64] = field(init=False, repr=False, compare=False)  # 0 for the texts
    _part_segments: NDArray[np.int8] = field(init=False, repr=False, compare=False)  # the value of `segment` in each
    _knowledge_part: int = field(init=False, repr=False, compare=False)  # 1 or 3

    def __post_init__(self) -> None:
        template = PairTemplate.of(self.tokenizer)
        special = (template.prefix, template.middle, template.suffix)
        place = 1 if self.order == KNOWLEDGE_FIRST else 3
        segments, sizes = np.zeros((1, 5), np.int8), np.zeros((1, 5), np.int64)
        segments[:, [place, 4 - place]] = KNOWLEDGE, RESPONSE
        sizes[:, ::2] = [len(part) for part in special]
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "choice", WindowChoice.of(self.tokenizer))
        object.__setattr__(self, "_special_ids", np.array([sum(special, ())], np.int32))
        object.__setattr__(self, "_part_sizes", sizes)
        object.__setattr__(self, "_part_segments", segments)
        object.__setattr__(self, "_knowledge_part", place)
        if self.order not in ORDERS:
            raise UserError(f"model.order is {self.order!r}", hint=f"use {' or '.join(ORDERS)}")
        if self.max_length < self.template.num_special + 8:
            raise UserError(f"model.max_length is {self.max_length}", hint="use at least 16")

    def fingerprint(self) -> str:
        kind = "marked pair texts" if self.marked else "pair texts"
        if self.max_knowledge_words is not None:
            kind += f" of {self.max_knowledge_words} words"
        if self.evidence:
            kind += " with evidence"
        if self.whole:
            kind += " and runs" + ("" if self.max_knowledge_words is None else " and whole knowledge")
        return f"{kind}:{ENCODING_VERSION}:{self.max_length}:{fingerprint_of(self.tokenizer)}"

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Returns columns of the examples: knowledge, response, length of the cut sequence, label, training target."""
        columns = self.encode_texts([e.knowledge for e in examples], [e.response for e in examples])
        knowledge, response = columns["knowledge"], columns["response"]
        assert isinstance(knowledge, Ragged)
        assert isinstance(response, Ragged)
        room, shown = self._room(response.lengths)
        counts["truncated: knowledge"] += int((knowledge.lengths > room).sum())
        counts["truncated: response"] += int((response.lengths > shown).sum())
        length = self.template.num_special + np.minimum(knowledge.lengths, room) + shown
        labels = [NO_LABEL if e.label is None else LABELS.index(e.label) for e in examples]
        columns["length"] = length.astype(np.int32)
        columns["label"] = np.array(labels, np.int8)
        columns["target"] = np.array([target_of(example) for example in examples], np.float32)
        if self.marked:
            # For each response token 1 in a marked span, 0 outside, -1 if spans were not annotated.
            marks = Ragged(np.full_like(response.values, -1), response.offsets)
            annotated = [(row, example) for row, example in enumerate(examples) if example.spans is not None]
            _, offsets = tokenize_with_offsets(self.tokenizer, [example.response for _, example in annotated])
            for (row, example), places in zip(annotated, offsets, strict=True):
                start, end = visible_extents(example.response, places)
                marks.row(row)[:] = tags_of(example.spans or (), start, end, len(example.response)) > OUTSIDE
            columns["mark"] = marks
        return columns

    def encode_texts(self, knowledge: Sequence[str], response: Sequence[str]) -> Columns:
        """Returns the columns that prediction needs."""
        columns: Columns = {}
        if self.evidence:
            columns |= zip(EVIDENCE, word_evidence(knowledge, response).T, strict=True)
        if self.whole:
            runs = [unsupported_grams(*pair) for pair in zip(knowledge, response, strict=True)]
            columns[RUNS] = np.array(runs, np.float64)
        if (limit := self.max_knowledge_words) is not None:
            if self.whole:
                columns[WHOLE] = tokenize(self.tokenizer, knowledge)
            knowledge = [best_sentences(*pair, limit) for pair in zip(knowledge, response, strict=True)]
        texts = {"knowledge": tokenize(self.tokenizer, knowledge), "response": tokenize(self.tokenizer, response)}
        return texts | columns

    def _room(self, response_lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns how many tokens of knowledge and of response fit: the response first, up to half a sequence."""
        available = self.max_length - self.template.num_special
        response = np.minimum(response_lengths, available // 2)
        return available - response, response

    def windows(self, columns: Mapping[str, Any]) -> "Windows":
        """Returns the windows that read the knowledge of each row, row by row; neighbours overlap by half."""
        return self._windows(columns, self.max_windows)

    def _windows(self, columns: Mapping[str, Any], most: int | None) -> "Windows":
        knowledge = columns["knowledge"].lengths
        room, response = self._room(columns["response"].lengths)
        step = np.maximum(1, room // 2)
        rest = np.maximum(0, knowledge - room)  # tokens behind a row's first window [rows]
        count = 1 + -(-rest // step)
        row = np.repeat(np.arange(len(count)), count)
        start = np.minimum(steps_of(count) * step[row], rest[row])  # the last window ends with the text
        found = Windows(row, start, np.minimum(knowledge, room)[row], response[row], self.template)
        if most is None or not (count > most).any():
            return found
        responses, rows = columns["response"].cut(response), np.arange(len(count))
        extents = start, found.size
        kept, shown = self.choice.choose(responses, columns["knowledge"], rows, count, *extents, most)
        return replace(found.take(kept), size=shown.lengths, shown=shown)

    def collate(self, columns: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Returns padded arrays of a batch: one window of each row's knowledge, and what training needs.

        The window of long knowledge is its beginning, or with `max_windows` made of what shares most with the response.
        `segment` [rows, width] says which text each place belongs to: KNOWLEDGE, RESPONSE, or 0 for neither.
        """
        room, shown = self._room(columns["response"].lengths)
        knowledge, response = columns["knowledge"].cut(room), columns["response"].cut(shown)
        if self.max_windows is not None:
            knowledge = self._windows(columns, 1).read(columns["knowledge"])
        batch = self._pad(knowledge, response)
        batch["label"] = np.asarray(columns["label"], np.int64)
        batch["target"] = np.asarray(columns["target"], np.float32)
        if "mark" in columns:
            batch["mark"] = np.full(batch["segment"].shape, -1, np.int8)
            batch["mark"][batch["segment"] == RESPONSE] = columns["mark"].cut(shown).values
        return batch

    def collate_windows(self, columns: Mapping[str, Any], windows: "Windows") -> dict[str, NDArray[Any]]:
        """Returns padded arrays of some windows [windows, width], as wide as the longest: what a model reads."""
        response = columns["response"].slice_rows(windows.row, 0 * windows.row, windows.response_size)
        batch = self._pad(windows.read(columns["knowledge"]), response)
        del batch["segment"]
        return batch

    def _pad(self, knowledge: Ragged, response: Ragged) -> dict[str, NDArray[Any]]:
        """Puts special tokens around the texts, and pads the sequences to [rows, width]."""
        count = len(knowledge)
        sizes = self._part_sizes.repeat(count, axis=0)
        sizes[:, self._knowledge_part], sizes[:, 4 - self._knowledge_part] = knowledge.lengths, response.lengths
        # All sequences one behind the other [tokens]. A mask is filled from left to right, and row by row.
        segment = self._part_segments.repeat(count, axis=0).ravel().repeat(sizes.ravel())
        ids = np.empty(len(segment), np.int32)
        ids[segment == KNOWLEDGE], ids[segment == RESPONSE] = knowledge.values, response.values
        ids[segment == 0] = self._special_ids.repeat(count, axis=0).ravel()
        length = sizes.sum(1)[:, None]
        place = np.arange(int(length.max(initial=0)))
        inside = place < length
        batch: dict[str, NDArray[Any]] = {
            "input_ids": np.full(inside.shape, self.tokenizer.pad_token_id, np.int64),
            "attention_mask": inside.astype(np.int64),
            "segment": np.zeros(inside.shape, np.int8),
        }
        batch["input_ids"][inside], batch["segment"][inside] = ids, segment
        if self.template.typed:  # 1 from the second text to the end
            batch["token_type_ids"] = ((place >= sizes[:, :3].sum(1)[:, None]) & inside).astype(np.int64)
        return batch


@dataclass(frozen=True, slots=True)
class Windows:
    """For each window its row, which stretch of the row's knowledge it shows, and how much of the response.

    Args:
        row: Row of the columns [windows].
        start: First token of the knowledge [windows].
        size: Tokens of the knowledge [windows].
        response_size: Tokens of the response, from its beginning [windows].
        template: The special tokens around them.
        shown: Tokens of the knowledge [windows], if windows are not stretches of it.
    """

    row: NDArray[np.int64]
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    response_size: NDArray[np.int64]
    template: PairTemplate
    shown: Ragged | None = None

    def __len__(self) -> int:
        return len(self.row)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each window, special tokens counted."""
        return self.template.num_special + self.size + self.response_size

    def read(self, knowledge: Ragged) -> Ragged:
        """Returns the tokens of the knowledge [windows]."""
        return knowledge.slice_rows(self.row, self.start, self.size) if self.shown is None else self.shown

    def take(self, chosen: NDArray[np.int64]) -> "Windows":
        """Returns the named windows, in that order."""
        row, start, size, response_size = self.row, self.start, self.size, self.response_size
        shown = None if self.shown is None else self.shown.take(chosen)
        return Windows(row[chosen], start[chosen], size[chosen], response_size[chosen], self.template, shown)


def target_of(example: Example) -> float:
    """Returns the training target: `meta["probability"]` of a weak label, else 0 or 1 by the label, NaN without one."""
    probability = example.meta.get("probability")
    if probability is None:
        return math.nan if example.label is None else float(LABELS.index(example.label))
    assert 0 <= probability <= 1, f"{example.id}: probability {probability}"
    return float(probability)
