"""The annotation schemes of the papers: their questions, texts and suggested answers, and how answers are read.

schemes.yaml has the questions. To add a scheme, add an entry there, and a writer to settled_layouts.py.

An answer is plain data: a list of labels (CHOICES), a list of {start, end, label, flags} (SPANS), a whole number
(RATING, NUMBER) or a text (TEXT). Spans count characters of the text as Label Studio shows it; readers and writers of
tasks convert them (faithkit_papers/annotation/project.py).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement

import yaml
from pydantic import ConfigDict, TypeAdapter

from data_modules.datasets.ragtruth import LABELS as RAGTRUTH_SPELLINGS
from data_modules.reading.fields import WIZARD
from faithkit.errors import shorten
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction

Answer = Any
Answers = dict[str, Answer]
CHOICES, SPANS, NUMBER, RATING, TEXT = "choices", "labels", "number", "rating", "textarea"  # Label Studio's names
COLOURS = ("#d9534f", "#f0ad4e", "#5bc0de", "#9b59b6", "#5cb85c")


class BadAnswer(ValueError):
    """An answer that its question does not allow; `kind` is the count under which it is reported."""

    def __init__(self, kind: str, problem: str):
        super().__init__(problem)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Question:
    """A question to annotators.

    Args:
        kind: CHOICES (one label of several, or any number of them), SPANS (parts of the text, each with a label),
            NUMBER (a whole number from 1), RATING (the same, on a Likert scale) or TEXT.
        name: Of the tag, and of the answer.
        title: Shown above it.
        optional: It need not be answered; neither need one with `when`.
        when: Shows it only if another question has an answer: (name, label).
        labels: Of choices and spans, with their definitions, the most severe one first, for the rule `severe`.
        multiple: Allows several choices.
        flags: Asked about each span.
        highest: Of numbers and ratings; None for any.
        start_from: The field of the task with which the box of a text is filled at the start.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    kind: str
    name: str
    title: str
    _: KW_ONLY
    optional: bool = False
    when: tuple[str, str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    multiple: bool = False
    flags: Mapping[str, str] = field(default_factory=dict)
    highest: int | None = None
    start_from: str | None = None

    @property
    def is_required(self) -> bool:
        """Whether an annotation without an answer to it is incomplete."""
        return not self.optional and self.when is None

    @property
    def flags_name(self) -> str:
        """Names the tag for the flags of a span."""
        return f"{self.name}_flags"

    def add_to(self, view: Element, target: str) -> None:
        """Adds the question's tags to a view, about the text of the tag `target`."""
        shown = {}
        if self.when is not None:
            name, choice = self.when
            shown = {"visibleWhen": "choice-selected", "whenTagName": name, "whenChoiceValue": choice}
        inner = SubElement(view, "View", shown)
        SubElement(inner, "Header", {"value": self.title, "size": "5"})
        named = {"name": self.name, "toName": target}
        if self.kind == SPANS:
            tag = SubElement(inner, "Labels", named)
            for place, (label, definition) in enumerate(self.labels.items()):
                colour = COLOURS[place % len(COLOURS)]
                SubElement(tag, "Label", {"value": label, "background": colour, "hint": definition})
            choices, named = self.flags, named | {"name": self.flags_name, "perRegion": "true"}
        else:
            choices, named["required"] = self.labels, "true" if self.is_required else "false"
        if self.kind == TEXT:
            start = {"value": f"${self.start_from}"} if self.start_from else {}
            SubElement(inner, "TextArea", named | start | {"editable": "true", "rows": "4", "maxSubmissions": "1"})
        elif self.kind == RATING:
            SubElement(inner, "Rating", named | {"maxRating": str(self.highest)})
        elif self.kind == NUMBER:
            SubElement(inner, "Number", named | {"min": "1", "step": "1"})
        elif choices:
            several = self.multiple or self.kind == SPANS
            tag = SubElement(inner, "Choices", named | {"choice": "multiple" if several else "single"})
            for label, definition in choices.items():
                SubElement(tag, "Choice", {"value": label, "hint": definition})

    def results(self, answer: Any, target: str, text: str) -> list[dict[str, Any]]:
        """Writes an answer as Label Studio's results: each span as one, and its flags as another one; others as one."""
        if self.kind != SPANS:
            value = {"text": [answer]} if self.kind == TEXT else {self.kind: answer}
            return [{"id": self.name, "from_name": self.name, "to_name": target, "type": self.kind, "value": value}]
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

    def read(self, values: Sequence[Mapping[str, Any]]) -> Answer:
        """Reads the values of all results of this question in one annotation.

        Raises:
            BadAnswer: They are no answer to it.
        """
        if self.kind == SPANS:  # and their flags, which have the same offsets; these are not checked against the text
            found: list[dict[str, Any]] = []
            flags: dict[tuple[int, int], list[str]] = {}
            for value in values:
                start, end = value.get("start"), value.get("end")
                if type(start) is not int or type(end) is not int:
                    raise BadAnswer("unreadable answer", f"a span needs start and end, got {shorten(value)}")
                if "choices" in value:
                    flags.setdefault((start, end), []).extend(read_labels(value, "choices", self.flags))
                    continue
                quoted = {"text": value["text"]} if isinstance(value.get("text"), str) else {}
                labels = read_labels(value, "labels", self.labels)
                found += [{"start": start, "end": end, "label": label, **quoted} for label in labels]
            for span in found:
                if chosen_flags := flags.get((span["start"], span["end"])):
                    span["flags"] = [flag for flag in self.flags if flag in chosen_flags]
            return sorted(found, key=lambda span: (span["start"], span["end"], span["label"]))
        if self.kind == TEXT:
            pieces = [piece for value in values for piece in _as_list(value.get("text"))]
            if not all(isinstance(piece, str) for piece in pieces):
                raise BadAnswer("unreadable answer", f"{self.name} must be text, got {shorten(values)}")
            return "\n".join(pieces).strip()
        if self.kind == CHOICES:
            chosen = {label for value in values for label in read_labels(value, "choices", self.labels)}
            if len(chosen) > 1 and not self.multiple:
                raise BadAnswer("several labels", f"{self.name} allows one label, got {', '.join(sorted(chosen))}")
            return [label for label in self.labels if label in chosen]
        given = values[-1].get(self.kind)
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise BadAnswer("unreadable answer", f"{self.kind} must be a whole number, got {shorten(given)}")
        if given < 1 or (self.highest is not None and given > self.highest):
            problem = f"{self.kind} is {given}, the scheme has 1 to {self.highest or 'any'}"
            raise BadAnswer("number out of range", problem)
        return given


def read_labels(value: Mapping[str, Any], key: str, known: Mapping[str, str]) -> list[str]:
    """Reads the labels of a result.

    Raises:
        BadAnswer: They are no list of known labels.
    """
    labels = _as_list(value.get(key))
    if not all(isinstance(label, str) for label in labels):
        raise BadAnswer("unreadable answer", f"{key} must be a list of labels, got {shorten(value.get(key))}")
    for label in labels:
        if label not in known:
            raise BadAnswer("unknown label", f"the scheme has no label {shorten(label)}; it has {', '.join(known)}")
    return labels


def _as_list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


FALLBACK = "fallback"
YES, NO = "Yes", "No"
NONE = "(none)"  # shown without knowledge or history: Label Studio takes no empty text
_BREAKS = re.compile(r"\s*[\r\n]+\s*")


def rounds_text(example: Example) -> str:
    """Writes an example as one dialogue in DiaHalu's form, `A1: ...` and `B1: ...`; keeps a response of this form.

    In rounds A asks and B answers. If B opens the dialogue, A's first turn is empty; successive turns of one speaker
    are joined. Line breaks within a turn become spaces, since they could look like turns.
    """
    if not example.history and re.match(r"\s*A\s*\d+\s*[:：]", example.response):
        return example.response
    turns: list[tuple[str, list[str]]] = [("A", [])]
    given = [("B" if turn.speaker == WIZARD else "A", turn.text) for turn in example.history]
    for who, text in [*given, ("B", example.response)]:
        if turns[-1][0] != who:
            turns.append((who, []))
        turns[-1][1].append(text)
    lines, number = [], 0
    for who, texts in turns:
        number += who == "A"
        lines.append(f"{who}{number}: {_BREAKS.sub(' ', ' '.join(texts)).strip()}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One way to annotate.

    Args:
        texts: The fields that a task shows, by title; the last one is what is annotated.
        questions: In the order in which they are asked; answers are compared and settled in that order.
        suggest: Converts an example's labels, or a detector's prediction, to answers.
        judged: The field of an example that is annotated; the text of a system takes its place.
    """

    name: str
    about: str
    texts: Callable[[Example], Mapping[str, str]]
    questions: tuple[Question, ...]
    suggest: Callable[[Example, Prediction | None], Answers]
    judged: str = "response"

    @property
    def by_name(self) -> dict[str, Question]:
        """The questions by their names."""
        return {question.name: question for question in self.questions}


def grounded_texts(example: Example) -> dict[str, str]:
    """Shows knowledge, history and response."""
    history = "\n".join(f"{turn.speaker}: {turn.text}" for turn in example.history)
    return {"knowledge": example.knowledge or NONE, "history": history or NONE, "response": example.response}


def _tagged(example: Example, prediction: Prediction | None) -> Answers:
    if prediction is not None:
        begin = {HALLUCINATED: ["Hallucination"], FAITHFUL: ["Entailment"]}.get(prediction.label or "", [])
        return {"begin": begin} | ({"edit": prediction.text} if prediction.text else {})
    questions = SCHEMES["faithdial"].by_name
    known = (*questions["begin"].labels, *questions["vrm"].labels)
    by_name = {label.lower(): label for label in known} | {"ack.": "Acknowledgment"}
    begin = [by_name[tag.lower()] for tag in example.tags if tag.lower() in by_name]
    vrm = [by_name[tag.lower()] for tag in example.meta.get("vrm", ()) if tag.lower() in by_name]
    return {name: tags for name, tags in (("begin", begin), ("vrm", vrm)) if tags}


def _spans(example: Example, prediction: Prediction | None) -> Answers:
    spans = (example.spans or ()) if prediction is None else prediction.spans
    shown = {span_type: label for label, span_type in SPAN_TYPES.items()}
    default = next(iter(SPAN_TYPES))
    found: list[dict[str, Any]] = [
        {"start": span.start, "end": span.end, "label": shown.get(span.label, default)} for span in spans
    ]
    for flag in ("implicit_true", "due_to_null") if prediction is None else ():
        for place in example.meta.get(flag, ()):
            found[place]["flags"] = [*found[place].get("flags", []), flag]
    quality, qualities = example.meta.get("quality"), SCHEMES["ragtruth"].by_name["quality"].labels
    return {"spans": found} | ({"quality": [quality]} if prediction is None and quality in qualities else {})


def _dialogue_verdict(example: Example, prediction: Prediction | None) -> Answers:
    label = example.label if prediction is None else prediction.label
    answers: Answers = (
        {"hallucinated": [YES if label == HALLUCINATED else NO]} if label in (HALLUCINATED, FAITHFUL) else {}
    )
    if prediction is None and example.meta.get("places"):
        number, name = example.meta["places"][0]
        answers |= {"round": number, "type": [name]}
        if explanations := example.meta.get("explanations"):
            answers["explanation"] = explanations[0]
    return answers


def _verdict(example: Example, prediction: Prediction | None) -> Answers:
    label = None if prediction is None else prediction.label
    by_label = {HALLUCINATED: "Hallucination", FAITHFUL: "Faithful"}
    return {"faithful": [by_label[label]]} if label in by_label else {}


def _read_schemes() -> dict[str, Scheme]:
    """Reads schemes.yaml."""
    texts: dict[str, Callable[[Example], Mapping[str, str]]] = {
        "diahalu": lambda example: {"dialogue": rounds_text(example)},
        "halludial": lambda example: {**grounded_texts(example), "judgement": example.target or NONE},
    }
    suggest = {"faithdial": _tagged, "ragtruth": _spans, "diahalu": _dialogue_verdict, "likert": _verdict}
    questions = TypeAdapter(tuple[Question, ...])
    found = {}
    for name, entry in yaml.safe_load(Path(__file__).with_name("schemes.yaml").read_text(encoding="utf-8")).items():
        asked = questions.validate_python(entry.pop("questions"))
        shown, suggested = texts.get(name, grounded_texts), suggest.get(name, lambda *_: {})
        found[name] = Scheme(name=name, questions=asked, texts=shown, suggest=suggested, **entry)
    return found


SCHEMES = _read_schemes()
SPAN_TYPES = {  # RAGTruth's labels, with their names in predictions
    label: RAGTRUTH_SPELLINGS[label.lower()] for label in SCHEMES["ragtruth"].by_name["spans"].labels
}
