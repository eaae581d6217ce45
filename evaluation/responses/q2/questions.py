"""Questions to which a given stretch of a text is the answer, by a seq2seq model, many at once."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from common.batching import plan_batches
from common.errors import UserError
from evaluation.responses.pretrained import load_pretrained, longest_input
from evaluation.responses.words import words

# What asks the reader or the speaker about themselves: no text answers it.
PERSONAL = frozenset("i me my mine myself you your yours yourself yourselves".split())
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 512, 32_768


class Questions(Protocol):
    """Asks questions."""

    def questions(self, answers: Sequence[str], contexts: Sequence[str]) -> list[tuple[str, ...]]:
        """For each answer in its context several questions, the likeliest first."""
        ...


def is_personal(question: str) -> bool:
    """Whether a question is about the person who asks or the one who is asked."""
    return not PERSONAL.isdisjoint(words(question))


class Seq2SeqQuestions:
    """Questions by beam search, as many as there are beams.

    Args:
        template: How an answer and its context are given to the model, as it was trained.
        prefix: What the model writes before the question.
        batch_tokens: Input tokens of a batch, times beams; None takes what suits the device.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        template: str,
        prefix: str = "question:",
        num_beams: int = 5,
        max_new_tokens: int = 64,
        batch_tokens: int | None = None,
    ):
        if not {"{answer}", "{context}"} <= set(_fields(template)):
            mend = "write it like 'answer: {answer}  context: {context}'"
            raise UserError(f"question_template is {template!r}", mend=mend)
        self.model, self.tokenizer, self.template, self.prefix = model, tokenizer, template, prefix
        self.num_beams, self.max_new_tokens = num_beams, max_new_tokens
        self.device = next(model.parameters()).device
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else GPU_BATCH_TOKENS)
        self.max_length = longest_input(model, tokenizer)

    @classmethod
    def load(cls, weights: str, *, template: str, device: str | None = None) -> "Seq2SeqQuestions":
        """A model by folder, local name or hub name."""
        model, tokenizer, _ = load_pretrained("AutoModelForSeq2SeqLM", weights, device=device)
        return cls(model, tokenizer, template=template)

    def questions(self, answers: Sequence[str], contexts: Sequence[str]) -> list[tuple[str, ...]]:
        prompts = [self.template.format(answer=a, context=c) for a, c in zip(answers, contexts, strict=True)]
        if not prompts:
            return []
        rows = self.tokenizer(prompts, truncation=True, max_length=self.max_length)["input_ids"]
        lengths = np.array([len(row) for row in rows], np.int32)
        found: list[tuple[str, ...]] = [()] * len(rows)
        for batch in plan_batches(lengths * self.num_beams, None, self.batch_tokens * self.num_beams, None):
            written = self._generate([rows[i] for i in batch])
            for place, i in enumerate(batch):
                texts = written[place * self.num_beams : (place + 1) * self.num_beams]
                found[i] = tuple(text.strip().removeprefix(self.prefix).strip() for text in texts)
        return found

    @torch.inference_mode()
    def _generate(self, rows: list[list[int]]) -> list[str]:
        inputs = self.tokenizer.pad({"input_ids": rows}, padding_side="right", return_tensors="pt").to(self.device)
        ids = self.model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            num_beams=self.num_beams,
            num_return_sequences=self.num_beams,
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
        )
        return self.tokenizer.batch_decode(ids, skip_special_tokens=True)


def _fields(template: str) -> list[str]:
    return [name for name in ("{answer}", "{context}") if name in template]
