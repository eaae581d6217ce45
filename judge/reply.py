"""Replies of a judge: the ways to ask for them, how they are parsed, and the target replies of training.

Parsed are yes or no, quotations and JSON. A reply in another form is unparsed.

A verdict is the word Yes or No at the beginning of a reply (`read_verdict`), or of its last line (`parse_steps`), in
any case and with any marks around it. Longer words (None, Nobel, Yesterday) and phrases with another meaning (No doubt,
Yes and no) are no verdict.

>>> read_verdict("**Yes**, it says twelve."), read_verdict("Nobel won it."), read_verdict("No doubt it is wrong.")
('hallucinated', 'unparsed', 'unparsed')
>>> quoted_parts('Yes. The reply says "twelve countries", not ten.')
['twelve countries']

Quoted parts are looked up in the response by the first of these rules that finds them:

1. exact: the response contains the part;
2. normalised: the response contains its words in order, without case, punctuation and white space;
3. fuzzy: of all word sequences of the response whose length differs by at most a fifth, the one with the highest
   similarity to the part, if this is at least `MIN_SIMILARITY`.

>>> response = "It flows through twelve countries, it seems."
>>> [response[slice(*locate(part, response))] for part in ("twelve countries", "Twelve  countries!")]
['twelve countries', 'twelve countries']
>>> locate("a red fox", response) is None
True
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from typing import Any

from data_modules.reading.fields import YES_NO
from faithkit.errors import UserError, shorten
from faithkit.inference.text import Form
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, UNTYPED, Example, Span, span_type
from faithkit.words import unicode_words, word_places
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

_THOUGHTS = re.compile(r"^\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
MARKS = "\\s\"'`*_#>()\\[\\]“”„‟‘’‚«»‹›「」『』"
# Continuations that change the meaning of yes or no.
_OTHERS = "(?!\\s+(?:and|or|but\\s+also|doubt|one|idea|longer|matter|way|wonder|more|less|problem)\\b)"
_LABELLED = re.compile(rf"^[{MARKS}]*(?:final\s+)?(?:answer|verdict|judge?ment)[{MARKS}]*[:=]", re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL | re.IGNORECASE)
_CUT_LIST = re.compile(r'\s*(?:```(?:json)?\s*)?(?:\{\s*"[^"]*"\s*:\s*)?\[([^\]]*)\Z', re.IGNORECASE)  # without an end
_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"(?=\s*(?:,|\Z))', re.DOTALL)
# Opening quotation marks with their closing marks: English, German, French, Polish, Swedish, Chinese and Japanese.
_CLOSING = {
    '"': '"', "“": "”“", "”": "”", "„": "“”", "‟": "”", "«": "»", "»": "«»", "‹": "›", "›": "‹", "「": "」", "『": "』",
    "‘": "’", "‚": "‘’", "`": "`",
}  # fmt: skip
LIST_KEY = "hallucinations"  # as in the built-in prompt
LIST_KEYS = (LIST_KEY, "hallucination list", "hallucination_list", "spans")
VERDICT_KEYS = ("hallucinated", "hallucination", "verdict", "answer", "judgement", "judgment")
MIN_SIMILARITY = 0.8  # fraction of the words of both that must match
MAX_WORDS = 400  # of a part in fuzzy matching
LISTS = (f'{{"{LIST_KEY}": ["', f'{{"{LIST_KEY}": []')  # beginnings of a list with parts and of an empty list
SPANS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {LIST_KEY: {"type": "array", "items": {"type": "string"}}},
    "required": [LIST_KEY],
    "additionalProperties": False,
}
NO_HEADER = PromptHeader()


def without_thoughts(text: str) -> str:
    """Removes the reasoning before the reply of a reasoning model."""
    return _THOUGHTS.sub("", text).strip()


def read_first_word(text: str, words: tuple[str, str]) -> str:
    """Parses one of two words at the beginning of a reply: that for hallucinated, that for faithful; else unparsed."""
    either = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    pattern = rf"^[{MARKS}]*({either})(?![\w’'-]){_OTHERS}"
    found = re.match(pattern, without_thoughts(text), re.IGNORECASE)
    return _label_of(found[1], words) if found else UNPARSED


def _label_of(word: str, words: tuple[str, str]) -> str:
    folded = [one.casefold() for one in words]
    return (HALLUCINATED, FAITHFUL, UNPARSED)[[*folded, word.casefold()].index(word.casefold())]


def read_verdict(text: str) -> str:
    """Parses hallucinated or faithful at the beginning of a reply, or in a JSON object; else unparsed."""
    if (label := read_first_word(text, CHOICES)) != UNPARSED:
        return label
    values = _read_json(without_thoughts(text))
    if isinstance(values, dict):
        for key in VERDICT_KEYS:
            value = values.get(key)
            if isinstance(value, bool):
                return HALLUCINATED if value else FAITHFUL
            if isinstance(value, str) and value.strip().lower() in YES_NO:
                return YES_NO[value.strip().lower()]
    return UNPARSED


def read_pattern(text: str, words: tuple[str, str]) -> str:
    """Parses the verdict by two regular expressions: that which matches first, at one place the longer match.

    >>> words = ("hallucinat", "(no|not) hallucinat")
    >>> read_pattern("It is hallucinated.", words), read_pattern("There is no hallucination.", words)
    ('hallucinated', 'faithful')
    """
    found = [re.search(word, without_thoughts(text), re.IGNORECASE) for word in words]
    places = [(match.start(), -match.end()) if match else (len(text), 0) for match in found]
    return UNPARSED if places[0] == places[1] else (HALLUCINATED, FAITHFUL)[places.index(min(places))]


def _read_parts(value: Any) -> list[str] | None:
    """Returns the texts of a list, or a text by itself; None for another value."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        return None
    return [one for one in values if one.strip()]


def read_list(text: str) -> list[str] | None:
    """Parses the parts in a JSON list, or in an object with a list; returns None for another reply.

    Of a list that was cut off at the maximum length the complete texts count.

    >>> read_list('{"hallucinations": ["red fox", "gree')
    ['red fox']
    """
    values = _read_json(without_thoughts(text))
    if values is None and (cut := _CUT_LIST.match(without_thoughts(text))):
        try:
            values = [json.loads(one) for one in _TEXTS.findall(cut[1])] or None
        except ValueError:
            return None
    if isinstance(values, dict):
        lists = [values[key] for key in LIST_KEYS if key in values]
        values = lists[0] if lists else None
    return _read_parts(values) if isinstance(values, list) else None


def quoted_parts(text: str) -> list[str]:
    """Returns the quotations in a text, in order, with the quotation marks of several languages, without nesting."""
    reply, found, place = without_thoughts(text), [], 0
    while place < len(reply):
        closing = _CLOSING.get(reply[place])
        if closing is None or (reply[place] in "'‘‚" and place and reply[place - 1].isalnum()):
            place += 1
            continue
        ends = [end for mark in closing if (end := reply.find(mark, place + 1)) >= 0]
        if not ends:
            place += 1
            continue
        part = reply[place + 1 : min(ends)]
        if part.strip():
            found.append(part.strip())
        place = min(ends) + 1
    return found


def _read_json(text: str) -> Any:
    """Parses a reply that is JSON, with or without a code fence; returns None for another reply."""
    fenced = _FENCE.search(text)
    try:
        return json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return None


def locate(part: str, response: str) -> tuple[int, int] | None:
    """Returns the first and the end character of a part in a response; None if it is not found."""
    part = part.strip()
    if not part:
        return None
    if (begin := response.find(part)) >= 0:
        return begin, begin + len(part)
    places = list(word_places(response))
    response_words = [word.casefold() for *_, word in places]
    part_words = [word.casefold() for word in unicode_words(part)]
    if not part_words or not response_words:
        return None
    size = len(part_words)
    for begin in range(len(response_words) - size + 1):
        if response_words[begin : begin + size] == part_words:
            return places[begin][0], places[begin + size - 1][1]
    if size > MAX_WORDS:
        return None
    # The most similar word sequence; of equal ones the shortest and first.
    matcher: SequenceMatcher[str] = SequenceMatcher(autojunk=False)
    matcher.set_seq2(part_words)  # the matcher caches this side
    slack, words = max(1, size // 5), set(part_words)
    best, found = MIN_SIMILARITY, None
    for length in range(max(1, size - slack), size + slack + 1):
        for begin in range(len(response_words) - length + 1):
            sequence = response_words[begin : begin + length]
            # An upper bound of the similarity, which excludes most sequences.
            shared = sum(word in words for word in sequence)
            if 2 * shared / (length + size) < best or sequence[0] not in words or sequence[-1] not in words:
                continue
            matcher.set_seq1(sequence)
            ratio = matcher.ratio()
            if ratio > best or (ratio == best and found is None):
                best, found = ratio, (places[begin][0], places[begin + length - 1][1])
    return found


def locate_all(
    parts: Sequence[str], response: str, labels: Sequence[str] = (), label_set: str = ""
) -> tuple[tuple[Span, ...], int]:
    """Finds several parts; returns spans in order, and the number of parts not found.

    Adjacent spans of one label are merged.

    Args:
        labels: The label of each part; empty for parts without.
        label_set: The set in `faithkit.records` that the labels belong to.
    """
    places = [locate(part, response) for part in parts]
    labelled = zip(places, labels or [UNTYPED] * len(parts), strict=True)
    joined: list[tuple[int, int, str]] = []
    for begin, end, label in sorted((*place, label) for place, label in labelled if place is not None):
        if joined and begin <= joined[-1][1] and label == joined[-1][2]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]), label)
        else:
            joined.append((begin, end, label))
    spans = (Span(start=begin, end=end, label=label, **span_type(label_set, label)) for begin, end, label in joined)
    return tuple(spans), places.count(None)


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
    """A way to prompt a judge; its name is that of its prompt.

    Args:
        parse: Parses a reply.
        new_tokens: Maximum length of a reply.
        choices: The beginnings of a hallucinated and of a faithful reply, whose probabilities are computed without
            generation. None if the verdict comes last.
        form: The form that constrains the reply.
    """

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
    """Parses the verdict in the last line, with or without `Answer:`; the lines before it are the explanation."""
    reply = without_thoughts(text)
    lines = [line for line in reply.splitlines() if line.strip(" \t*_`")]
    label = read_first_word(_LABELLED.sub("", lines[-1]), words) if lines else UNPARSED
    return ParsedReply(label=label, rationale=reply.rpartition("\n")[0].strip(), text=text)


def parse_text(text: str, response: str, words: tuple[str, str]) -> ParsedReply:
    """Parses the verdict by two patterns."""
    return ParsedReply(label=read_pattern(text, words), rationale=without_thoughts(text), text=text)


def parse_json(text: str, response: str, header: PromptHeader) -> ParsedReply:
    """Parses a JSON object: the label by the key of the verdict, or by whether a list has a part; and parts by key.

    The parts of a faithful verdict are no spans.

    >>> header = PromptHeader(reply="json", verdict="found", spans=["parts"])
    >>> parsed = parse_json('{"found": "yes", "parts": ["a red fox"]}', "It is a red fox.", header)
    >>> parsed.label, [(span.start, span.end) for span in parsed.spans]
    ('hallucinated', [(6, 15)])
    >>> header = PromptHeader(reply="json", spans=["conflict", "baseless"])
    >>> parse_json('{"conflict": [], "baseless": ""}', "It is a red fox.", header).label
    'faithful'
    """
    values = _read_json(without_thoughts(text))
    if not isinstance(values, dict):
        return ParsedReply(label=UNPARSED, text=text)
    lists = {key: _read_parts(values.get(key)) for key in header.spans or []}
    value = values.get(header.verdict) if header.verdict else None
    if header.verdict is None:
        label = UNPARSED if None in lists.values() else HALLUCINATED if any(lists.values()) else FAITHFUL
    elif isinstance(value, bool) and header.words == CHOICES:
        label = HALLUCINATED if value else FAITHFUL
    else:
        label = _label_of(str(value).strip(), header.words)
    named = [(part, key) for key, parts in lists.items() for part in parts or () if label == HALLUCINATED]
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
    VERDICT: Asking(parse=parse_verdict, new_tokens=4, form=Form(choices=CHOICES)),
    JUDGEMENT: Asking(parse=parse_judgement, new_tokens=300),
    STEPS: Asking(parse=parse_steps, new_tokens=600, choices=None),
    SPANS: Asking(parse=parse_spans, new_tokens=512, choices=LISTS, form=Form(schema=SPANS_SCHEMA)),
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
    keys = {header.verdict: {"enum": [word.lower() for word in header.words]}} if header.verdict else {}
    keys |= dict.fromkeys(header.spans or (), SPANS_SCHEMA["properties"][LIST_KEY])
    form = Form(schema={**SPANS_SCHEMA, "properties": keys, "required": list(keys)}) if header.reply == JSON else None
    return replace(asking, parse=parse, new_tokens=new_tokens, choices=None, form=form)


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
    is_plain = header.reply is None or (header.reply == FIRST_WORD and header.words == CHOICES)
    has_lists = ask == SPANS if is_plain else header.reply == JSON and bool(header.spans)
    if has_lists and example.spans is None:
        hint = "use model.ask=verdict, or data with spans: data=ragtruth, pairs"
        raise UserError(f"example {shorten(example.id)} has no spans", place=example.source, hint=hint)
    spans = sorted(example.spans or (), key=lambda span: (span.start, span.end))
    parts = list(dict.fromkeys(example.response[span.start : span.end].strip() for span in spans))
    if is_plain:
        if ask == SPANS:
            return json.dumps({LIST_KEY: parts}, ensure_ascii=False)
        verdict_word = YES if example.label == HALLUCINATED else NO
        if ask == VERDICT:
            return verdict_word
        assert ask == JUDGEMENT, "no row tells the right reply to other prompts"
        if example.target:
            return example.target.strip()
        quoted = ", ".join(f'"{part}"' for part in parts)
        return f"{verdict_word}. {quoted}".rstrip(" ")
    if header.reply == TEXT:
        problem, hint = "no row tells the right reply to a prompt with reply: text", "give a file: judge.examples=FILE"
        raise UserError(problem, hint=hint)
    word = header.words[example.label != HALLUCINATED]
    if header.reply != JSON:
        return word
    verdict = {header.verdict: word.lower()} if header.verdict else {}
    keys = header.spans or []
    lists = {key: parts if key == keys[0] else [] for key in keys}
    return json.dumps({**verdict, **lists}, ensure_ascii=False)
