"""Fields of a record that several datasets fill in the same way."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any
from unicodedata import normalize

from data_modules.reading.rows import BadRow, ReadReport, Row, reading
from faithkit.arguments import ASSISTANTS, read_text, read_turns, wrong
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, UNTYPED, WHOLE_KNOWLEDGE, Example, Span, Turn, span_type

SEEKER, WIZARD = "seeker", "wizard"  # who asks and who answers, in every dialogue dataset
SPEAKER_MARKS = {SEEKER: "[Human]", WIZARD: "[Assistant]"}  # in a dialogue written as one text
YES_NO = {"yes": HALLUCINATED, "no": FAITHFUL}  # the answer to: is it hallucinated?
PROBABILITY = "probability"  # in `meta`: a weak label
QUOTES = "'\"`"
ANY = "all"  # of an option that names several things
Names = str | Sequence[str]
# The facets of examples with their fields in `meta`; split and turn are fields of the example.
FACETS: Mapping[str, tuple[str, ...]] = {
    "split": (),
    "task": ("task",),
    "corpus": ("corpus", "data_source"),
    "scenario": ("scenario",),
    "domain": ("domain",),
    "model": ("model", "model_name"),
    "turn": ("turn",),
    "quality": ("quality",),
    "temperature": ("temperature",),
    "severity": ("severity",),
    "topic": ("topic", "movie"),
    "topic_source": ("topic_source",),
}
RESERVED = (WHOLE_KNOWLEDGE, PROBABILITY)  # set in `meta` by this program, never by a row


def chosen(names: Names, option: str = "it") -> set[str]:
    """Returns the names that an option gives, one or a list, in lower case.

    Args:
        option: Its name in errors.

    Raises:
        UserError: It is neither a name nor a list of names.
    """
    if (
        not isinstance(names, Collection)
        or isinstance(names, Mapping)
        or not all(isinstance(name, str) for name in names)
    ):
        raise UserError(f"{option} is {shorten(names)}", hint=f"use {option}=NAME, or {option}=[ONE,OTHER]")
    return {name.lower() for name in ([names] if isinstance(names, str) else names)}


def alternate(texts: Sequence[str]) -> tuple[Turn, ...]:
    """Returns a history in which two speakers take turns and the seeker spoke last."""
    speakers = (SEEKER, WIZARD)
    return tuple(Turn(speaker=speakers[(len(texts) - 1 - i) % 2], text=text) for i, text in enumerate(texts))


def last_turn(row: Row, name: str) -> tuple[Turn, ...]:
    """Reads a history of one turn; it is empty if the response opens the dialogue."""
    text = row.text(name, empty_ok=True)
    return (Turn(speaker=SEEKER, text=text),) if text.strip() else ()


def read_history(history: Any, place: str | None = None) -> tuple[Turn, ...]:
    """Reads the turns that a caller passes, oldest first; where no speaker is named, two take turns.

    Raises:
        UserError: Something is not a text, or the history is empty.
    """
    if isinstance(history, Sequence) and not len(history):
        raise wrong("history", "a list of turns", history, "give at least the last turn: history=[...]", place)
    turns = read_turns("history", history, place)
    texts = [
        read_text("history", text, f"{place}{', ' if place else ''}turn {number} of the history")
        for number, (_, text) in enumerate(turns)
    ]
    return tuple(
        turn if speaker is None else replace(turn, speaker=WIZARD if speaker.lower() in ASSISTANTS else speaker)
        for (speaker, _), turn in zip(turns, alternate(texts), strict=True)
    )


def other_fields(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Collects the other texts, numbers and truth values of a row, for `meta`; names with a meaning are left out."""
    kept = (str, int, float, bool, NoneType)
    return {n: v for n, v in values.items() if n not in known and n not in RESERVED and isinstance(v, kept)}


_MARKS = {code: None for code in range(128) if not chr(code).isalnum()}


def text_group(text: str) -> str:
    """Names a group by a text: the same name for texts that differ only in case, white space, punctuation and form.

    BEGIN's four models had one source tokenised in different ways ("end." and "end ."), and texts of a Mac or a PDF
    have a letter and its accent as two characters.
    """
    if text.isascii():  # the same, ten times as fast
        kept = text.lower().translate(_MARKS) or text
    else:
        text = normalize("NFC", text)  # a letter with its accent is alphanumeric, an accent by itself is not
        kept = "".join(character for character in text.lower() if character.isalnum()) or text
    return hashlib.blake2b(kept.encode(), digest_size=12).hexdigest()


COUNTING = "offsets count characters of the answer from 0, and the end is the place behind the last one"


def read_spans(
    row: Row,
    name: str,
    answer: str,
    label_name: str,
    labels: Mapping[str, str],
    default: str | None = None,
    label_set: str = "",
) -> list[tuple[Span, Row]]:
    """Reads the spans of the list under `name` by their place, each with its object; they may overlap and repeat.

    Args:
        label_name: The field of an object that holds its label.
        labels: Labels by the way they are spelt, in lower case.
        default: The label of a span that names none; None if it must.
        label_set: The set in `faithkit.records` that the labels belong to; empty for spans without a type.
    """
    found = []
    for index, values in enumerate(row.items(name)):
        with reading(f"{name}[{index}]"):
            item = row.inside(values)
            label = default if default and item.values.get(label_name) is None else item.choice(label_name, labels)
            start, end = (whole_number(item, name, COUNTING) for name in ("start", "end"))
            if end > len(answer):
                raise BadRow(f"field 'end' is {end}, but the answer has {len(answer)} characters", hint=COUNTING)
            if start > end:
                raise BadRow(f"field 'start' is {start}, behind its 'end' {end}", hint=COUNTING)
            if start == end:
                raise BadRow(f"'start' and 'end' are both {start}: the span holds nothing", hint=COUNTING)
            text = item.values.get("text")
            if text is not None and text != answer[start:end]:
                here = f"the answer has {shorten(answer[start:end])} at {start} to {end}"
                raise BadRow(f"field 'text' is {shorten(text)}, but {here}", hint=COUNTING)
            found.append((Span(start=start, end=end, label=label, **span_type(label_set, label)), item))
    return sorted(found, key=lambda each: (each[0].start, each[0].end))


def locate_span(
    text: str, start: int, end: int, answer: str, report: ReadReport, label: str = UNTYPED, label_set: str = ""
) -> Span:
    """Makes a span of offsets and the text there; where they disagree, the only place of the text counts.

    Args:
        label_set: As in `read_spans`.

    Raises:
        BadRow: The span is outside the answer or empty, or the text is not there, or at several places.
    """
    if not 0 <= start < end <= len(answer):
        problem = f"a span from {start} to {end} is none of the answer's {len(answer)} characters"
        raise BadRow(problem, hint=COUNTING)
    if answer[start:end] != text:
        if not text or answer.count(text) != 1:
            here = f"the answer has {shorten(answer[start:end])} at {start} to {end}"
            raise BadRow(f"the text of a span is {shorten(text)}, but {here}", hint=COUNTING)
        report.count("span moved to its text, which its offsets miss")
        start = answer.index(text)
        end = start + len(text)
    return Span(start=start, end=end, label=label, **span_type(label_set, label))


def read_token_spans(row: Row, tokens_name: str, marks_name: str, text: str) -> tuple[Span, ...]:
    """Makes spans of marked tokens: those that follow each other are one.

    Args:
        tokens_name: The field of the tokens, which are the text without its white space.
        marks_name: The field with 1 or true for each marked token, and 0 or false for the others.
    """
    # The marks are checked first: a wrong number of them is the clearer error.
    marks, num_tokens = row.items(marks_name), len(row.items(tokens_name))
    if len(marks) != num_tokens:
        raise BadRow(f"field {marks_name!r} has {len(marks)} entries for {num_tokens} tokens")
    for place, mark in enumerate(marks):
        if mark not in (0, 1):
            raise BadRow(f"field '{marks_name}[{place}]' must be 0 or 1, got {shorten(mark)}")
    runs: list[list[int]] = []
    follows = False
    for (start, end), mark in zip(align_tokens(text, row.texts(tokens_name), tokens_name), marks, strict=True):
        if start == end:  # a token of white space
            continue
        if mark and follows:
            runs[-1][1] = end
        elif mark:
            runs.append([start, end])
        follows = bool(mark)
    return tuple(Span(start=start, end=end, label=UNTYPED) for start, end in runs)


def align_tokens(text: str, tokens: Sequence[str], name: str = "tokens") -> list[tuple[int, int]]:
    """Finds start and end of every token in the text: in order, with nothing but white space between them.

    XSum's token labels escape quotes (`bahrain\\'s`), and not every copy of them does so in tokens and summaries alike:
    a backslash before a quote may be in one and missing in the other. A token of white space has no width.

    Args:
        name: The field of the tokens, for errors.
    """
    places, end = [], 0
    for number, token in enumerate(tokens):
        while end < len(text) and text[end].isspace():
            end += 1
        if token.isspace():
            places.append((end, end))
            continue
        start, inside = end, 0
        while inside < len(token):
            if text[end : end + 1] == token[inside]:
                end, inside = end + 1, inside + 1
            elif _escapes(text, end):
                end += 1
            elif _escapes(token, inside):
                inside += 1
            else:
                break
        if inside < len(token) or end == start:
            goes_on = shorten(text[start : start + 40])
            raise BadRow(f"field '{name}[{number}]' is {shorten(token)}, but the text goes on with {goes_on}")
        places.append((start, end))
    if rest := text[end:].strip():
        raise BadRow(f"field {name!r} ends before the text does: {shorten(rest[:40])} is left")
    return places


def _escapes(text: str, place: int) -> bool:
    return text[place : place + 1] == "\\" and text[place + 1 : place + 2] in tuple(QUOTES)


def whole_number(item: Row, name: str, hint: str | None = None) -> int:
    """Returns the whole number under `name`, at least 0."""
    value = item.values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadRow(f"field {name!r} must be a whole number from 0, got {shorten(value)}", hint=hint)
    return value


def flag(item: Row, name: str) -> bool:
    """Returns the true or false under `name`; false where it is not given."""
    value = item.values.get(name, False)
    if not isinstance(value, bool):
        raise BadRow(f"field {name!r} must be true or false, got {shorten(value)}")
    return value


def identifier(row: Row, name: str) -> str:
    """Returns the id under `name`: text, or a whole number as text."""
    value = row.values.get(name)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else row.text(name)


def read_facet(example: Example, facet: str) -> Any:
    """Returns the value of a facet; None if the example has none."""
    if facet == "split":
        return example.split
    given = next((found for name in FACETS.get(facet, (facet,)) if (found := example.meta.get(name)) is not None), None)
    if facet == "turn" and given is None:
        return len(example.history) // 2 + 1  # counts the responder's turns, whoever spoke first
    return given if given is None or isinstance(given, int | str) else str(given)
