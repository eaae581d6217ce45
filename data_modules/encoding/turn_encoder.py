"""Encodes dialogue turns for generators: a context (knowledge and history) and a response.

The cache keeps context and response apart; a batch joins them. Where the layout has control groups, a batch also needs
the column `control` (Ragged, the ids of each row's control tokens), which `generation.task` adds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import (
    ENCODING_VERSION,
    Columns,
    Encoder,
    Ints,
    Ragged,
    causal_batch,
    constant_rows,
    join_rows,
    offsets_of,
    pad_rows,
    padded_inputs,
    read_part,
    steps_of,
    targets_of,
)
from data_modules.encoding.sequence_layout import (
    CAUSAL,
    CONTROL_TOKENS,
    KNOWLEDGE,
    SEEKER,
    SEQ2SEQ,
    WIZARD,
    TurnLayout,
    bos_of,
)
from data_modules.encoding.tokens import Tokenizer, fingerprint_of, tokenize
from data_modules.reading.fields import WIZARD as WIZARD_SPEAKER
from faithkit.errors import UserError, shorten
from faithkit.inference.messages import literal_text, without_special
from faithkit.records import Example, Turn

LONGER = "response longer than max_response_length"


@dataclass(frozen=True)
class TurnEncoder(Encoder):
    """Encodes knowledge, history and response as `data_modules.encoding.sequence_layout` lays them out.

    History is cut to fit, never knowledge or response.

    Args:
        tokenizer: With the markers in it (`add_markers`).
        packed: Causal sequences one behind the other without padding (`faithkit.fast.Packing`), instead of padded.
        limit: The setting that is named in the error of an example that does not fit `layout.max_length`.
    """

    tokenizer: Tokenizer
    layout: TurnLayout
    packed: bool = True
    limit: str = "model.max_length"
    ids: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        groups = [CONTROL_TOKENS[group] for group in self.layout.control]
        tokens = [bos_of(self.tokenizer), KNOWLEDGE, SEEKER, WIZARD, *(token for group in groups for token in group)]
        object.__setattr__(self, "ids", dict(zip(tokens, self.tokenizer.convert_tokens_to_ids(tokens), strict=True)))
        assert all(token in self.tokenizer.get_vocab() for token in tokens), "the tokenizer lacks markers: add_markers"

    @property
    def is_packed(self) -> bool:
        return self.packed and self.layout.kind == CAUSAL

    @property
    def decoder_prefix(self) -> tuple[int, ...]:
        """The tokens that a decoder starts with."""
        return (self.ids[WIZARD],) if self.layout.kind == SEQ2SEQ else ()

    def fingerprint(self) -> str:
        layout = self.layout
        numbers = f"{layout.max_length}:{layout.max_response_length}:{layout.max_history}:{len(layout.control)}"
        return f"turns:{ENCODING_VERSION}:{layout.kind}:{numbers}:{fingerprint_of(self.tokenizer)}"

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Makes the columns context, response (with its eos), length (tokens that a training step reads) and, for
        seq2seq, second_length (those of the decoder).
        """
        knowledge, turns, response = self._tokens(examples, [example.response for example in examples])
        response = join_rows([response, constant_rows([self.tokenizer.eos_token_id], len(examples))])
        context = self._contexts(examples, knowledge, turns, response.lengths, counts)
        counts[LONGER] += int((response.lengths > self.layout.max_response_length).sum())
        lengths = context.lengths + response.lengths + len(self.layout.control)
        columns: Columns = {"context": context, "response": response, "length": lengths.astype(np.int32)}
        if self.layout.kind == SEQ2SEQ:
            columns["second_length"] = response.lengths.astype(np.int32)
        return columns

    def contexts(
        self, examples: Sequence[Example], counts: Counter[str], control: Sequence[Sequence[str]] = ()
    ) -> Ragged:
        """Encodes what the model reads before it answers: the encoder's input, or all up to the wizard's marker.

        Args:
            control: For each example its control tokens, one of each group of the layout.
        """
        knowledge, turns, _ = self._tokens(examples, [])
        context = self._contexts(examples, knowledge, turns, np.zeros(len(examples), np.int64), counts)
        if not self.layout.control:
            if any(control):
                raise UserError("this model was trained without control tokens", hint="train it with control=ctrl")
            return context
        return join_rows([self.control_ids(control), context])

    def control_ids(self, control: Sequence[Sequence[str]]) -> Ragged:
        """Looks up the ids of each row's control tokens.

        Raises:
            UserError: A row has not exactly one token of each group.
        """
        groups = [CONTROL_TOKENS[group] for group in self.layout.control]
        for tokens in control:
            if len(tokens) != len(groups) or any(t not in group for t, group in zip(tokens, groups, strict=True)):
                hint = "; ".join(f"{name}: one of {', '.join(CONTROL_TOKENS[name])}" for name in self.layout.control)
                raise UserError(f"control tokens {shorten(list(tokens))}", hint=hint)
        return Ragged.from_lists([[self.ids[token] for token in tokens] for tokens in control])

    def text_ids(self, texts: Sequence[str]) -> Ragged:
        """Tokenises texts; a marker inside a text is encoded as text, never as the special token."""
        with literal_text(self.tokenizer):
            ids = tokenize(self.tokenizer, texts)
        return Ragged(without_special(self.tokenizer, ids.values), ids.offsets)

    def _turns(self, example: Example) -> Sequence[Turn]:
        limit = self.layout.max_history
        return example.history if limit is None else example.history[max(0, len(example.history) - limit) :]

    def _tokens(self, examples: Sequence[Example], responses: Sequence[str]) -> tuple[Ragged, Ragged, Ragged]:
        """Tokenises in one call: the knowledge, the turns of all histories, and the responses."""
        knowledge = [example.knowledge for example in examples]
        turns = [turn.text for example in examples for turn in self._turns(example)]
        ids = self.text_ids([*knowledge, *turns, *responses])
        ends = np.cumsum([0, len(knowledge), len(turns), len(responses)])
        first, second, third = (ids.take(np.arange(ends[i], ends[i + 1])) for i in range(3))
        return first, second, third

    def _contexts(
        self, examples: Sequence[Example], knowledge: Ragged, turns: Ragged, response: Ints, counts: Counter[str]
    ) -> Ragged:
        layout, count = self.layout, len(examples)
        before = [self.ids[bos_of(self.tokenizer)], self.ids[KNOWLEDGE]]
        behind = [self.tokenizer.eos_token_id if layout.kind == SEQ2SEQ else self.ids[WIZARD]]
        fixed = knowledge.lengths + len(layout.control) + len(before) + len(behind)
        if layout.kind == SEQ2SEQ:
            what, needed, room = "knowledge", np.maximum(fixed, response), layout.max_length - fixed
        else:
            what, needed = "knowledge and response", fixed + response
            room = layout.max_length - fixed - np.maximum(response, layout.max_response_length)
        if needed.max(initial=0) > layout.max_length:
            worst = int(needed.argmax())
            problem = f"example {examples[worst].id}: {what} alone take {needed[worst]} tokens"
            hint = f"set {self.limit}={needed[worst]} or more (it is {layout.max_length})"
            raise UserError(problem, place=f"{examples[worst].source}/{examples[worst].split}", hint=hint)
        # The turns of each row that fit, each led by its speaker's marker.
        histories = [self._turns(example) for example in examples]
        num_turns = np.array([len(history) for history in histories], np.int64)
        row = np.repeat(np.arange(len(examples)), num_turns)
        kept = fit_history(turns.lengths + 1, num_turns, room)
        cut = kept <= turns.lengths
        counts["history cut: turns"] += int(cut.sum())
        counts["history cut: rows"] += len(np.unique(row[cut]))
        speakers = [turn.speaker for history in histories for turn in history]
        markers = [self.ids[WIZARD if speaker == WIZARD_SPEAKER else SEEKER] for speaker in speakers]
        stays = np.flatnonzero(kept)
        size = kept[stays] - 1
        texts = turns.slice_rows(stays, turns.lengths[stays] - size, size)
        led = join_rows([Ragged(np.array(markers, np.int32)[stays], np.arange(len(stays) + 1)), texts])
        history = Ragged(led.values, led.offsets[offsets_of(np.bincount(row[stays], minlength=len(examples)))])
        return join_rows([constant_rows(before, count), knowledge, history, constant_rows(behind, count)])

    def collate(self, columns: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Makes the arrays of a batch.

        Targets lie flat, response by response: `target` [tokens] holds the responses' tokens with their eos,
        `target_row` the row of each, `target_at` the place that predicts it, counted over the model's whole output.

        seq2seq: input_ids, attention_mask [rows, width], decoder_input_ids [rows, response width]
        causal, packed: input_ids, position_ids [1, tokens], sequence_lengths [rows]
        causal, padded: input_ids, attention_mask [rows, width]
        """
        context, response, pad_id = self.whole_contexts(columns), columns["response"], self.tokenizer.pad_token_id
        if self.layout.kind != SEQ2SEQ:
            return causal_batch(context, response, pad_id=pad_id, packed=self.is_packed)
        batch, step = targets_of(response), steps_of(response.lengths)
        decoded = join_rows([constant_rows(self.decoder_prefix, len(response)), read_part(response)])
        batch |= padded_inputs(context, pad_id) | {"decoder_input_ids": pad_rows(decoded, pad_id)}
        return batch | {"target_at": batch["target_row"] * batch["decoder_input_ids"].shape[1] + step}

    def whole_contexts(self, columns: Mapping[str, Any]) -> Ragged:
        """Returns the contexts of a batch with their control tokens in front."""
        context = columns["context"]
        return join_rows([columns["control"], context]) if self.layout.control else context


def fit_history(lengths: NDArray[np.int64], num_turns: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Decides how many tokens of each turn are kept, counted from its end.

    The newest turns are kept first, each whole or not at all; if even the newest does not fit, its end is kept.

    Args:
        lengths: Tokens of each turn with its marker: the turns of all rows, oldest first, one row behind the other.
        num_turns: Turns of each row.
        room: Tokens that each row has for its history.
    """
    ends = offsets_of(num_turns)[1:]
    so_far = offsets_of(lengths)
    space = np.repeat(room, num_turns)
    until_end = np.repeat(so_far[ends], num_turns) - so_far[:-1]  # of a turn and all that follow it in its row
    kept = np.where(until_end <= space, lengths, 0)
    newest = np.arange(1, len(lengths) + 1) == np.repeat(ends, num_turns)
    # Room of 1 would hold the marker alone, which says nothing.
    return np.where(newest & (lengths > space) & (space >= 2), space, kept)
