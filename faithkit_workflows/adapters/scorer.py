"""Judges answers for all adapters: what a tool gives goes in, a score where 1 is faithful comes out."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

from faithkit import arguments
from faithkit.detector import DEFAULT
from faithkit.packages import missing_package
from faithkit.records import FAITHFUL, HALLUCINATED, TEXT_KEYS, UNPARSED, Prediction
from faithkit_workflows.detectors.assertions import check, find_detector, is_failure

_ONE_AT_A_TIME = Lock()  # tools call from several threads, and a detector is used by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A detector's verdict on one answer.

    Args:
        score: 1 - P(hallucinated), so 1 is faithful; without a probability 1 or 0 by the label; None if unparsed.
        label: faithful, hallucinated or unparsed.
        probability: P(hallucinated); None if the detector gives none.
        unsupported: The marked parts of the answer.
    """

    score: float | None
    label: str
    probability: float | None = None
    unsupported: tuple[str, ...] = ()

    @property
    def is_faithful(self) -> bool:
        """Reports whether the answer passes."""
        return self.label == FAITHFUL

    @property
    def reason(self) -> str:
        """Describes the verdict in one line."""
        probability = "" if self.probability is None else f", P(hallucinated) {self.probability:.3f}"
        parts = f"; not supported: {', '.join(map(repr, self.unsupported))}" if self.unsupported else ""
        return f"{self.label}{probability}{parts}"

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values, as tools store them."""
        return {"label": self.label, "probability": self.probability, "unsupported": list(self.unsupported)}


class FaithfulnessScorer:
    """Scores answers by their context with one detector.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector, which is loaded at once.
        threshold: P(hallucinated) from which an answer is called hallucinated; None takes the detector's own.

    Raises:
        UserError: There is no such detector, or the threshold is no probability.
    """

    def __init__(self, checkpoint: Any = DEFAULT, threshold: float | None = None):
        self.threshold = arguments.read_probability("threshold", threshold)
        self.checkpoint = arguments.read_path(checkpoint, "checkpoint")
        find_detector(self.checkpoint)

    def score(self, answers: Sequence[Any], contexts: Sequence[Any], questions: Sequence[Any]) -> list[Verdict]:
        """Scores answers in one batch.

        Args:
            contexts: For each answer a text, or a list of passages: texts, or the documents of any tool.
            questions: For each answer a text; None or an empty one for none.

        Raises:
            UserError: An answer or a context is empty or no text; the place is its number.
        """
        arguments.check_lengths({"answers": answers, "contexts": contexts, "questions": questions})
        if not answers:
            return []
        contexts = [read_context(context) for context in contexts]
        for number, (answer, context) in enumerate(zip(answers, contexts, strict=True)):
            place = f"item {number}" if len(answers) > 1 else None
            arguments.read_text("the answer", answer, place)
            arguments.read_passages("the context", context, place)
        histories = [[question] if question else [] for question in questions]
        with _ONE_AT_A_TIME:
            found = check(contexts, answers, histories, by=self.checkpoint, threshold=self.threshold)
        return [read_verdict(one, answer, self.threshold) for one, answer in zip(found, answers, strict=True)]

    def score_one(self, answer: Any, context: Any, question: Any = None) -> Verdict:
        """Scores one answer."""
        return self.score([answer], [context], [question])[0]

    async def ascore_one(self, answer: Any, context: Any, question: Any = None) -> Verdict:
        """Scores one answer in a thread, so that requests of other tasks go on."""
        return await asyncio.to_thread(self.score_one, answer, context, question)


def read_context(context: Any) -> Any:
    """Takes the texts of passages that are a tool's own documents; leaves everything else as it is."""
    return [_read_passage(passage) for passage in context] if arguments.is_list(context) else context


def _read_passage(passage: Any) -> Any:
    found = (getattr(passage, name, None) for name in TEXT_KEYS)
    return passage if isinstance(passage, str) else next((text for text in found if isinstance(text, str)), passage)


def read_verdict(found: Prediction, answer: str, threshold: float | None = None) -> Verdict:
    """Reads the result of any detector about an answer; a threshold replaces the detector's label."""
    label, probability = found.label, found.probability
    if label != UNPARSED:
        label = HALLUCINATED if is_failure(found, threshold) else FAITHFUL
    score = {FAITHFUL: 1.0, HALLUCINATED: 0.0}.get(label) if probability is None else 1 - probability
    spans = found.spans if label == HALLUCINATED else ()
    texts = tuple(answer[span.start : span.end] for span in spans)
    return Verdict(score=score, label=label, probability=probability, unsupported=texts)


@cache
def stored_threshold(checkpoint: str) -> float | None:
    """Finds the threshold that a detector has stored; None if its labels come from none."""
    from faithkit_workflows.detectors.loading import describe_detector

    models = describe_detector(checkpoint)
    text = (models[0].threshold or "").partition(",")[0] if len(models) == 1 else ""
    return float(text) if text.replace(".", "", 1).isdecimal() else None


@contextmanager
def needs_tool(tool: str, package: str) -> Iterator[None]:
    """Makes a failed import of a tool's package the error that names its pip command."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_package(f"the adapter for {tool}", package) from error
