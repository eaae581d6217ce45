"""The question for spans of a text: labels that are dragged over it, and what is asked of each span."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from construction.annotation.controls import BadAnswer, Question, labels_of
from faithkit.errors import shorten

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
