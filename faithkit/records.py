"""The records that flow through the system: examples in, predictions out.

A dataset file turns raw rows into `Example`s; a predictor turns them into `Prediction`s; metrics compare the two.
Passages of knowledge become one text here.

Spans have a type on two axes: the relation to the context, and the element that is wrong. Datasets and detectors name
spans in different ways; faithkit/span_types.toml gives the type of each of their labels.

>>> span_type("ragtruth", "subtle_baseless")
{'relation': 'unsupported_addition', 'element': 'claim'}
>>> span_type("another", "wrong")  # a label that is not in the table has no type
{'relation': None, 'element': None}
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from faithkit.errors import UserError, shorten

HALLUCINATED = "hallucinated"
FAITHFUL = "faithful"
UNPARSED = "unparsed"
UNSURE = "unsure"  # for people: a faithful label whose probability is near the threshold
CALLS = "calls"  # in an example's `meta`: what the assistant of a conversation had called, as JSON
WHOLE_KNOWLEDGE = "whole_knowledge"  # in an example's `meta`: the knowledge before it was cut
LABELS = (FAITHFUL, HALLUCINATED)  # the position is the class index: P(hallucinated) is column 1
# The types of hallucinated spans in RAGTruth (Niu et al. 2024, section 3). Evident: clear from the source; subtle: a
# matter of wording. Conflict: the source contradicts it; baseless: the source does not mention it.
SPAN_TYPES = ("evident_conflict", "subtle_conflict", "evident_baseless", "subtle_baseless")
UNTYPED = "hallucination"  # of corpora without types
SPAN_LABELS = (*SPAN_TYPES, UNTYPED)
PASSAGE_BREAK = "\n\n"
TEXT_KEYS = ("text", "page_content", "content", "passage")  # of a passage object, as retrievers write them
# The context says something else; it neither says nor contradicts it; it has no such thing as is named.
Relation = Literal["contradiction", "unsupported_addition", "fabricated_reference"]
Element = Literal[
    "number",
    "date",
    "unit",
    "entity",
    "role",
    "negation",
    "quantifier",
    "value",
    "identifier",
    "section",
    "claim",
    "action",
]
RELATIONS: tuple[Relation, ...] = get_args(Relation)
ELEMENTS: tuple[Element, ...] = get_args(Element)
AXES: Mapping[str, tuple[str, ...]] = {"relation": RELATIONS, "element": ELEMENTS}
RAGTRUTH = "ragtruth"  # the label set of `SPAN_TYPES`
TABLE = Path(__file__).with_name("span_types.toml")


class SpanType(TypedDict):
    """The type of a span; None where an axis is unknown."""

    relation: Relation | None
    element: Element | None


_NO_TYPE: SpanType = {"relation": None, "element": None}


@cache
def label_sets() -> Mapping[str, Mapping[str, SpanType]]:
    """Reads the table: for each label set the types of its labels."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: {label: {**_NO_TYPE, **axes} for label, axes in rows.items()} for name, rows in found.items()}


def span_type(label_set: str, label: str) -> SpanType:
    """Returns the type of a label of a label set, in any case; unknown ones have none."""
    return label_sets().get(label_set, {}).get(label.lower()) or _NO_TYPE


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One utterance of a dialogue's history."""

    speaker: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Why a span is marked: the closest sentence of the context, and what it says instead.

    Args:
        text: The sentence, `context[start:end]`; empty if no sentence is close.
        start: Its first character in the passage.
        end: The character after its last.
        passage: The number of the passage, from 0; a context that is one text is passage 0.
        reason: Such as `the context says 24 months`, `negated in the context`, `not in the context`.
    """

    text: str = ""
    start: int = 0
    end: int = 0
    passage: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch `text[start:end]` of a response, in characters.

    Args:
        label: Its type, in the words of the dataset or detector.
        relation: Its relation to the context (`faithkit.records`), None if unknown.
        element: What is wrong in it, None if unknown.
        score: The probability that it is unsupported.
        text: The marked characters; empty in the records of datasets, whose examples hold the response.
        evidence: The closest sentence of the context and the reason, where a detector gives them.
    """

    start: int
    end: int
    label: str
    score: float | None = None
    text: str = ""
    evidence: Evidence | None = None
    relation: Relation | None = None
    element: Element | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a span needs 0 <= start <= end, got {self.start} and {self.end}")
        if self.relation is None and self.element is None:
            return
        for axis, choices in AXES.items():
            value = getattr(self, axis)
            if value is not None and value not in choices:
                known = f"{', '.join(choices)}, or null"
                raise ValueError(f"a span's {axis} must be one of {known}, got {shorten(value)}")

    @property
    def type(self) -> str:
        """The label, by the name in results."""
        return self.label

    @property
    def probability(self) -> float | None:
        """The score, by the name in results."""
        return self.score


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One response with its knowledge, its history and the labels that its dataset gives.

    Args:
        id: The id in the corpus, or `<file stem>:<row>`.
        group: The dialogue or document; splits and bootstraps never cut through it.
        label: hallucinated, faithful, or None if the dataset does not judge.
        spans: None if the dataset does not mark spans; empty where it marks none.
        tags: The labels of the dataset, as it spells them.
    """

    id: str
    source: str
    split: str
    group: str
    knowledge: str
    response: str
    history: tuple[Turn, ...] = ()
    reference: str | None = None
    original: str | None = None
    label: str | None = None
    spans: tuple[Span, ...] | None = None
    tags: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    target: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Written out: this runs for every row of every corpus, and a message is worth building only for a wrong one.
        if not (self.id and self.source and self.split and self.group):
            empty = [name for name in ("id", "source", "split", "group") if not getattr(self, name)]
            raise ValueError(f"{empty[0]} is empty")
        if not (isinstance(self.knowledge, str) and isinstance(self.response, str)):
            raise ValueError(f"knowledge and response must be text, got {shorten((self.knowledge, self.response))}")
        if self.label is not None and self.label not in LABELS:
            raise ValueError(f"label must be one of {LABELS}, got {self.label!r}")
        for span in self.spans or ():
            if span.end > len(self.response):
                raise ValueError(f"span {span} reaches beyond the response")

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain containers, without fields that equal their defaults."""
        return {f.name: _plain(v) for f in fields(self) if (v := getattr(self, f.name)) != _DEFAULTS.get(f.name)}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Example":
        """Reverses `to_dict`."""
        values = dict(row)
        if "history" in values:
            values["history"] = tuple(Turn(**turn) for turn in values["history"])
        if values.get("spans") is not None:
            values["spans"] = tuple(span_from_dict(span) for span in values["spans"])
        for name in ("tags", "negatives"):
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A detector's result for one response, or a generator's response to one example.

    Every detector returns it, for single responses, lists and examples alike. `probability` is the score, by the
    name that tables and the service use.

    Args:
        label: hallucinated, faithful or unparsed; None without a judgement, or if the detector abstains.
        score: P(hallucinated), None if the detector gives none.
        text: The response of a generator, or a judge's whole reply.
        reason: What a judge says besides its label.
        failed: Its request failed, and `text` is the reason: no reply, and never read as one.
        language: That of the text, if the detector does not read it (`faithkit.languages`).
    """

    id: str
    label: str | None = None
    score: float | None = None
    spans: tuple[Span, ...] = ()
    text: str = ""
    reason: str = ""
    failed: bool = False
    language: str | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("id is empty")
        allowed = (*LABELS, UNPARSED)
        if self.label is not None and self.label not in allowed:
            raise ValueError(f"label must be one of {allowed}, or null, got {shorten(self.label)}")
        # A bool is a whole number to Python, but a label rather than a probability.
        is_number = isinstance(self.score, int | float) and not isinstance(self.score, bool)
        if self.score is not None and not (is_number and 0 <= self.score <= 1):
            raise ValueError(f"score must lie in 0..1, got {shorten(self.score)}")

    @property
    def probability(self) -> float | None:
        """P(hallucinated)."""
        return self.score

    def verdict(self, unsure_from: float | None) -> str | None:
        """Returns the verdict for people: the label, or unsure for a faithful one that is not far below the threshold.

        Args:
            unsure_from: The probability from which a faithful label is unsure; None for never.
        """
        is_near = unsure_from is not None and self.score is not None and self.score >= unsure_from
        return UNSURE if self.label == FAITHFUL and is_near else self.label

    def to_dict(self) -> dict[str, Any]:
        """Converts to the five keys of a predictions file; `reason`, `language` and `failed` only where they hold."""
        spans = [span_to_dict(span) for span in self.spans]
        row = {"id": self.id, "label": self.label, "score": self.score, "spans": spans, "text": self.text}
        if self.reason:
            row["reason"] = self.reason
        if self.language:
            row["language"] = self.language
        return {**row, "failed": True} if self.failed else row

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Prediction":
        """Reverses `to_dict`; keys that other tools add are ignored."""
        return cls(
            id=row["id"],
            label=row.get("label"),
            score=row.get("score"),
            spans=tuple(span_from_dict(span) for span in row.get("spans") or ()),
            text=row.get("text") or "",
            reason=row.get("reason") or "",
            failed=row.get("failed") is True,
            language=found if isinstance(found := row.get("language"), str) else None,
        )


def span_to_dict(span: Span) -> dict[str, Any]:
    """Converts a span to the keys of a predictions file: four always, its type, text and evidence where known."""
    row: dict[str, Any] = {"start": span.start, "end": span.end, "label": span.label, "score": span.score}
    row |= {axis: value for axis in AXES if (value := getattr(span, axis)) is not None}
    if span.text:
        row["text"] = span.text
    if span.evidence is not None:
        row["evidence"] = asdict(span.evidence)
    return row


def span_from_dict(row: Mapping[str, Any]) -> Span:
    """Reverses `span_to_dict`."""
    evidence = row.get("evidence")
    known = {"text": row.get("text") or "", "evidence": None if evidence is None else Evidence(**evidence)}
    return Span(**{**row, **known})


_DEFAULTS: dict[str, Any] = {"history": (), "tags": (), "negatives": (), "meta": {}}


def _plain(value: Any) -> Any:
    if isinstance(value, Turn):
        return {"speaker": value.speaker, "text": value.text}
    if isinstance(value, Span):
        return {name: v for name, v in span_to_dict(value).items() if v is not None}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def passage_text(passage: Any) -> Any:
    """Returns the text of a passage object such as {title, text}; returns any other value unchanged.

    Other fields, titles included, are not read: the training corpora of detectors have no titles.

    Raises:
        UserError: The object has no text, or several.
    """
    if not isinstance(passage, Mapping):
        return passage
    found = [key for key in TEXT_KEYS if passage.get(key) is not None]  # Parquet fills what an object lacks with None
    if len(found) == 1:
        return passage[found[0]]
    hint = f"give its text under one of {', '.join(TEXT_KEYS)}"
    if found:
        raise UserError(f"an object with several texts: {', '.join(found)}", hint=hint)
    inside = shorten(", ".join(map(str, passage)))[1:-1]
    raise UserError(f"an object without a text: it has {inside or 'nothing'}", hint=hint)


def parse_calls(text: Any) -> list[Mapping[str, Any]] | None:
    """Reads the column `calls` of a turn; None for anything else, such as a column of this name in another table."""
    if not isinstance(text, str) or not text.startswith("["):
        return None
    try:
        calls = json.loads(text)
    except (ValueError, RecursionError):
        return None
    kinds = {"name": str, "arguments": str, "failed": bool, "result": str}
    is_made = all(
        isinstance(call, Mapping) and all(isinstance(call.get(name), kind) for name, kind in kinds.items())
        for call in calls
    )
    return calls if is_made else None


def join_passages(passages: Sequence[str]) -> str:
    """Joins passages by an empty line."""
    return PASSAGE_BREAK.join(passages)


def split_passages(knowledge: str) -> list[str]:
    """Reverses `number_passages`; a text without numbers from 1 on is one passage.

    >>> split_passages(number_passages(["It is red.", "It is old."]))
    ['It is red.', 'It is old.']
    """
    before, *parts = re.split(r"(?:^|\n\n)passage (\d+):", knowledge)
    numbers, passages = parts[::2], parts[1::2]
    if before or not passages or numbers != [str(number) for number in range(1, len(numbers) + 1)]:
        return [knowledge]
    return [*passages[:-1], passages[-1].removesuffix("\n\n")]


def number_passages(passages: Sequence[str]) -> str:
    """Joins passages with their numbers, as RAGTruth, the taggers' corpus, does; a single passage has no number."""
    if len(passages) == 1:
        return passages[0]
    return "".join(f"passage {number}:{text}\n\n" for number, text in enumerate(passages, start=1))
