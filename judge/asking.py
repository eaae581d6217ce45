"""The ways to ask a judge: which prompt, what its reply must look like, and what is read from it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from faithkit.inference.text import Form
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Span
from faithkit.settings.check import check_fields
from faithkit.settings.types import Count, Hint, OneOf, Positive, Switch, Text
from judge.locate import locate_all
from judge.reply import CHOICES, LIST_KEY, quoted_parts, read_last_line, read_list, read_verdict, without_thoughts

VERDICT, JUDGEMENT, STEPS, SPANS = "verdict", "judgement", "steps", "spans"
LISTS = (f'{{"{LIST_KEY}": ["', f'{{"{LIST_KEY}": []')  # how a list with parts begins, and one without
SPANS_SCHEMA = {
    "type": "object",
    "properties": {LIST_KEY: {"type": "array", "items": {"type": "string"}}},
    "required": [LIST_KEY],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A judge's verdict on a response, with what it rests on.

    Args:
        label: hallucinated, faithful, or unparsed where the reply has no readable verdict.
        probability: P(hallucinated): of the answer's first word, or the share of samples; None where neither is known.
        spans: The quoted parts that stand in the response.
        rationale: The reply without its verdict.
        text: The whole reply; where there is none, why.
        num_unlocated: Quoted parts that do not stand in the response.
        failed: There is no reply.
    """

    label: str
    probability: float | None = None
    spans: tuple[Span, ...] = ()
    rationale: str = ""
    text: str = ""
    num_unlocated: int = 0
    failed: bool = False


MOST_EXAMPLES = 64  # in a prompt
NumExamples = Annotated[int, Field(ge=1, le=MOST_EXAMPLES)]
Read = Callable[[str, str], Judgement]  # a judgement from a reply and the response that it judges


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A way to ask.

    Args:
        prompt: The name of its prompt.
        read: Reads a reply.
        new_tokens: That a reply may have.
        choices: How a reply begins that calls the response hallucinated, and one that calls it faithful: their
            probabilities are known before anything is written. None where the verdict comes last.
        form: That the reply should have.
    """

    prompt: str
    read: Read
    new_tokens: int
    choices: tuple[str, str] | None = CHOICES
    form: Form | None = None


def read_plain(text: str, response: str) -> Judgement:
    """Reads a verdict alone."""
    return Judgement(label=read_verdict(text), text=text)


def read_judgement(text: str, response: str) -> Judgement:
    """Reads a verdict, the parts that are quoted, and the explanation."""
    label = read_verdict(text)
    said = without_thoughts(text)
    rationale = said if label == UNPARSED else said.lstrip(" \t\n\"'`*_").partition(" ")[2].strip()
    if label != HALLUCINATED:  # what a reply without an error quotes is no error
        return Judgement(label=label, rationale=rationale, text=text)
    spans, missed = locate_all(quoted_parts(said), response)
    return Judgement(label=label, spans=spans, rationale=rationale, text=text, num_unlocated=missed)


def read_steps(text: str, response: str) -> Judgement:
    """Reads the verdict of the last line; all before it is the explanation."""
    return Judgement(
        label=read_last_line(text), rationale=without_thoughts(text).rpartition("\n")[0].strip(), text=text
    )


def read_spans(text: str, response: str) -> Judgement:
    """Reads a list of parts; an empty one calls the response faithful."""
    parts = read_list(text)
    if parts is None:
        return Judgement(label=UNPARSED, text=text)
    spans, missed = locate_all(parts, response)
    return Judgement(label=HALLUCINATED if parts else FAITHFUL, spans=spans, text=text, num_unlocated=missed)


ASKINGS = {
    VERDICT: Asking(prompt=VERDICT, read=read_plain, new_tokens=4, form=Form(choices=CHOICES)),
    JUDGEMENT: Asking(prompt=JUDGEMENT, read=read_judgement, new_tokens=300),
    STEPS: Asking(prompt=STEPS, read=read_steps, new_tokens=600, choices=None),
    SPANS: Asking(prompt=SPANS, read=read_spans, new_tokens=300, choices=LISTS, form=Form(schema=SPANS_SCHEMA)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """The block `judge` of evaluate.py.

    Args:
        ask: A key of ASKINGS, whose prompt is used.
        prompts: A folder with prompts of one's own, `<ask>.txt`; None takes ours.
        num_samples: Replies to each question. With several they are drawn at random, the majority decides, and the
            share that says hallucinated is the probability.
        temperature: For several samples.
        max_new_tokens: Of a reply; None takes the way's own.
        examples: In the prompt: a file of one's own (judge/few_shot.py), or how many training rows evaluate.py draws.
        written: A reply is written, held to no form, and read, where its probability alone would do: so the papers
            have it, and so they count what cannot be read.
    """

    ask: Annotated[str, OneOf(tuple(ASKINGS))] = VERDICT
    prompts: Text | None = None
    num_samples: Count = 1
    temperature: Positive = 1.0
    max_new_tokens: Count | None = None
    examples: Annotated[
        NumExamples | Text | None, Hint(f"use a number from 1 to {MOST_EXAMPLES}, a file's path, or null")
    ] = None
    written: Switch = False

    def __post_init__(self) -> None:
        check_fields(self)
