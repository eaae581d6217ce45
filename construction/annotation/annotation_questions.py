"""The questions of an annotation scheme, each with its tag in Label Studio's configuration and its form of results.

An answer is plain data: a list of labels (Choices), a list of {start, end, label, flags} (Spans), a whole number
(Rating, Number) or a text (FreeText). Spans count characters of the text as Label Studio shows it; readers and writers
of tasks convert them (construction/annotation/project.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from xml.etree.ElementTree import Element, SubElement

from faithkit.errors import shorten

Answer = Any
Answers = dict[str, Answer]
COLOURS = ("#d9534f", "#f0ad4e", "#5bc0de", "#9b59b6", "#5cb85c")


class BadAnswer(ValueError):
    """An answer that its question does not allow; `kind` is the count under which it is reported."""

    def __init__(self, kind: str, problem: str):
        super().__init__(problem)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(ABC):
    """A question to annotators.

    Args:
        name: Of the tag, and of the answer.
        title: Shown above it.
        when: Shows it only if another question has an answer: (name, label).
    """

    name: str
    title: str
    required: bool = True
    when: tuple[str, str] | None = None
    kind: ClassVar[str]  # Label Studio's name for the kind of result

    def add_to(self, view: Element, target: str) -> None:
        """Adds the question's tags to a view, about the text of the tag `target`."""
        attributes = {}
        if self.when is not None:
            tag, choice = self.when
            attributes = {"visibleWhen": "choice-selected", "whenTagName": tag, "whenChoiceValue": choice}
        inner = SubElement(view, "View", attributes)
        SubElement(inner, "Header", {"value": self.title, "size": "5"})
        required = "true" if self.required else "false"
        self._add_tag(inner, {"name": self.name, "toName": target, "required": required})

    @abstractmethod
    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        """Adds the tag of the question."""

    def results(self, answer: Any, target: str, text: str) -> list[dict[str, Any]]:
        """Writes an answer as Label Studio's results: one for a question about the whole text."""
        head = {"from_name": self.name, "to_name": target, "type": self.kind}
        return [{"id": self.name, **head, "value": {self.kind if self.kind != "textarea" else "text": answer}}]

    @abstractmethod
    def read(self, values: Sequence[Mapping[str, Any]]) -> Any:
        """Reads the values of all results of this question in one annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices(Question):
    """One label of several, or any number of them.

    Args:
        labels: With their definitions, the most severe one first, for the rule `severe`.
    """

    labels: Mapping[str, str]
    multiple: bool = False
    kind = "choices"

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        tag = SubElement(view, "Choices", attributes | {"choice": "multiple" if self.multiple else "single"})
        for label, definition in self.labels.items():
            SubElement(tag, "Choice", {"value": label, "hint": definition})

    def read(self, values: Sequence[Mapping[str, Any]]) -> list[str]:
        chosen = {label for value in values for label in read_labels(value, "choices", self.labels)}
        if len(chosen) > 1 and not self.multiple:
            raise BadAnswer("several labels", f"{self.name} allows one label, got {', '.join(sorted(chosen))}")
        return [label for label in self.labels if label in chosen]


def read_labels(value: Mapping[str, Any], key: str, known: Mapping[str, str]) -> list[str]:
    """Reads the labels of a result.

    Raises:
        BadAnswer: They are no list of known labels.
    """
    given = value.get(key)
    labels = [given] if isinstance(given, str) else given
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise BadAnswer("unreadable answer", f"{key} must be a list of labels, got {shorten(given)}")
    for label in labels:
        if label not in known:
            raise BadAnswer("unknown label", f"the scheme has no label {shorten(label)}; it has {', '.join(known)}")
    return labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Question):
    """A whole number from 1, such as the round of a dialogue."""

    kind = "number"
    highest: int | None = None

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        SubElement(view, "Number", attributes | {"min": "1", "step": "1"})

    def read(self, values: Sequence[Mapping[str, Any]]) -> int:
        given = values[-1].get(self.kind)
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise BadAnswer("unreadable answer", f"{self.kind} must be a whole number, got {shorten(given)}")
        if given < 1 or (self.highest is not None and given > self.highest):
            problem = f"{self.kind} is {given}, the scheme has 1 to {self.highest or 'any'}"
            raise BadAnswer("number out of range", problem)
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(Number):
    """A whole number from 1 to `highest`, on a Likert scale."""

    kind = "rating"
    highest: int | None = 4

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        SubElement(view, "Rating", attributes | {"maxRating": str(self.highest)})


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeText(Question):
    """A text; several pieces are joined by line breaks.

    Args:
        start_from: The field of the task with which the box is filled at the start.
    """

    start_from: str | None = None
    kind = "textarea"

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        start = {"value": f"${self.start_from}"} if self.start_from else {}
        SubElement(view, "TextArea", attributes | start | {"editable": "true", "rows": "4", "maxSubmissions": "1"})

    def results(self, answer: Any, target: str, text: str) -> list[dict[str, Any]]:
        """Writes an answer as a list of one piece."""
        return Question.results(self, [answer], target, text)

    def read(self, values: Sequence[Mapping[str, Any]]) -> str:
        pieces: list[Any] = []
        for value in values:
            given = value.get("text")
            pieces += given if isinstance(given, list) else [given]
        if not all(isinstance(piece, str) for piece in pieces):
            raise BadAnswer("unreadable answer", f"{self.name} must be text, got {shorten(values)}")
        return "\n".join(pieces).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans(Question):
    """Spans of the text, each with one label and any number of flags.

    Args:
        labels: With their definitions, the most severe one first.
        flags: Asked about each span.
    """

    labels: Mapping[str, str]
    flags: Mapping[str, str] = field(default_factory=dict)
    kind = "labels"

    @property
    def flags_name(self) -> str:
        """Names the tag for the flags of a span."""
        return f"{self.name}_flags"

    def _add_tag(self, view: Element, attributes: dict[str, str]) -> None:
        tag = SubElement(view, "Labels", {name: attributes[name] for name in ("name", "toName")})
        for place, (label, definition) in enumerate(self.labels.items()):
            colour = COLOURS[place % len(COLOURS)]
            SubElement(tag, "Label", {"value": label, "background": colour, "hint": definition})
        if self.flags:
            per_span = {"name": self.flags_name, "toName": attributes["toName"], "perRegion": "true"}
            tag = SubElement(view, "Choices", per_span | {"choice": "multiple"})
            for flag, definition in self.flags.items():
                SubElement(tag, "Choice", {"value": flag, "hint": definition})

    def results(self, answer: Any, target: str, text: str) -> list[dict[str, Any]]:
        """Writes each span as a result, and its flags as another one."""
        found = []
        for place, span in enumerate(answer):
            start, end = span["start"], span["end"]
            where = {"start": start, "end": end, "text": text[start:end]}
            head = {"id": f"{self.name}{place}", "to_name": target}
            labels = where | {"labels": [span["label"]]}
            found.append({**head, "from_name": self.name, "type": self.kind, "value": labels})
            if span.get("flags"):
                flags = where | {"choices": list(span["flags"])}
                found.append({**head, "from_name": self.flags_name, "type": "choices", "value": flags})
        return found

    def read(self, values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Reads spans and their flags, which have the same offsets; offsets are not checked against the text."""
        found: list[dict[str, Any]] = []
        flags: dict[tuple[int, int], list[str]] = {}
        for value in values:
            start, end = _read_offsets(value)
            if "choices" in value:
                flags.setdefault((start, end), []).extend(read_labels(value, "choices", self.flags))
                continue
            quoted = {"text": value["text"]} if isinstance(value.get("text"), str) else {}
            labels = read_labels(value, "labels", self.labels)
            found += [{"start": start, "end": end, "label": label, **quoted} for label in labels]
        for span in found:
            if given := flags.get((span["start"], span["end"])):
                span["flags"] = [flag for flag in self.flags if flag in given]
        return sorted(found, key=lambda span: (span["start"], span["end"], span["label"]))


def _read_offsets(value: Mapping[str, Any]) -> tuple[int, int]:
    numbers = [value.get(name) for name in ("start", "end")]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise BadAnswer("unreadable answer", f"a span needs start and end, got {shorten(value)}")
    return numbers[0], numbers[1]  # type: ignore[return-value]
