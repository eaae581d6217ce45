"""Extractive answers to questions on texts of any length, many at once, with "no answer" as an outcome.

A long text is read through overlapping windows. The best span of all windows is the answer, unless the position of
"no answer" has a higher score even in the window that gives it the lowest (Rajpurkar et al. 2018).

Candidate answers in a response, by spaCy: its entities and noun chunks.
Questions to which a given stretch of a text is the answer, by a seq2seq model, many at once.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from faithkit.errors import UserError
from faithkit.fast import plan_batches
from faithkit.metrics.responses.pretrained import load_pretrained, longest_input
from faithkit.weights.resolve import resolve
from faithkit.words import apostrophe_words


class ExtractiveAnswers:
    """Answers with an extractive question answering model.

    Args:
        model: Of transformers' AutoModelForQuestionAnswering.
    """

    max_answer = 30  # tokens

    def __init__(self, model: Any, tokenizer: Any):
        self.model, self.tokenizer, self.device = model, tokenizer, next(model.parameters()).device
        self.batch_tokens = 1024 if self.device.type == "cpu" else 32_768
        self.max_length = min(512, longest_input(model, tokenizer))
        self.stride = min(128, self.max_length // 4)  # tokens that neighbouring windows share

    @classmethod
    def load(cls, weights: str, *, device: str | None = None, precision: str = "32-true") -> "ExtractiveAnswers":
        """Loads a model by folder, local name or hub name; `precision` as of `load_pretrained`."""
        model, tokenizer, _ = load_pretrained(
            "AutoModelForQuestionAnswering", weights, device=device, precision=precision
        )
        return cls(model, tokenizer)

    def answers(self, questions: Sequence[str], contexts: Sequence[str]) -> list[str | None]:
        """Gives a stretch of each context, or None if the question has no answer there."""
        if not questions:
            return []
        # A question that leaves the text no room is cut to half of the length.
        room = self.max_length // 2
        short = self.tokenizer(list(questions), add_special_tokens=False, return_offsets_mapping=True)
        cut = [
            question if len(offsets) <= room else question[: offsets[room - 1][1]]
            for question, offsets in zip(questions, short["offset_mapping"], strict=True)
        ]
        windows = self.tokenizer(
            cut,
            list(contexts),
            truncation="only_second",
            max_length=self.max_length,
            stride=self.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        best: list[tuple[float, str]] = [(-np.inf, "")] * len(questions)
        nothing = np.full(len(questions), np.inf)
        owners = windows["overflow_to_sample_mapping"]
        lengths = np.array([len(row) for row in windows["input_ids"]], np.int32)
        for batch in plan_batches(lengths, None, self.batch_tokens, None):
            for i, start, end in zip(batch, *self.logits(windows, batch), strict=True):
                owner, text = owners[i], contexts[owners[i]]
                nothing[owner] = min(nothing[owner], start[0] + end[0])
                places = np.flatnonzero([part == 1 for part in windows.sequence_ids(int(i))])  # the text's tokens
                if not len(places):
                    continue
                step = places[None, :] - places[:, None]
                allowed = (step >= 0) & (step < self.max_answer)
                scores = np.where(allowed, start[places, None] + end[None, places], -np.inf)
                first, last = np.unravel_index(int(scores.argmax()), scores.shape)
                offsets = windows["offset_mapping"][i]
                if found := text[offsets[places[first]][0] : offsets[places[last]][1]].strip():
                    best[owner] = max(best[owner], (float(scores[first, last]), found))
        return [text if score > none else None for (score, text), none in zip(best, nothing, strict=True)]

    @torch.inference_mode()
    def logits(self, windows: Any, batch: NDArray[np.int64]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Gives the start and the end logits of each encoded row of a batch, without the padding's."""
        names = [name for name in self.tokenizer.model_input_names if name in windows]
        rows = {name: [windows[name][i] for i in batch] for name in names}
        inputs = self.tokenizer.pad(rows, padding_side="right", return_tensors="pt").to(self.device)
        output = self.model(**inputs)
        starts, ends = output.start_logits.double().cpu().numpy(), output.end_logits.double().cpu().numpy()
        lengths = [len(windows["input_ids"][i]) for i in batch]
        rows_of = [[row[:n] for row, n in zip(side, lengths, strict=True)] for side in (starts, ends)]
        return rows_of[0], rows_of[1]


class SpacyCandidates:
    """Finds entities, then those noun chunks that are no entity; each once, case aside.

    Args:
        pipeline: A spaCy pipeline with a parser and entities.
    """

    def __init__(self, pipeline: Any):
        self.pipeline = pipeline

    @classmethod
    def load(cls, name: str) -> "SpacyCandidates":
        """Loads a pipeline by local name, folder, or name of an installed package."""
        import spacy

        try:
            source = name if spacy.util.is_package(name) else resolve(name)
            pipeline = spacy.load(Path(source) if Path(source).is_dir() else source, exclude=["lemmatizer"])
        except OSError as error:
            hint = "use spacy-sm (local weights), a folder, or an installed pipeline such as en_core_web_sm"
            raise UserError(f"no spaCy pipeline {name!r}: {error}", hint=hint) from error
        return cls(pipeline)

    def candidates(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """Finds the candidate answers of each text, in the order in which they are asked about."""
        found = []
        for document in self.pipeline.pipe(texts, batch_size=256):
            distinct: dict[str, str] = {}
            for span in (*document.ents, *document.noun_chunks):
                # Of these persons alone no question can be asked of the knowledge.
                if not {"i", "me", "you"}.issuperset(apostrophe_words(span.text)):
                    distinct.setdefault(span.text.lower(), span.text)
            found.append(tuple(distinct.values()))
        return found


class Seq2SeqQuestions:
    """Generates questions by beam search, as many as there are beams.

    Args:
        template: How an answer and its context are given to the model, as it was trained.
    """

    def __init__(self, model: Any, tokenizer: Any, *, template: str, max_new_tokens: int = 64):
        if "{answer}" not in template or "{context}" not in template:
            hint = "write it like 'answer: {answer}  context: {context}'"
            raise UserError(f"question_template is {template!r}", hint=hint)
        self.model, self.tokenizer, self.template, self.max_new_tokens = model, tokenizer, template, max_new_tokens
        self.device = next(model.parameters()).device
        self.batch_tokens = 512 if self.device.type == "cpu" else 32_768  # of the input, times beams
        self.max_length = longest_input(model, tokenizer)

    @classmethod
    def load(
        cls, weights: str, *, template: str, device: str | None = None, precision: str = "32-true"
    ) -> "Seq2SeqQuestions":
        """Loads a model by folder, local name or hub name.

        Args:
            precision: As of `load_pretrained`.
        """
        model, tokenizer, _ = load_pretrained("AutoModelForSeq2SeqLM", weights, device=device, precision=precision)
        return cls(model, tokenizer, template=template)

    def questions(self, answers: Sequence[str], contexts: Sequence[str]) -> list[tuple[str, ...]]:
        """Gives several questions for each answer in its context, the likeliest first."""
        prompts = self.prompts(answers, contexts)
        if not prompts:
            return []
        found = []
        for beams in self.generate(self.encode(prompts), 5, max_new_tokens=self.max_new_tokens):
            texts = self.tokenizer.batch_decode(beams, skip_special_tokens=True)
            found.append(tuple(text.strip().removeprefix("question:").strip() for text in texts))
        return found

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Gives the model's input ids of each prompt, cut to what it reads."""
        return list(self.tokenizer(prompts, truncation=True, max_length=self.max_length)["input_ids"])

    def prompts(self, answers: Sequence[str], contexts: Sequence[str]) -> list[str]:
        """Fills the template with each answer and its context."""
        return [self.template.format(answer=a, context=c) for a, c in zip(answers, contexts, strict=True)]

    @torch.inference_mode()
    def generate(self, rows: Sequence[Sequence[int]], num_beams: int, **options: Any) -> list[list[list[int]]]:
        """Searches with transformers' `generate` with its options, in batches: all beams of each row."""
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
