"""The step that annotates replies: a verdict, the hallucinated part, and why (HalluDial, section 2.1).

A language model is asked; or a detector of ours judges, which says no more than its verdict and its marked parts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from construction.ask import Ask, Said, sampling
from construction.dialogues import history_of
from construction.rows import KEY, TRIES, Row, hole
from faithkit.detector import Detector
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text_engines import EngineOptions
from faithkit.records import FAITHFUL, UNPARSED, Example, Turn
from judge.asking import JUDGEMENT, read_judgement
from judge.reply import CHOICES
from judge.target import target_text
from workflows.pipelines.models import build_model

ANNOTATE = "annotate"
FIELDS = ("knowledge", "history", "reference", "response")
NO_VERDICT = "no verdict"


def annotation(options: EngineOptions, prompt: TextPrompt, block: Mapping[str, Any]) -> Ask:
    """Asks a judge about the row's response, at temperature 0.

    A judgement must begin with Yes or No; one that does not is a hole. With `weigh_verdicts` the likelier of both, as
    the model's probabilities have it, is put before such a judgement, and the row says so: small models seldom keep
    to a form. A quoted part that does not stand in the response is counted.
    """

    def values(row: Row) -> dict[str, str]:
        return {**{name: row[name] for name in FIELDS if name != "history"}, "history": history_of(row)}

    def read(row: Row, said: Said) -> Row:
        target, added = said.text.strip(), {}
        found = read_judgement(target, row["response"])
        if found.label == UNPARSED and said.probabilities:
            verdict = max(said.probabilities, key=lambda choice: said.probabilities[choice])
            target, added = f"{verdict}. {target}".strip(), {"verdict_weighed": said.probabilities[verdict]}
            found = read_judgement(target, row["response"])
        if found.label == UNPARSED:
            return hole(row[KEY], ANNOTATE, NO_VERDICT, said.text)
        if found.num_unlocated:
            added["unlocated"] = found.num_unlocated
        if not said.finished:
            added["target_cut"] = True
        spans = [[span.start, span.end] for span in found.spans]
        return {**row, "target": target, "label": found.label, "spans": spans, "rationale": found.rationale, **added}

    return Ask(
        step=ANNOTATE,
        options=options,
        prompts={prompt.name: prompt},
        values=values,
        read=read,
        pretend=lambda row: {**row, "target": "No.", "label": FAITHFUL, "spans": [], "rationale": ""},
        decoding=sampling(0, block["max_judgement_tokens"], 0),
        build=build_model,
        choices=CHOICES if block["weigh_verdicts"] else (),
    )


@dataclass(slots=True)
class Detect:
    """Has a detector judge each row's response; what it marks is quoted behind its verdict.

    Args:
        path: A run, an hf/ folder, a hub name or a detector's file.
    """

    path: str
    _detector: Detector | None = field(default=None, repr=False)

    def open(self) -> str:
        """Loads the detector."""
        from faithkit.weights.used_model import describe_model
        from workflows.detectors import load_detector
        from workflows.settings.detector_file import is_detector_file

        self._detector = load_detector(self.path, precision="32-true", batch_tokens=None)
        weights = None if is_detector_file(self.path) else describe_model(self.path).weights
        return f"detector {weights or self.path}"

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields the judged rows."""
        assert self._detector is not None, "it is opened first"
        examples = [_example(row) for row in rows]
        for row, example, found in zip(rows, examples, self._detector.predict_examples(examples), strict=True):
            if found.label in (None, UNPARSED):
                yield hole(row[KEY], ANNOTATE, NO_VERDICT, found.text, row.get(TRIES, 0) + 1)
                continue
            target = target_text(replace(example, label=found.label, spans=found.spans), JUDGEMENT)
            spans = [[span.start, span.end] for span in found.spans]
            judged = {"target": target, "label": found.label, "spans": spans, "rationale": "", "score": found.score}
            yield {**{key: value for key, value in row.items() if key != TRIES}, **judged}

    def close(self) -> str:
        """Lets the detector go."""
        self._detector = None
        return ""


def _example(row: Row) -> Example:
    return Example(
        id=row[KEY],
        source="construct",
        split="construct",
        group=row["dialogue"],
        knowledge=row["knowledge"],
        history=tuple(Turn(speaker=speaker, text=text) for speaker, text in row["history"]),
        response=row["response"],
    )
