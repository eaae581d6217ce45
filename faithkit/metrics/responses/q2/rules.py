"""Rules of Q2 on which protocols differ: usable questions, equal answers, and what the NLI model is asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from faithkit.metrics.responses.q2.questions import is_personal
from faithkit.words import answer_words

Pair = tuple[str, str]  # premise, hypothesis


def comparison(question: str, answer: str, candidate: str) -> Pair:
    """Makes of two answers to a question the two statements that the NLI model compares."""
    return f"{question} {answer}.", f"{question} {candidate}."


def _usable(questions: Sequence[str]) -> list[bool]:
    return [bool(question) and not is_personal(question) for question in questions]


def clean_answer(text: str) -> str:
    """Leaves of an answer its words in lower case, without articles and punctuation."""
    return " ".join(answer_words(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a protocol; the defaults are ours.

    Args:
        usable: Which questions are asked at all.
        clean: What is left of an answer when two are compared.
        comparison: The premise and hypothesis of (question, answer, candidate); None keeps their F1.
        fallback: How response and knowledge are written where the NLI model compares them themselves.
    """

    usable: Callable[[Sequence[str]], list[bool]] = _usable
    clean: Callable[[str], str] = clean_answer
    comparison: Callable[[str, str, str], Pair | None] = comparison
    fallback: Callable[[str], str] = str
