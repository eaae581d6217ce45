"""Encodes examples for the training of a judge: the prompt without loss, and the reply with loss."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.causal import branched_batch, causal_batch
from data_modules.encoding.encoder import ENCODING_VERSION, NO_LABEL, Columns, Encoder
from data_modules.encoding.encoding_cache import group_hash
from data_modules.encoding.ragged import Ragged
from data_modules.encoding.tokens import fingerprint_of
from faithkit.errors import UserError, shorten
from faithkit.inference.messages import MessageTokens
from faithkit.records import LABELS, Example
from faithkit.weights.load import filler_token
from judge.asking import target_text
from judge.prompt import PromptTemplate


@dataclass(frozen=True, kw_only=True)
class JudgementEncoder(Encoder):
    """Encodes a prompt with its reply, as in inference.

    Args:
        ask: The kind of reply.
        max_length: Tokens of both; the oldest turns are removed if they do not fit, knowledge and response never.
        packed: Packs sequences without padding (`faithkit.packing`).
        share_beginnings: Batches rows with the same knowledge and history together, and encodes this prefix once.
    """

    tokens: MessageTokens
    template: PromptTemplate
    ask: str
    max_length: int
    packed: bool = True
    share_beginnings: bool = False

    @property
    def shares_beginnings(self) -> bool:
        return self.packed and self.share_beginnings

    def fingerprint(self) -> str:
        settings = f"{self.template.fingerprint}:{self.tokens.has_template}:{self.ask}:{self.max_length}"
        return f"judgements:families:{ENCODING_VERSION}:{settings}:{fingerprint_of(self.tokens.tokenizer)}"

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Makes the columns context (the prompt), response (the reply with eos), length, label and family."""
        replies = self.tokens.answers([target_text(example, self.ask) for example in examples])
        prompts = self.tokens.prompts([self.template.messages(example) for example in examples])
        for place, (example, reply) in enumerate(zip(examples, replies, strict=True)):
            if len(prompts[place]) + len(reply) > self.max_length:
                prompts[place] = self._encode_shortened(example, self.max_length - len(reply), counts)
        context, response = (Ragged.from_lists([ids.tolist() for ids in rows]) for rows in (prompts, replies))
        labels = [NO_LABEL if e.label is None else LABELS.index(e.label) for e in examples]
        return {
            "context": context,
            "response": response,
            "length": (context.lengths + response.lengths).astype(np.int32),
            "label": np.array(labels, np.int8),
            "family": np.array([_family(example) for example in examples], np.uint64),
        }

    def _encode_shortened(self, example: Example, room: int, counts: Counter[str]) -> NDArray[np.int32]:
        """Encodes a prompt with as many of the newest turns as fit."""
        counts["history cut: rows"] += 1
        for first in range(1, len(example.history) + 1):
            shorter = replace(example, history=example.history[first:])
            [ids] = self.tokens.prompts([self.template.messages(shorter)])
            if len(ids) <= room:
                counts["history cut: turns"] += first
                return ids
        [ids] = self.tokens.prompts([self.template.messages(replace(example, history=()))])
        needed = self.max_length - room + len(ids)
        problem = f"example {shorten(example.id)}: prompt and reply take {needed} tokens without any history"
        hint = f"set model.max_length={needed} or more (it is {self.max_length})"
        raise UserError(problem, place=f"{example.source}/{example.split}", hint=hint)

    def collate(self, columns: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Makes the arrays of a batch: those of `causal_batch`, and the labels."""
        context, response, family = (columns[name] for name in ("context", "response", "family"))
        if self.shares_beginnings and len(np.unique(family)) < len(family):
            batch = branched_batch(context, response, family)
        else:
            pad_id = filler_token(self.tokens.tokenizer)
            batch = causal_batch(context, response, pad_id=pad_id, packed=self.packed)
        return batch | {"label": columns["label"]}


def _family(example: Example) -> int:
    """Hashes the part of the prompt before the response."""
    turns = [f"{turn.speaker}\0{turn.text}" for turn in example.history]
    return group_hash("\0\0".join([example.knowledge, *turns]))
