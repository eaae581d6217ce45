"""What a tagger is asked and what it answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from data_modules.encoding.spans import question_text
from faithkit.errors import UserError, shorten
from faithkit.records import Example

ASSISTANTS = ("assistant", "bot", "model", "system response", "wizard")


@dataclass(frozen=True, slots=True)
class Request:
    """One answer with what it must hold to."""

    context: str
    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedSpan:
    """Characters `start` to `end` of the answer that the context does not support.

    Args:
        label: The type, or `hallucination` where the tagger tells no types.
        score: The mean calibrated probability of its characters.
    """

    start: int
    end: int
    text: str
    label: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """What a tagger says of one answer.

    Args:
        label: hallucinated or faithful, by the stored threshold for responses.
        score: Calibrated P(the answer is hallucinated).
        spans: By the stored threshold for characters.
    """

    label: str
    score: float
    spans: list[TaggedSpan] = field(default_factory=list)


def request_of(example: Example) -> Request:
    """What the example asks of a tagger."""
    return Request(example.knowledge, question_text(example), example.response)


def requests_of(
    context: str | Sequence[str], answer: str | Sequence[str], question: str | Sequence[str] | None
) -> tuple[bool, list[Request]]:
    """The requests, and whether it is a single one.

    Raises:
        UserError: Lists of different lengths, something that is no text, or an empty text.
    """
    given = [context, answer] if question is None else [context, answer, question]
    single = isinstance(answer, str)
    if any(isinstance(text, str) != single or not isinstance(text, Iterable) for text in given):
        raise UserError("context, question and answer must all be texts, or all be lists")
    contexts, answers = ([context], [answer]) if single else (list(context), list(answer))
    questions = [""] * len(answers) if question is None else [question] if single else list(question)
    if not len(contexts) == len(questions) == len(answers):
        raise UserError(f"{len(contexts)} contexts, {len(questions)} questions and {len(answers)} answers")
    for name, texts in (("context", contexts), ("answer", answers), ("question", questions)):
        for place, text in enumerate(texts):
            empty_ok = name == "question"
            if not isinstance(text, str) or not (empty_ok or text.strip()):
                problem = f"{name} must be text{'' if empty_ok else ' that is not empty'}, got {shorten(text)}"
                raise UserError(problem, place=f"item {place}")
    return single, [Request(*row) for row in zip(contexts, questions, answers, strict=True)]  # type: ignore[arg-type]


def dialogue_requests(context: str, turns: Sequence[tuple[str, str]]) -> tuple[list[int], list[Request]]:
    """A request for each turn of the assistant, with the turns before it as its question, and those turns' places."""
    places = [place for place, (speaker, _) in enumerate(turns) if speaker.lower() in ASSISTANTS]
    if not places:
        speakers = ", ".join(sorted({speaker for speaker, _ in turns})) or "none"
        raise UserError(f"no turn is the assistant's; speakers: {speakers}", hint='call the speaker "assistant"')
    before = ["\n".join(text for _, text in turns[:place]) for place in places]
    _, requests = requests_of([context] * len(places), [turns[place][1] for place in places], before)
    return places, requests
