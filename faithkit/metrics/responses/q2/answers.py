"""Extractive answers to questions on texts of any length, many at once, with "no answer" as an outcome.

A long text is read through overlapping windows. The best span of all windows is the answer, unless the place that
stands for "no answer" has a higher score even in the window that gives it the lowest (Rajpurkar et al. 2018).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from faithkit.metrics.responses.pretrained import load_pretrained, longest_input
from faithkit.training.batching import plan_batches

CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 32_768


class Answers(Protocol):
    """Answers questions."""

    def answers(self, questions: Sequence[str], contexts: Sequence[str]) -> list[str | None]:
        """Gives a stretch of each context, or None where the question has no answer there."""
        ...


class ExtractiveAnswers:
    """Answers with an extractive question answering model.

    Args:
        stride: Tokens that neighbouring windows share.
        max_answer: Tokens of the longest answer.
        batch_tokens: Tokens of a batch; None takes what suits the device.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        stride: int = 128,
        max_answer: int = 30,
        batch_tokens: int | None = None,
    ):
        self.model, self.tokenizer, self.max_answer = model, tokenizer, max_answer
        self.device = next(model.parameters()).device
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else GPU_BATCH_TOKENS)
        self.max_length = min(512, longest_input(model, tokenizer))
        self.stride = min(stride, self.max_length // 4)

    @classmethod
    def load(cls, weights: str, *, device: str | None = None, precision: str = "32-true") -> "ExtractiveAnswers":
        """Loads a model by folder, local name or hub name; `precision` as of `load_pretrained`."""
        model, tokenizer, _ = load_pretrained(
            "AutoModelForQuestionAnswering", weights, device=device, precision=precision
        )
        return cls(model, tokenizer)

    def answers(self, questions: Sequence[str], contexts: Sequence[str]) -> list[str | None]:
        if not questions:
            return []
        windows = self._windows(questions, contexts)
        best: list[tuple[float, str]] = [(-np.inf, "")] * len(questions)
        nothing = np.full(len(questions), np.inf)
        owners = windows["overflow_to_sample_mapping"]
        lengths = np.array([len(row) for row in windows["input_ids"]], np.int32)
        for batch in plan_batches(lengths, None, self.batch_tokens, None):
            for i, start, end in zip(batch, *self.logits(windows, batch), strict=True):
                owner, text = owners[i], contexts[owners[i]]
                nothing[owner] = min(nothing[owner], start[0] + end[0])
                inside = [part == 1 for part in windows.sequence_ids(int(i))]
                score, first, last = best_span(start, end, np.array(inside), self.max_answer)
                offsets = windows["offset_mapping"][i]
                found = text[offsets[first][0] : offsets[last][1]].strip() if np.isfinite(score) else ""
                if found:
                    best[owner] = max(best[owner], (score, found))
        return [text if score > none else None for (score, text), none in zip(best, nothing, strict=True)]

    def _windows(self, questions: Sequence[str], contexts: Sequence[str]) -> Any:
        # A question that leaves the text no room is cut to half of the length.
        room = self.max_length // 2
        short = self.tokenizer(list(questions), add_special_tokens=False, return_offsets_mapping=True)
        cut = [
            question if len(offsets) <= room else question[: offsets[room - 1][1]]
            for question, offsets in zip(questions, short["offset_mapping"], strict=True)
        ]
        return self.tokenizer(
            cut,
            list(contexts),
            truncation="only_second",
            max_length=self.max_length,
            stride=self.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )

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


def best_span(
    start: NDArray[Any], end: NDArray[Any], inside: NDArray[np.bool_], max_length: int
) -> tuple[float, int, int]:
    """Finds the span within the text with the highest start + end score: score, first and last token; -inf without any.

    Args:
        inside: Which tokens are the text's.
    """
    places = np.flatnonzero(inside)
    if not len(places):
        return -np.inf, 0, 0
    scores = start[places, None] + end[None, places]
    step = places[None, :] - places[:, None]
    scores = np.where((step >= 0) & (step < max_length), scores, -np.inf)
    first, last = np.unravel_index(int(scores.argmax()), scores.shape)
    return float(scores[first, last]), int(places[first]), int(places[last])
