"""Fails a test where a response is not held by its knowledge: `faithkit.assert_faithful`."""

from collections.abc import Sequence
from functools import lru_cache
from os import PathLike
from typing import Any

from faithkit import arguments
from faithkit.errors import UserError
from faithkit.pages.span_tables import bracketed
from faithkit.pages.tables import escape_terminal
from faithkit.records import HALLUCINATED, UNPARSED, Span
from faithkit.text_arguments import is_list

MOST_SHOWN = 10  # failing responses in a message
MOST_CHARACTERS = 600  # of a text in it
METHODS = ("score", "predict", "judge")  # how a critic, a tagger and a judge are asked


@arguments.explain_keywords
def assert_faithful(
    knowledge: Any, response: Any, history: Any = None, *, by: Any, threshold: float | None = None
) -> None:
    """Raises AssertionError where a detector calls a response hallucinated, or gives no verdict that can be read.

        from faithkit import assert_faithful
        assert_faithful(knowledge="The Danube flows through ten countries.", response=answer, by="runs/...")

    The message has each failing response with its probability, a tagger's or judge's marks in double brackets, and the
    knowledge, with control characters escaped. Lists are judged in one go, which is much faster than a loop.

    Args:
        knowledge: A text, or a list of passages; for a list of responses a list of these.
        response: A text, or a list of texts.
        history: The turns before the response.
        by: A run, an hf/ folder or a hub name of a critic, tagger or judge, loaded once in a process; or a loaded one.
        threshold: From this probability on a response fails; None takes the detector's own verdict. A verdict without
            a probability counts as it is.

    Raises:
        AssertionError: A response is hallucinated, or has no verdict.
        UserError: There is no such detector, no response, or something that is no text.
    """
    __tracebackhide__ = True  # pytest shows the line that called
    threshold = arguments.read_probability("threshold", threshold)
    detector = _load(arguments.read_path(by, "by")) if isinstance(by, str | PathLike) else by
    method = next((name for name in METHODS if hasattr(detector, name)), None)
    if method is None:
        raise arguments.wrong("by", "a critic, a tagger or a judge", by, 'give by="runs/..." or by=Critic.load(...)')
    single = isinstance(response, str)
    if not single and is_list(response):
        knowledge, response = (list(column) if is_list(column) else column for column in (knowledge, response))
        if not response:
            raise UserError("there is no response to judge", hint="give one at least: an empty list proves nothing")
    cuts = {} if threshold is None or method == "judge" else {"threshold": threshold}  # labels and spans go by it
    found = getattr(detector, method)(knowledge, response, history, **cuts)
    rows = [(found, response, knowledge)] if single else list(zip(found, response, knowledge, strict=True))
    failed = [(number, row) for number, row in enumerate(rows, start=1) if _fails(row[0], threshold)]
    if not failed:
        return
    used = "" if threshold is None else f", threshold={threshold:g}"
    lines = [f"{len(failed)} of {len(rows)} not held by its knowledge, by {detector!r}{used}"]
    for number, row in failed[:MOST_SHOWN]:
        lines += _explain(number, *row)
    if len(failed) > MOST_SHOWN:
        lines.append(f"and {len(failed) - MOST_SHOWN:,} more")
    raise AssertionError("\n".join(lines))


@lru_cache(maxsize=4)
def _load(path: str) -> Any:
    from faithkit_workflows.detectors.loading import load_detector

    return load_detector(path, precision="32-true", batch_tokens=None)


def _fails(verdict: Any, threshold: float | None) -> bool:
    if verdict.label == UNPARSED or threshold is None or verdict.probability is None:
        return verdict.label in (HALLUCINATED, UNPARSED)
    return bool(verdict.probability >= threshold)


def _explain(number: int, verdict: Any, response: str, knowledge: str | Sequence[str] | None) -> list[str]:
    """A line each for the verdict, the response with its marks, the knowledge, and a judge's reason."""
    known = verdict.probability is not None
    spans = [Span(start=s.start, end=s.end, label=s.label, score=s.score) for s in getattr(verdict, "spans", ())]
    text = knowledge if isinstance(knowledge, str) else " | ".join(knowledge or ["(none)"])
    reason = getattr(verdict, "rationale", "") or (verdict.text if verdict.label == UNPARSED else "")
    return [
        f"{number}. {verdict.label}, {f'P(hallucinated) {verdict.probability:.3f}' if known else 'no probability'}",
        f"   response:  {bracketed(response, spans, max_characters=MOST_CHARACTERS)}",
        f"   knowledge: {escape_terminal(text, MOST_CHARACTERS)}",
        *([f"   reason:    {escape_terminal(reason, MOST_CHARACTERS)}"] if reason else []),
    ]
