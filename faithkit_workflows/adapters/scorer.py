"""Judges answers for all adapters: what a tool gives goes in, a score where 1 is faithful comes out."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from threading import Lock
from typing import Any

from faithkit import arguments
from faithkit.detector import DEFAULT
from faithkit.evidence import describe_mark
from faithkit.languages import ON_LANGUAGE, WARN
from faithkit.packages import missing_package
from faithkit.records import FAITHFUL, TEXT_KEYS, UNPARSED, Prediction, span_to_dict
from faithkit_workflows.detectors.assertions import check, find_detector

_ONE_AT_A_TIME = Lock()  # tools call from several threads, and a detector is used by one


class FaithfulnessScorer:
    """Scores answers by their context with one detector.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector, which is loaded at once.
        threshold: P(hallucinated) from which an answer is called hallucinated; None takes the detector's own.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore.

    Raises:
        UserError: There is no such detector, or the threshold is no probability.
    """

    def __init__(self, checkpoint: Any = DEFAULT, threshold: float | None = None, on_language: str = WARN):
        arguments.read_choice("on_language", on_language, ON_LANGUAGE)
        self.on_language = on_language
        self.threshold = arguments.read_probability("threshold", threshold)
        self.checkpoint = arguments.read_path(checkpoint, "checkpoint")
        find_detector(self.checkpoint)

    def score(self, answers: Sequence[Any], contexts: Sequence[Any], questions: Sequence[Any]) -> list[Prediction]:
        """Judges answers in one batch; `to_score` and `describe` read the results.

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
            options: dict[str, Any] = {"threshold": self.threshold, "on_language": self.on_language}
            found = check(contexts, answers, histories, by=self.checkpoint, **options)
        return [replace(one, label=one.label or FAITHFUL) for one in found]  # an abstention marks nothing

    def score_one(self, answer: Any, context: Any, question: Any = None) -> Prediction:
        """Judges one answer."""
        return self.score([answer], [context], [question])[0]

    async def ascore_one(self, answer: Any, context: Any, question: Any = None) -> Prediction:
        """Judges one answer in a thread, so that requests of other tasks go on."""
        return await asyncio.to_thread(self.score_one, answer, context, question)


def to_score(found: Prediction, threshold: float | None = None) -> float | None:
    """Returns 1 - P(hallucinated), and None if there is no verdict.

    With a threshold, which has decided the label, and without a probability it is 1 or 0 by the label.
    """
    if found.label == UNPARSED:
        return None
    if threshold is not None or found.probability is None:
        return float(found.label == FAITHFUL)
    return 1 - found.probability


def describe(found: Prediction) -> str:
    """Describes a result in one line: label, probability, and each mark with its reason and sentence."""
    probability = "" if found.probability is None else f", P(hallucinated) {found.probability:.3f}"
    marks = f"; not supported: {'; '.join(map(describe_mark, found.spans))}" if found.spans else ""
    language = f"; the detector does not read the language, {found.language}" if found.language else ""
    return f"{found.label}{probability}{marks}{language}"


def to_dict(found: Prediction) -> dict[str, Any]:
    """Converts to plain values, as tools store them; `language` only where the detector does not read it."""
    row = {"label": found.label, "probability": found.probability, "spans": [span_to_dict(s) for s in found.spans]}
    return row | ({"language": found.language} if found.language else {})


def read_context(context: Any) -> Any:
    """Takes the texts of passages that are a tool's own documents; leaves everything else as it is."""
    if not arguments.is_list(context):
        return context
    passages = []
    for one in context:
        found = () if isinstance(one, str) else (getattr(one, name, None) for name in TEXT_KEYS)
        passages.append(next((text for text in found if isinstance(text, str)), one))
    return passages


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
