"""Defines the ways to prompt a judge: prompt, form of the reply, parsing, and the target reply for training."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from faithkit.errors import UserError, shorten
from faithkit.inference.text import Form
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Span
from faithkit.settings.check import check_fields
from faithkit.settings.types import Count, Hint, OneOf, Positive, Switch, Text
from judge.locate import locate_all
from judge.reply import (
    CHOICES,
    LIST_KEY,
    NO,
    YES,
    quoted_parts,
    read_last_line,
    read_list,
    read_verdict,
    without_thoughts,
)

VERDICT, JUDGEMENT, STEPS, SPANS = "verdict", "judgement", "steps", "spans"
LISTS = (f'{{"{LIST_KEY}": ["', f'{{"{LIST_KEY}": []')  # beginnings of a list with parts and of an empty list
SPANS_SCHEMA = {
    "type": "object",
    "properties": {LIST_KEY: {"type": "array", "items": {"type": "string"}}},
    "required": [LIST_KEY],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A judge's verdict on a response, with spans and rationale.

    Args:
        label: hallucinated, faithful, or unparsed if the reply has no verdict.
        probability: P(hallucinated) of the answer's first token, or the fraction of samples; None if unknown.
        spans: The quoted parts that are found in the response.
        rationale: The reply without its verdict.
        text: The whole reply, or the reason why there is none.
        num_unlocated: Quoted parts that are not found in the response.
        failed: There is no reply.
    """

    label: str
    probability: float | None = None
    spans: tuple[Span, ...] = ()
    rationale: str = ""
    text: str = ""
    num_unlocated: int = 0
    failed: bool = False


MAX_EXAMPLES = 64  # in a prompt
NumExamples = Annotated[int, Field(ge=1, le=MAX_EXAMPLES)]
Parse = Callable[[str, str], Judgement]  # from a reply and the judged response


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A way to prompt a judge.

    Args:
        prompt: The name of its prompt.
        parse: Parses a reply.
        new_tokens: Maximum length of a reply.
        choices: The beginnings of a hallucinated and of a faithful reply, whose probabilities are computed without
            generation. None if the verdict comes last.
        form: The form that constrains the reply.
    """

    prompt: str
    parse: Parse
    new_tokens: int
    choices: tuple[str, str] | None = CHOICES
    form: Form | None = None


def parse_verdict(text: str, response: str) -> Judgement:
    """Parses a verdict alone."""
    return Judgement(label=read_verdict(text), text=text)


def parse_judgement(text: str, response: str) -> Judgement:
    """Parses a verdict, quoted parts, and the explanation."""
    label = read_verdict(text)
    reply = without_thoughts(text)
    rationale = reply if label == UNPARSED else reply.lstrip(" \t\n\"'`*_").partition(" ")[2].strip()
    if label != HALLUCINATED:  # quotations in a faithful verdict are no hallucinations
        return Judgement(label=label, rationale=rationale, text=text)
    spans, missed = locate_all(quoted_parts(reply), response)
    return Judgement(label=label, spans=spans, rationale=rationale, text=text, num_unlocated=missed)


def parse_steps(text: str, response: str) -> Judgement:
    """Parses the verdict in the last line; the lines before it are the explanation."""
    return Judgement(
        label=read_last_line(text), rationale=without_thoughts(text).rpartition("\n")[0].strip(), text=text
    )


def parse_spans(text: str, response: str) -> Judgement:
    """Parses a list of parts; an empty list means faithful."""
    parts = read_list(text)
    if parts is None:
        return Judgement(label=UNPARSED, text=text)
    spans, missed = locate_all(parts, response)
    return Judgement(label=HALLUCINATED if parts else FAITHFUL, spans=spans, text=text, num_unlocated=missed)


ASKINGS = {
    VERDICT: Asking(prompt=VERDICT, parse=parse_verdict, new_tokens=4, form=Form(choices=CHOICES)),
    JUDGEMENT: Asking(prompt=JUDGEMENT, parse=parse_judgement, new_tokens=300),
    STEPS: Asking(prompt=STEPS, parse=parse_steps, new_tokens=600, choices=None),
    SPANS: Asking(prompt=SPANS, parse=parse_spans, new_tokens=300, choices=LISTS, form=Form(schema=SPANS_SCHEMA)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """The block `judge` of evaluate.py.

    Args:
        ask: A key of ASKINGS, which selects the prompt.
        prompts: A folder with other prompts, `<ask>.txt`; None takes the built-in prompts.
        num_samples: Replies to each prompt. Several replies are sampled, the majority decides, and the fraction of
            hallucinated verdicts is the probability.
        temperature: Temperature of several samples.
        max_new_tokens: Maximum length of a reply; None takes the default of `ask`.
        examples: Examples in the prompt: a file (judge/few_shot.py), or the number of training rows that evaluate.py
            draws.
        written: Generates and parses the verdict without a constrained form, as in the papers, instead of computing
            its probability; unparsed replies are counted.
    """

    ask: Annotated[str, OneOf(tuple(ASKINGS))] = VERDICT
    prompts: Text | None = None
    num_samples: Count = 1
    temperature: Positive = 1.0
    max_new_tokens: Count | None = None
    examples: Annotated[
        NumExamples | Text | None, Hint(f"use a number from 1 to {MAX_EXAMPLES}, a file's path, or null")
    ] = None
    written: Switch = False

    def __post_init__(self) -> None:
        check_fields(self)


def target_text(example: Example, ask: str) -> str:
    """Writes the target reply: a verdict, the dataset's judgement or one made from its spans, or the list of spans.

    Raises:
        UserError: The example has no label, or no spans for `ask=spans`.
    """
    if example.label is None:
        hint = "train a judge on labelled data: data=halludial, ragtruth, faithcritic, ..."
        raise UserError(f"example {shorten(example.id)} has no label", place=example.source, hint=hint)
    return _WRITERS[ask](example)


def _verdict(example: Example) -> str:
    return YES if example.label == HALLUCINATED else NO


def _judgement(example: Example) -> str:
    if example.target:
        return example.target.strip()
    quoted = ", ".join(f'"{part}"' for part in _parts(example))
    return f"{_verdict(example)}. {quoted}".rstrip(" ")


def _spans(example: Example) -> str:
    if example.spans is None:
        hint = "use model.ask=verdict, or data with spans: data=ragtruth, spans"
        raise UserError(f"example {shorten(example.id)} has no spans", place=example.source, hint=hint)
    return json.dumps({LIST_KEY: _parts(example)}, ensure_ascii=False)


def _parts(example: Example) -> list[str]:
    spans = sorted(example.spans or (), key=lambda span: (span.start, span.end))
    return list(dict.fromkeys(example.response[span.start : span.end].strip() for span in spans))


_WRITERS: Mapping[str, Callable[[Example], str]] = {VERDICT: _verdict, JUDGEMENT: _judgement, SPANS: _spans}
TRAINABLE = tuple(_WRITERS)  # ways of prompting that a judge can be trained for
