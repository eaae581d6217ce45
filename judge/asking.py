"""Defines the ways to prompt a judge: prompt, form of the reply, parsing, and the target reply for training."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.inference.text import Form
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Span
from judge.options import (
    CHOICES,
    FIRST_WORD,
    JSON,
    JUDGEMENT,
    LAST_LINE,
    NO,
    SPANS,
    STEPS,
    TEXT,
    VERDICT,
    YES,
    PromptHeader,
)
from judge.reply import (
    LIST_KEY,
    locate_all,
    quoted_parts,
    read_first_word,
    read_keys,
    read_last_line,
    read_list,
    read_pattern,
    read_verdict,
    without_thoughts,
)

LISTS = (f'{{"{LIST_KEY}": ["', f'{{"{LIST_KEY}": []')  # beginnings of a list with parts and of an empty list
SPANS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {LIST_KEY: {"type": "array", "items": {"type": "string"}}},
    "required": [LIST_KEY],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """What a judge's reply says.

    Args:
        label: hallucinated, faithful, or unparsed if the reply has no verdict.
        spans: The quoted parts that are found in the response.
        rationale: The reply without its verdict.
        text: The whole reply.
        num_unlocated: Quoted parts that are not found in the response.
    """

    label: str
    spans: tuple[Span, ...] = ()
    rationale: str = ""
    text: str = ""
    num_unlocated: int = 0


Parse = Callable[[str, str], ParsedReply]  # from a reply and the judged response


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


def parse_verdict(text: str, response: str) -> ParsedReply:
    """Parses a verdict alone."""
    return ParsedReply(label=read_verdict(text), text=text)


def parse_judgement(text: str, response: str, words: tuple[str, str] | None = None) -> ParsedReply:
    """Parses a verdict, quoted parts, and the explanation.

    Args:
        words: Those of the verdict; None also reads Yes or No in a JSON object.
    """
    label = read_first_word(text, words) if words else read_verdict(text)
    reply = without_thoughts(text)
    rationale = reply if label == UNPARSED else reply.lstrip(" \t\n\"'`*_").partition(" ")[2].strip()
    if label != HALLUCINATED:  # quotations in a faithful verdict are no hallucinations
        return ParsedReply(label=label, rationale=rationale, text=text)
    spans, missed = locate_all(quoted_parts(reply), response)
    return ParsedReply(label=label, spans=spans, rationale=rationale, text=text, num_unlocated=missed)


def parse_steps(text: str, response: str, words: tuple[str, str] = CHOICES) -> ParsedReply:
    """Parses the verdict in the last line; the lines before it are the explanation."""
    rationale = without_thoughts(text).rpartition("\n")[0].strip()
    return ParsedReply(label=read_last_line(text, words), rationale=rationale, text=text)


def parse_text(text: str, response: str, words: tuple[str, str]) -> ParsedReply:
    """Parses the verdict by two patterns."""
    return ParsedReply(label=read_pattern(text, words), rationale=without_thoughts(text), text=text)


def parse_json(text: str, response: str, header: PromptHeader) -> ParsedReply:
    """Parses the keys that a prompt names; the parts of a faithful verdict are no spans."""
    label, found = read_keys(text, header.verdict, header.spans or [], header.words)
    named = [(part, key) for key, parts in found.items() for part in parts if label == HALLUCINATED]
    labels = [key for _, key in named] if header.label_set else []
    spans, missed = locate_all([part for part, _ in named], response, labels, header.label_set or "")
    return ParsedReply(label=label, spans=spans, text=text, num_unlocated=missed)


def parse_spans(text: str, response: str) -> ParsedReply:
    """Parses a list of parts; an empty list means faithful."""
    parts = read_list(text)
    if parts is None:
        return ParsedReply(label=UNPARSED, text=text)
    spans, missed = locate_all(parts, response)
    return ParsedReply(label=HALLUCINATED if parts else FAITHFUL, spans=spans, text=text, num_unlocated=missed)


ASKINGS = {
    VERDICT: Asking(prompt=VERDICT, parse=parse_verdict, new_tokens=4, form=Form(choices=CHOICES)),
    JUDGEMENT: Asking(prompt=JUDGEMENT, parse=parse_judgement, new_tokens=300),
    STEPS: Asking(prompt=STEPS, parse=parse_steps, new_tokens=600, choices=None),
    SPANS: Asking(prompt=SPANS, parse=parse_spans, new_tokens=512, choices=LISTS, form=Form(schema=SPANS_SCHEMA)),
}


def declared_asking(ask: str, header: PromptHeader) -> Asking:
    """Builds a way to prompt a judge for a reply in the form that the prompt declares."""
    asking, words = ASKINGS[ask], header.words
    if header.reply is None:
        return asking
    if header.reply == FIRST_WORD:
        form = Form(choices=words) if asking.form else None
        return replace(asking, parse=partial(parse_judgement, words=words), choices=words, form=form)
    parse: Parse = {
        LAST_LINE: partial(parse_steps, words=words),
        TEXT: partial(parse_text, words=words),
        JSON: partial(parse_json, header=header),
    }[header.reply]
    new_tokens = max(asking.new_tokens, ASKINGS[STEPS if header.reply == LAST_LINE else JUDGEMENT].new_tokens)
    form = Form(schema=_schema(header)) if header.reply == JSON else None
    return replace(asking, parse=parse, new_tokens=new_tokens, choices=None, form=form)


def _schema(header: PromptHeader) -> dict[str, Any]:
    keys = {header.verdict: {"enum": [word.lower() for word in header.words]}} if header.verdict else {}
    keys |= dict.fromkeys(header.spans or (), SPANS_SCHEMA["properties"][LIST_KEY])
    return {**SPANS_SCHEMA, "properties": keys, "required": list(keys)}


NO_HEADER = PromptHeader()


def target_text(example: Example, ask: str, header: PromptHeader = NO_HEADER) -> str:
    """Writes the target reply: a verdict, the dataset's judgement or one made from its spans, or the list of spans.

    Args:
        header: Declares another form of the reply.

    Raises:
        UserError: The example has no label, no spans where the reply has them, or the reply is free text.
    """
    if example.label is None:
        hint = "train a judge on labelled data: data=halludial, ragtruth, faithcritic, ..."
        raise UserError(f"example {shorten(example.id)} has no label", place=example.source, hint=hint)
    if header.reply is None or (header.reply == FIRST_WORD and header.words == CHOICES):
        return _WRITERS[ask](example)
    if header.reply == TEXT:
        problem, hint = "no row tells the right reply to a prompt with reply: text", "give a file: judge.examples=FILE"
        raise UserError(problem, hint=hint)
    word = header.words[example.label != HALLUCINATED]
    if header.reply != JSON:
        return word
    verdict = {header.verdict: word.lower()} if header.verdict else {}
    keys = header.spans or []
    lists = {key: _listed_parts(example) if key == keys[0] else [] for key in keys}
    return json.dumps({**verdict, **lists}, ensure_ascii=False)


def _verdict(example: Example) -> str:
    return YES if example.label == HALLUCINATED else NO


def _judgement(example: Example) -> str:
    if example.target:
        return example.target.strip()
    quoted = ", ".join(f'"{part}"' for part in _parts(example))
    return f"{_verdict(example)}. {quoted}".rstrip(" ")


def _spans(example: Example) -> str:
    return json.dumps({LIST_KEY: _listed_parts(example)}, ensure_ascii=False)


def _listed_parts(example: Example) -> list[str]:
    if example.spans is None:
        hint = "use model.ask=verdict, or data with spans: data=ragtruth, pairs"
        raise UserError(f"example {shorten(example.id)} has no spans", place=example.source, hint=hint)
    return _parts(example)


def _parts(example: Example) -> list[str]:
    spans = sorted(example.spans or (), key=lambda span: (span.start, span.end))
    return list(dict.fromkeys(example.response[span.start : span.end].strip() for span in spans))


_WRITERS: Mapping[str, Callable[[Example], str]] = {VERDICT: _verdict, JUDGEMENT: _judgement, SPANS: _spans}
