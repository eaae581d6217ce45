"""The annotation schemes of the four papers: what an annotator sees, is asked, and which dataset the answers become.

`SCHEMES` is the table. A scheme of one's own is one more `Scheme` in it, with a writer in layouts.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from construction.annotation.controls import Answers, Choices, FreeText, Number, Question, Rating
from construction.annotation.dialogue_text import rounds_text
from construction.annotation.labels import (
    BEGIN_LABELS,
    DIAHALU_LABELS,
    QUALITIES,
    RAGTRUTH_LABELS,
    SPAN_TYPES,
    VRM_LABELS,
)
from construction.annotation.span_control import Spans
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction

YES, NO = "Yes", "No"
NONE = "(none)"  # shown where a row has no knowledge or history: an empty text is no text to Label Studio


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One way to annotate.

    Args:
        texts: The fields that a task shows, by title; the last one is what is annotated.
        questions: In the order in which they are asked; answers are compared and settled in that order.
        suggest: The answers that an example's own labels, or a detector's prediction, stand for.
        dataset: The dataset whose loader reads what `layouts.WRITERS` writes for this scheme.
    """

    name: str
    about: str
    texts: Callable[[Example], Mapping[str, str]]
    questions: tuple[Question, ...]
    suggest: Callable[[Example, Prediction | None], Answers]
    dataset: str

    def question(self, name: str) -> Question | None:
        """Finds a question by its name."""
        return next((question for question in self.questions if question.name == name), None)


def grounded_texts(example: Example) -> dict[str, str]:
    """Shows knowledge, history and response."""
    history = "\n".join(f"{turn.speaker}: {turn.text}" for turn in example.history)
    return {"knowledge": example.knowledge or NONE, "history": history or NONE, "response": example.response}


def _judged_texts(example: Example) -> dict[str, str]:
    return {**grounded_texts(example), "judgement": example.target or NONE}


def _dialogue_texts(example: Example) -> dict[str, str]:
    return {"dialogue": rounds_text(example)}


def _tagged(example: Example, prediction: Prediction | None) -> Answers:
    if prediction is not None:
        begin = {HALLUCINATED: ["Hallucination"], FAITHFUL: ["Entailment"]}.get(prediction.label or "", [])
        return {"begin": begin} | ({"edit": prediction.text} if prediction.text else {})
    by_name = {label.lower(): label for label in (*BEGIN_LABELS, *VRM_LABELS)} | {"ack.": "Acknowledgment"}
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
    quality = example.meta.get("quality") if prediction is None else None
    return {"spans": found} | ({"quality": [quality]} if quality in QUALITIES else {})


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


def _nothing(example: Example, prediction: Prediction | None) -> Answers:
    return {}


def _verdict(example: Example, prediction: Prediction | None) -> Answers:
    label = None if prediction is None else prediction.label
    by_label = {HALLUCINATED: "Hallucination", FAITHFUL: "Faithful"}
    return {"faithful": [by_label[label]]} if label in by_label else {}


_FAITHFUL_ONLY = ("faithful", "Faithful")
_HALLUCINATED_ONLY = ("hallucinated", YES)

SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            name="faithdial",
            about="BEGIN and VRM tags, and an edit that is true to the knowledge (Dziri et al. 2022, section 2.2)",
            texts=grounded_texts,
            questions=(
                Choices(
                    name="begin",
                    title="Is the response supported by the knowledge?",
                    labels=BEGIN_LABELS,
                    multiple=True,
                ),
                Choices(name="vrm", title="Which speech acts does it use?", labels=VRM_LABELS, multiple=True),
                FreeText(
                    name="edit",
                    title="Make it faithful, helpful and no copy of the knowledge; leave it as it is where it is so",
                    start_from="response",
                    required=False,
                ),
            ),
            suggest=_tagged,
            dataset="faithdial",
        ),
        Scheme(
            name="ragtruth",
            about="spans of four types, and the quality of the response (Niu et al. 2024, sections 3.2 and 3.3)",
            texts=grounded_texts,
            questions=(
                Spans(
                    name="spans",
                    title="Mark what the knowledge does not support",
                    labels=RAGTRUTH_LABELS,
                    flags={
                        "implicit_true": "It is right, though the source does not say so.",
                        "due_to_null": "It takes an empty field of the source for a no.",
                    },
                    required=False,
                ),
                Choices(name="quality", title="Quality of the response", labels=QUALITIES),
            ),
            suggest=_spans,
            dataset="ragtruth",
        ),
        Scheme(
            name="diahalu",
            about="type and round of a dialogue's first hallucination (Chen et al. 2024, section 4.3)",
            texts=_dialogue_texts,
            questions=(
                Choices(
                    name="hallucinated",
                    title="Does the dialogue have a hallucination?",
                    labels={YES: "In any turn that is judged.", NO: "In none."},
                ),
                Number(name="round", title="Round of the first one", when=_HALLUCINATED_ONLY, required=False),
                Choices(name="type", title="Its type", labels=DIAHALU_LABELS, when=_HALLUCINATED_ONLY, required=False),
                FreeText(name="explanation", title="Why?", when=_HALLUCINATED_ONLY, required=False),
            ),
            suggest=_dialogue_verdict,
            dataset="diahalu",
        ),
        Scheme(
            name="halludial",
            about="whether a judgement finds and explains what is hallucinated (Luo et al. 2024, appendix D)",
            texts=_judged_texts,
            questions=(
                Choices(
                    name="judgement_is",
                    title="Is the judgement right about whether, where and why the response is hallucinated?",
                    labels={"Inaccurate": "Wrong in any of the three.", "Accurate": "Right in all of them."},
                ),
                FreeText(
                    name="correction",
                    title="A right judgement, beginning with Yes or No",
                    start_from="judgement",
                    when=("judgement_is", "Inaccurate"),
                    required=False,
                ),
            ),
            suggest=_nothing,
            dataset="halludial",
        ),
        Scheme(
            name="likert",
            about="human evaluation: two stages, then three qualities from 1 to 4 (Dziri et al. 2022, section 5.2.3)",
            texts=grounded_texts,
            questions=(
                Choices(
                    name="interpretable",
                    title="Can the response be understood without the knowledge?",
                    labels={NO: "Too vague or ill-formed to judge.", YES: "Its meaning is clear."},
                ),
                Choices(
                    name="faithful",
                    title="Does the knowledge support it?",
                    labels={
                        "Hallucination": "Some of it is not supported.",
                        "Generic": "It says nothing that could be supported.",
                        "Faithful": "All of it is supported.",
                    },
                    when=("interpretable", YES),
                    required=False,
                ),
                Rating(
                    name="cooperative",
                    title="Cooperative: fits the turn before, helps, does not mislead",
                    when=_FAITHFUL_ONLY,
                    required=False,
                ),
                Rating(
                    name="abstractive",
                    title="Abstractive: uses the knowledge in new words",
                    when=_FAITHFUL_ONLY,
                    required=False,
                ),
                Rating(
                    name="engaging",
                    title="Engaging: invites an answer and moves the talk on",
                    when=_FAITHFUL_ONLY,
                    required=False,
                ),
            ),
            suggest=_verdict,
            dataset="begin",
        ),
    )
}
