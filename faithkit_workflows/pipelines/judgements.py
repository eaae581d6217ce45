"""Steps that annotate replies: a verdict, the hallucinated part, and why (HalluDial, section 2.1).

A language model judges, or one of faithkit's detectors, which gives its verdict and the spans it marks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from construction.ask import Ask, Build, ModelReply, sampling
from construction.steps import KEY, NO_VERDICT, Row, RowFailed, Work, read_row
from construction.turns import turn_values
from faithkit.detector import Detector
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text_engines import EngineOptions
from faithkit.records import FAITHFUL, UNPARSED, Example, Prediction, Turn
from judge.asking import parse_judgement, target_text
from judge.options import CHOICES, JUDGEMENT

FIELDS = ("knowledge", "history", "reference", "response")


@dataclass(kw_only=True)
class Detect(Work):
    """Judges a text of each row by its knowledge and history, as the work of a step.

    Args:
        path: A run, a folder or a hub name, as for `detector=` of generate.py.
        text: The field to judge.
        read: Makes a row from a row and its prediction.
        labels: The meaning of the classes of an external critic.
    """

    path: str
    text: str
    read: Callable[[Row, Prediction], Row]
    precision: str = "auto"
    labels: Mapping[int | str, str] | None = None
    _detector: Detector | None = field(default=None, repr=False)

    def settings(self) -> dict[str, Any]:
        """Collects what the verdicts depend on: the weights, not their place."""
        from faithkit_workflows.detectors.loading import describe_detector

        described = [[one.kind, one.weights or one.path, one.threshold] for one in describe_detector(self.path)]
        labels = {"labels": {str(name): label for name, label in self.labels.items()}} if self.labels else {}
        return {"detector": described, **labels}

    def open(self) -> str:
        """Loads the detector; returns its weights, or the file that describes it."""
        from faithkit.weights.resolve import hash_weights
        from faithkit_workflows.detectors.loading import load_detector
        from faithkit_workflows.settings.engines import is_detector_file

        self._detector = load_detector(self.path, precision=self.precision, batch_tokens=None, labels=self.labels)
        weights = None if is_detector_file(self.path) else hash_weights(self.path)
        return f"detector {weights or self.path}"

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields the judged rows."""
        assert self._detector is not None, "it is opened first"
        examples = [example_of(row, str(row[self.text])) for row in rows]
        for row, prediction in zip(rows, self._detector.predict_examples(examples), strict=True):
            yield read_row(row, self.read, prediction)

    def close(self) -> str:
        """Frees the detector."""
        self._detector = None
        return ""


def example_of(row: Mapping[str, Any], response: str) -> Example:
    """Makes the example that a detector judges."""
    return Example(
        id=row[KEY],
        source="construction",
        split="construction",
        group=row["dialogue"],
        knowledge=row["knowledge"],
        history=tuple(Turn(speaker=speaker, text=text) for speaker, text in row["history"]),
        response=response,
    )


def ask_judge(options: EngineOptions, prompt: TextPrompt, block: Mapping[str, Any], build: Build) -> Ask:
    """Asks a model to judge the row's response, at temperature 0.

    A judgement must begin with Yes or No, otherwise the row fails. With `weigh_verdicts` the more probable of the two
    is put before such a judgement, and the row records it: small models rarely follow a form. Quoted parts that are not
    in the response are counted.
    """

    def read(row: Row, reply: ModelReply) -> Row:
        target, added = reply.text.strip(), {}
        found = parse_judgement(target, row["response"])
        if found.label == UNPARSED and reply.probabilities:
            verdict = max(reply.probabilities, key=reply.probabilities.__getitem__)
            target, added = f"{verdict}. {target}".strip(), {"verdict_weighed": reply.probabilities[verdict]}
            found = parse_judgement(target, row["response"])
        if found.label == UNPARSED:
            raise RowFailed(NO_VERDICT, reply.text)
        if found.num_unlocated:
            added["unlocated"] = found.num_unlocated
        if not reply.finished:
            added["target_cut"] = True
        spans = [[span.start, span.end] for span in found.spans]
        return {**row, "target": target, "label": found.label, "spans": spans, "rationale": found.rationale, **added}

    return Ask(
        options=options,
        prompts={"": prompt},
        values=turn_values,
        read=read,
        pretended={"target": "No.", "label": FAITHFUL, "spans": [], "rationale": ""},
        decoding=sampling(0, block["max_judgement_tokens"], 0),
        build=build,
        choices=CHOICES if block["weigh_verdicts"] else (),
    )


def detect_hallucinations(path: str, labels: Mapping[int | str, str] | None = None) -> Detect:
    """Judges the row's response with a detector, and quotes the spans it marks after the verdict."""

    def read(row: Row, prediction: Prediction) -> Row:
        require_verdict(prediction)
        example = replace(example_of(row, row["response"]), label=prediction.label, spans=prediction.spans)
        spans = [[span.start, span.end] for span in prediction.spans]
        judged = {"target": target_text(example, JUDGEMENT), "label": prediction.label, "spans": spans}
        return {**row, **judged, "rationale": "", "score": prediction.score}

    return Detect(path=path, text="response", read=read, precision="32-true", labels=labels)


def require_verdict(prediction: Prediction) -> None:
    """Fails the row on which a detector gave no verdict."""
    if prediction.label in (None, UNPARSED):
        raise RowFailed(NO_VERDICT, prediction.text)
