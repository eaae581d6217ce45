"""Questions to which a given stretch of a text is the answer, by a seq2seq model, many at once."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from faithkit.errors import UserError
from faithkit.metrics.responses.pretrained import load_pretrained, longest_input
from faithkit.training.batching import plan_batches
from faithkit.words import apostrophe_words

# A question with one of these asks the reader or the speaker about themselves: no text answers it.
PERSONAL = frozenset("i me my mine myself you your yours yourself yourselves".split())
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 512, 32_768
# Writes (rows of token ids, number of beams, most tokens) the token ids of each row's beams, the likeliest first.
Write = Callable[[Sequence[Sequence[int]], int, int], list[list[list[int]]]]


class Questions(Protocol):
    """Asks questions."""

    def questions(self, answers: Sequence[str], contexts: Sequence[str]) -> list[tuple[str, ...]]:
        """Gives several questions for each answer in its context, the likeliest first."""
        ...


def is_personal(question: str) -> bool:
    """Tells whether a question is about the person who asks or the one who is asked."""
    return not PERSONAL.isdisjoint(apostrophe_words(question))


class Seq2SeqQuestions:
    """Generates questions by beam search, as many as there are beams.

    Args:
        template: How an answer and its context are given to the model, as it was trained.
        prefix: What the model writes before the question.
        batch_tokens: Input tokens of a batch, times beams; None takes what suits the device.
        write: Searches in place of transformers' `generate`, for which a batch lasts as long as its longest search.
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
        write: Write | None = None,
    ):
        if not {"{answer}", "{context}"} <= set(_fields(template)):
            hint = "write it like 'answer: {answer}  context: {context}'"
            raise UserError(f"question_template is {template!r}", hint=hint)
        self.model, self.tokenizer, self.template, self.prefix = model, tokenizer, template, prefix
        self.num_beams, self.max_new_tokens = num_beams, max_new_tokens
        self.device = next(model.parameters()).device
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else GPU_BATCH_TOKENS)
        self.max_length = longest_input(model, tokenizer)
        self.write = write or self._generate

    @classmethod
    def load(
        cls,
        weights: str,
        *,
        template: str,
        device: str | None = None,
        precision: str = "32-true",
        writer: Callable[[Any], Write | None] = lambda model: None,
    ) -> "Seq2SeqQuestions":
        """Loads a model by folder, local name or hub name.

        Args:
            precision: As of `load_pretrained`.
            writer: Makes `write` of the model, where it can.
        """
        model, tokenizer, _ = load_pretrained("AutoModelForSeq2SeqLM", weights, device=device, precision=precision)
        return cls(model, tokenizer, template=template, write=writer(model))

    def questions(self, answers: Sequence[str], contexts: Sequence[str]) -> list[tuple[str, ...]]:
        prompts = self.prompts(answers, contexts)
        if not prompts:
            return []
        return [self._texts(beams) for beams in self.write(self.encode(prompts), self.num_beams, self.max_new_tokens)]

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Gives the model's input ids of each prompt, cut to what it reads."""
        return list(self.tokenizer(prompts, truncation=True, max_length=self.max_length)["input_ids"])

    def prompts(self, answers: Sequence[str], contexts: Sequence[str]) -> list[str]:
        """Fills the template with each answer and its context."""
        return [self.template.format(answer=a, context=c) for a, c in zip(answers, contexts, strict=True)]

    def _texts(self, beams: list[list[int]]) -> tuple[str, ...]:
        texts = self.tokenizer.batch_decode(beams, skip_special_tokens=True)
        return tuple(text.strip().removeprefix(self.prefix).strip() for text in texts)

    def _generate(self, rows: Sequence[Sequence[int]], num_beams: int, max_new_tokens: int) -> list[list[list[int]]]:
        return self.generate(rows, num_beams, max_new_tokens=max_new_tokens)

    @torch.inference_mode()
    def generate(self, rows: Sequence[Sequence[int]], num_beams: int, **options: Any) -> list[list[list[int]]]:
        """Searches with transformers' `generate` under its own options, in batches: all beams of each row."""
        lengths = np.array([len(row) for row in rows], np.int32)
        found: list[list[list[int]]] = [[] for _ in rows]
        for batch in plan_batches(lengths * num_beams, None, self.batch_tokens * num_beams, None):
            unpadded = {"input_ids": [rows[i] for i in batch]}
            inputs = self.tokenizer.pad(unpadded, padding_side="right", return_tensors="pt").to(self.device)
            ids = self.model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                num_beams=num_beams,
                num_return_sequences=num_beams,
                do_sample=False,
                **options,
            )
            for place, i in enumerate(batch):
                found[i] = ids[place * num_beams : (place + 1) * num_beams].tolist()
        return found


def _fields(template: str) -> list[str]:
    return [name for name in ("{answer}", "{context}") if name in template]
