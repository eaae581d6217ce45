"""Defines the annotation schemes of the four papers: the texts, the questions, and the dataset made of the answers.

`SCHEMES` is the table. To add a scheme, add a `Scheme` to it and a writer to settled_layouts.py. Labels are
listed with their definitions, the most severe one first.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from construction.official_layouts import GOOD, REFUSED, TRUNCATED
from data_modules.datasets.ragtruth import LABELS as RAGTRUTH_SPELLINGS
from data_modules.reading.fields import WIZARD
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.settings.config_files import UNANSWERABLE
from faithkit_papers.annotation.annotation_questions import CHOICES, NUMBER, RATING, SPANS, TEXT, Answers, Question

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


RAGTRUTH_LABELS = {  # the paper calls evident ones severe
    "Evident Conflict": "Clearly contradicts the source: a wrong name, number or fact.",
    "Evident Baseless Info": "Adds a fact or a detail that the source does not have.",
    "Subtle Conflict": "Departs from the source in meaning: another word changes what is implied, or how strongly.",
    "Subtle Baseless Info": "Adds what was inferred or felt: an insight, a mood, a common assumption.",
}
BEGIN_LABELS = {
    "Hallucination": "The knowledge supports none of it.",
    "Partial Hallucination": "The knowledge supports some of it, but not all.",
    "Uncooperative": "True to the knowledge, but it does not answer or help the other speaker.",
    "Generic": "Makes no statement that could be supported: That's nice.",
    "Entailment": "All of it follows from the knowledge.",
}
VRM_LABELS = {  # verbal response modes (Stiles 1992)
    "Disclosure": "Reveals thoughts, feelings or experiences of the speaker.",
    "Edification": "States objective information.",
    "Advisement": "Advises, suggests or guides.",
    "Confirmation": "Compares the speaker's view with the other's: agrees or disagrees.",
    "Question": "Asks for information or guidance.",
    "Acknowledgment": "Shows that something was heard: Oh. I see. Hello.",
    "Interpretation": "Explains or judges the other speaker.",
    "Reflection": "Restates the words or feelings of the other speaker.",
}
DIAHALU_LABELS = {
    "non-factual": "Not in line with facts, or something that does not exist.",
    "incoherence": "Contradicts an earlier turn, the other speaker, or itself; or makes no sense here.",
    "irrelevance": "Does not belong to the topic, or misunderstands the question.",
    "overreliance": "Trusts a wrong premise, or answers what cannot be answered.",
    "reasoning error": "Any error within a reasoning dialogue.",
}
UNSUPPORTED = {  # FaithDial's appendix A
    "experience": "An experience of the speaker.",
    "opinion": "An opinion.",
    "feeling": "A feeling.",
    "fact": "A fact that the knowledge does not have.",
    "advice": "Advice.",
    "acknowledgment": "It takes up information of the other speaker.",
}
QUALITIES = {
    TRUNCATED: "The response breaks off.",
    REFUSED: "It refuses, though the source has the answer.",
    GOOD: "Neither of them.",
}
SPAN_TYPES = {label: RAGTRUTH_SPELLINGS[label.lower()] for label in RAGTRUTH_LABELS}  # names in predictions


FALLBACK = "fallback"
YES, NO = "Yes", "No"
NONE = "(none)"  # shown without knowledge or history: Label Studio takes no empty text


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One way to annotate.

    Args:
        texts: The fields that a task shows, by title; the last one is what is annotated.
        questions: In the order in which they are asked; answers are compared and settled in that order.
        suggest: Converts an example's labels, or a detector's prediction, to answers.
        judged: The field of an example that is annotated; the text of a system takes its place.
        dataset: Its loader reads what `settled_layouts.WRITERS` writes for this scheme; None if that is not a dataset.
    """

    name: str
    about: str
    texts: Callable[[Example], Mapping[str, str]]
    questions: tuple[Question, ...]
    suggest: Callable[[Example, Prediction | None], Answers]
    judged: str = "response"
    dataset: str | None = None

    def question(self, name: str) -> Question | None:
        """Finds a question by its name."""
        return next((question for question in self.questions if question.name == name), None)


def grounded_texts(example: Example) -> dict[str, str]:
    """Shows knowledge, history and response."""
    history = "\n".join(f"{turn.speaker}: {turn.text}" for turn in example.history)
    return {"knowledge": example.knowledge or NONE, "history": history or NONE, "response": example.response}


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


def _verdict(example: Example, prediction: Prediction | None) -> Answers:
    label = None if prediction is None else prediction.label
    by_label = {HALLUCINATED: "Hallucination", FAITHFUL: "Faithful"}
    return {"faithful": [by_label[label]]} if label in by_label else {}


_HALLUCINATED_ONLY = ("hallucinated", YES)

SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            name="faithdial",
            about="BEGIN and VRM tags, and an edit that is true to the knowledge (Dziri et al. 2022, section 2.2)",
            texts=grounded_texts,
            questions=(
                Question(
                    CHOICES, "begin", "Is the response supported by the knowledge?", labels=BEGIN_LABELS, multiple=True
                ),
                Question(CHOICES, "vrm", "Which speech acts does it use?", labels=VRM_LABELS, multiple=True),
                Question(
                    CHOICES,
                    "unsupported",
                    "Of what kind is the part that is not supported, if there is one?",
                    labels=UNSUPPORTED,
                    multiple=True,
                    optional=True,
                ),
                Question(
                    CHOICES,
                    "triggered",
                    "Did a question or an opinion of the other speaker lead to it?",
                    labels={YES: "It did.", NO: "It did not."},
                    optional=True,
                ),
                Question(
                    TEXT,
                    "edit",
                    "Make it faithful, helpful and no copy of the knowledge; leave it as it is where it is so",
                    start_from="response",
                    optional=True,
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
                Question(
                    SPANS,
                    "spans",
                    "Mark what the knowledge does not support",
                    labels=RAGTRUTH_LABELS,
                    flags={
                        "implicit_true": "It is right, though the source does not say so.",
                        "due_to_null": "It takes an empty field of the source for a no.",
                    },
                    optional=True,
                ),
                Question(CHOICES, "quality", "Quality of the response", labels=QUALITIES),
            ),
            suggest=_spans,
            dataset="ragtruth",
        ),
        Scheme(
            name="diahalu",
            about="type and round of a dialogue's first hallucination (Chen et al. 2024, section 4.3)",
            texts=lambda example: {"dialogue": rounds_text(example)},
            questions=(
                Question(
                    CHOICES,
                    "hallucinated",
                    "Does the dialogue have a hallucination?",
                    labels={YES: "In any turn that is judged.", NO: "In none."},
                ),
                Question(NUMBER, "round", "Round of the first one", when=_HALLUCINATED_ONLY),
                Question(
                    CHOICES,
                    "type",
                    "Its type",
                    labels=DIAHALU_LABELS,
                    when=_HALLUCINATED_ONLY,
                ),
                Question(TEXT, "explanation", "Why?", when=_HALLUCINATED_ONLY),
            ),
            suggest=_dialogue_verdict,
            dataset="diahalu",
        ),
        Scheme(
            name="halludial",
            about="whether a judgement finds and explains what is hallucinated (Luo et al. 2024, appendix D)",
            texts=lambda example: {**grounded_texts(example), "judgement": example.target or NONE},
            questions=(
                Question(
                    CHOICES,
                    "judgement_is",
                    "Is the judgement right about whether, where and why the response is hallucinated?",
                    labels={"Inaccurate": "Wrong in any of the three.", "Accurate": "Right in all of them."},
                ),
                Question(
                    TEXT,
                    "correction",
                    "A right judgement, beginning with Yes or No",
                    start_from="judgement",
                    when=("judgement_is", "Inaccurate"),
                ),
            ),
            suggest=lambda example, prediction: {},
            judged="target",
            dataset="halludial",
        ),
        Scheme(
            name=UNANSWERABLE,
            about="replies to turns that the knowledge does not answer (Dziri et al. 2022, section 5.2.3)",
            texts=grounded_texts,
            questions=(
                Question(
                    CHOICES,
                    "appropriate",
                    "Is the reply appropriate, though the knowledge does not answer the last turn?",
                    labels={NO: "It makes something up, or ignores the turn.", YES: "It admits that it does not know."},
                ),
            ),
            suggest=lambda example, prediction: {},
        ),
        Scheme(
            name=FALLBACK,
            about="replies that do not answer, and what led to them (Dziri et al. 2022, section 4.2.3)",
            texts=grounded_texts,
            questions=(
                Question(
                    CHOICES,
                    "fallback",
                    "Does the reply say that it cannot answer?",
                    labels={YES: "It does not know, or has no such experience.", NO: "It answers."},
                ),
                Question(
                    CHOICES,
                    "trigger",
                    "What led to it?",
                    labels={
                        "personal": "A question about the speaker.",
                        "objective": "A question about the topic.",
                        "opinion": "An opinion, or a question about one.",
                    },
                    when=("fallback", YES),
                ),
            ),
            suggest=lambda example, prediction: {},
        ),
        Scheme(
            name="likert",
            about="human evaluation: two stages, then three qualities from 1 to 4 (Dziri et al. 2022, section 5.2.3)",
            texts=grounded_texts,
            questions=(
                Question(
                    CHOICES,
                    "interpretable",
                    "Can the response be understood without the knowledge?",
                    labels={NO: "Too vague or ill-formed to judge.", YES: "Its meaning is clear."},
                ),
                Question(
                    CHOICES,
                    "faithful",
                    "Does the knowledge support it?",
                    labels={
                        "Hallucination": "Some of it is not supported.",
                        "Generic": "It makes no statement that could be supported.",
                        "Faithful": "All of it is supported.",
                    },
                    when=("interpretable", YES),
                ),
                *(
                    Question(RATING, name, f"{name.capitalize()}: {meaning}", highest=4, when=("faithful", "Faithful"))
                    for name, meaning in {
                        "cooperative": "fits the turn before, helps, does not mislead",
                        "abstractive": "uses the knowledge in new words",
                        "engaging": "invites an answer and moves the talk on",
                    }.items()
                ),
            ),
            suggest=_verdict,
            dataset="begin",
        ),
    )
}
