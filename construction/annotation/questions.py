"""The questions of an annotation scheme, each with its tag in Label Studio's configuration and its form of results.

A question's answer is plain data: a list of labels (Choices), a list of {start, end, label, flags} (Spans), a whole
number (Rating, Number) or a text (FreeText). Spans count characters of the text as Label Studio shows it; whoever reads
or writes tasks converts them (construction/annotation/project.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from faithkit.errors import shorten

Answer = Any
Answers = dict[str, Answer]


class BadAnswer(ValueError):
    """An answer that its question does not allow; `kind` is the count under which it is reported."""

    def __init__(self, kind: str, problem: str):
        super().__init__(problem)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(ABC):
    """A question to annotators: the base of its kinds, which define how it is shown, written and read.

    Args:
        name: The name of the tag, and of the answer.
        title: What an annotator reads above it.
        when: Shown only where this other question has this answer: (name, label).
    """

    name: str
    title: str
    required: bool = True
    when: tuple[str, str] | None = None

    def add_to(self, view: Element, target: str) -> None:
        """Adds the question's tags to a view, about the text of the tag `target`."""
        attributes = {}
        if self.when is not None:
            tag, choice = self.when
            attributes = {"visibleWhen": "choice-selected", "whenTagName": tag, "whenChoiceValue": choice}
        inner = SubElement(view, "View", attributes)
        SubElement(inner, "Header", {"value": self.title, "size": "5"})
        self._add_tag(inner, {"name": self.name, "toName": target, "required": _bool(self.required)})

    def _head(self, target: str) -> dict[str, str]:
        return {"from_name": self.name, "to_name": target, "type": self.kind}

    @property
    @abstractmethod
    def kind(self) -> str:
        """Label Studio's name for the kind of result."""

    @abstractmethod
    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        """Adds the question's own tag."""

    @abstractmethod
    def results(self, answer: Any, target: str, text: str) -> list[dict[str, Any]]:
        """Writes an answer as Label Studio's results."""

    @abstractmethod
    def read(self, values: Sequence[Any]) -> Any:
        """Reads the values of all results of this question in one annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTheText(Question):
    """A question about the text as a whole: its answer is one result."""

    def results(self, answer: Any, target: str, text: str) -> list[dict[str, Any]]:
        """Writes an answer as Label Studio's one result."""
        return [{"id": self.name, **self._head(target), "value": self._value(answer)}]

    @abstractmethod
    def _value(self, answer: Any) -> dict[str, Any]:
        """Writes an answer as the value of the result."""


def _bool(value: bool) -> str:
    return "true" if value else "false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices(OfTheText):
    """One label of several, or any number of them.

    Args:
        labels: Each with its definition; the first is the most severe one, for the rule `severe`.
    """

    labels: Mapping[str, str]
    multiple: bool = False

    @property
    def kind(self) -> str:
        return "choices"

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        tag = SubElement(view, "Choices", attributes | {"choice": "multiple" if self.multiple else "single"})
        for label, about in self.labels.items():
            SubElement(tag, "Choice", {"value": label, "hint": about})

    def _value(self, answer: Any) -> dict[str, Any]:
        return {"choices": list(answer)}

    def read(self, values: Sequence[Any]) -> list[str]:
        chosen = {label for value in values for label in labels_of(value, "choices", self.labels)}
        if len(chosen) > 1 and not self.multiple:
            raise BadAnswer("several labels", f"{self.name} allows one label, got {', '.join(sorted(chosen))}")
        return [label for label in self.labels if label in chosen]


def labels_of(value: Any, key: str, known: Mapping[str, str]) -> list[str]:
    given = value.get(key) if isinstance(value, Mapping) else value
    labels = [given] if isinstance(given, str) else given
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise BadAnswer("unreadable answer", f"{key} must be a list of labels, got {shorten(given)}")
    for label in labels:
        if label not in known:
            raise BadAnswer("unknown label", f"the scheme has no label {shorten(label)}; it has {', '.join(known)}")
    return labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(OfTheText):
    """A whole number from 1 to `highest`, on a Likert scale."""

    highest: int = 4

    @property
    def kind(self) -> str:
        return "rating"

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        SubElement(view, "Rating", attributes | {"maxRating": str(self.highest)})

    def _value(self, answer: Any) -> dict[str, Any]:
        return {"rating": answer}

    def read(self, values: Sequence[Any]) -> int:
        return _number(values, "rating", 1, self.highest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(OfTheText):
    """A whole number from 1, such as the round of a dialogue."""

    @property
    def kind(self) -> str:
        return "number"

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        SubElement(view, "Number", attributes | {"min": "1", "step": "1"})

    def _value(self, answer: Any) -> dict[str, Any]:
        return {"number": answer}

    def read(self, values: Sequence[Any]) -> int:
        return _number(values, "number", 1, None)


def _number(values: Sequence[Any], key: str, lowest: int, highest: int | None) -> int:
    given = values[-1].get(key) if isinstance(values[-1], Mapping) else values[-1]
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool):
        raise BadAnswer("unreadable answer", f"{key} must be a whole number, got {shorten(given)}")
    if given < lowest or (highest is not None and given > highest):
        raise BadAnswer("number out of range", f"{key} is {given}, the scheme has {lowest} to {highest or 'any'}")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeText(OfTheText):
    """A text of the annotator's own; what was typed in several pieces is joined by line breaks.

    Args:
        start_from: The field of the task that stands in the box at the start.
    """

    start_from: str | None = None

    @property
    def kind(self) -> str:
        return "textarea"

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        start = {"value": f"${self.start_from}"} if self.start_from else {}
        SubElement(view, "TextArea", attributes | start | {"editable": "true", "rows": "4", "maxSubmissions": "1"})

    def _value(self, answer: Any) -> dict[str, Any]:
        return {"text": [answer]}

    def read(self, values: Sequence[Any]) -> str:
        pieces: list[Any] = []
        for value in values:
            given = value.get("text") if isinstance(value, Mapping) else value
            pieces += [given] if isinstance(given, str) else given if isinstance(given, list) else [None]
        if not all(isinstance(piece, str) for piece in pieces):
            raise BadAnswer("unreadable answer", f"{self.name} must be text, got {shorten(values)}")
        return "\n".join(pieces).strip()


COLOURS = ("#d9534f", "#f0ad4e", "#5bc0de", "#9b59b6", "#5cb85c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans(Question):
    """Stretches of the text, each with one label and any number of flags.

    Args:
        labels: Each with its definition; the first is the most severe one.
        flags: Asked of each span.
    """

    labels: Mapping[str, str]
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "labels"

    @property
    def flags_name(self) -> str:
        """The name of the tag that asks for a span's flags."""
        return f"{self.name}_flags"

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        tag = SubElement(view, "Labels", {name: attributes[name] for name in ("name", "toName")})
        for place, (label, about) in enumerate(self.labels.items()):
            colour = COLOURS[place % len(COLOURS)]
            SubElement(tag, "Label", {"value": label, "background": colour, "hint": about})
        if self.flags:
            of_span = {"name": self.flags_name, "toName": attributes["toName"], "perRegion": "true"}
            tag = SubElement(view, "Choices", of_span | {"choice": "multiple"})
            for flag, about in self.flags.items():
                SubElement(tag, "Choice", {"value": flag, "hint": about})

    def results(self, answer: Any, target: str, text: str) -> list[dict[str, Any]]:
        found = []
        for place, span in enumerate(answer):
            start, end = span["start"], span["end"]
            where = {"start": start, "end": end, "text": text[start:end]}
            head = {"id": f"{self.name}{place}", **self._head(target)}
            found.append({**head, "value": where | {"labels": [span["label"]]}})
            if span.get("flags"):
                of_flags = {"from_name": self.flags_name, "type": "choices"}
                found.append({**head, **of_flags, "value": where | {"choices": list(span["flags"])}})
        return found

    def read(self, values: Sequence[Any]) -> list[dict[str, Any]]:
        """Reads spans and flags, which meet by their place; offsets are checked by whoever knows the text."""
        found: list[dict[str, Any]] = []
        flags: dict[tuple[int, int], list[str]] = {}
        for value in values:
            start, end = _bounds(value)
            if "choices" in value:
                flags.setdefault((start, end), []).extend(labels_of(value, "choices", self.flags))
                continue
            quoted = {"text": value["text"]} if isinstance(value.get("text"), str) else {}
            labels = labels_of(value, "labels", self.labels)
            found += [{"start": start, "end": end, "label": label, **quoted} for label in labels]
        for span in found:
            if given := flags.get((span["start"], span["end"])):
                span["flags"] = [flag for flag in self.flags if flag in given]
        return sorted(found, key=lambda span: (span["start"], span["end"], span["label"]))


def _bounds(value: Any) -> tuple[int, int]:
    numbers = [value.get(name) for name in ("start", "end")] if isinstance(value, Mapping) else [None, None]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise BadAnswer("unreadable answer", f"a span needs start and end, got {shorten(value)}")
    return numbers[0], numbers[1]  # type: ignore[return-value]
