"""The step that annotates replies: a verdict, the hallucinated part, and why (HalluDial, section 2.1).

A language model is asked; or a detector of ours judges, which says no more than its verdict and its marked parts.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from construction.chain.ask import Ask, Said, sampling
from construction.chain.chain_rows import KEY, NO_VERDICT, Row, hole, without_verdict
from construction.chain.engine_pool import Build
from construction.dialogues.turn_rows import history_of
from faithkit.inference.prompts import TextPrompt
from faithkit.inference.text_engines import EngineOptions
from faithkit.records import FAITHFUL, UNPARSED, Prediction
from faithkit_workflows.pipelines.detecting import Detect, example_of
from faithkit_workflows.pipelines.models import build_model
from judge.asking import JUDGEMENT, parse_judgement, target_text
from judge.reply import CHOICES

ANNOTATE = "annotate"
FIELDS = ("knowledge", "history", "reference", "response")


def annotation(options: EngineOptions, prompt: TextPrompt, block: Mapping[str, Any], build: Build = build_model) -> Ask:
    """Asks a judge about the row's response, at temperature 0.

    A judgement must begin with Yes or No; one that does not is a hole. With `weigh_verdicts` the likelier of both, as
    the model's probabilities have it, is put before such a judgement, and the row says so: small models seldom keep
    to a form. A quoted part that does not stand in the response is counted.
    """

    def values(row: Row) -> dict[str, str]:
        return {**{name: row[name] for name in FIELDS if name != "history"}, "history": history_of(row)}

    def read(row: Row, said: Said) -> Row:
        target, added = said.text.strip(), {}
        found = parse_judgement(target, row["response"])
        if found.label == UNPARSED and (verdict := said.likeliest):
            target, added = f"{verdict}. {target}".strip(), {"verdict_weighed": said.probabilities[verdict]}
            found = parse_judgement(target, row["response"])
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
        build=build,
        choices=CHOICES if block["weigh_verdicts"] else (),
    )


def detection(path: str, labels: Mapping[int | str, str] | None = None) -> Detect:
    """Has a detector judge the row's response; what it marks is quoted behind its verdict."""
    return Detect(path=path, text="response", read=_judged, precision="32-true", labels=labels)


def _judged(row: Row, found: Prediction) -> Row:
    if found.label in (None, UNPARSED):
        return without_verdict(row, ANNOTATE, found)
    example = replace(example_of(row, row["response"]), label=found.label, spans=found.spans)
    spans = [[span.start, span.end] for span in found.spans]
    judged = {"target": target_text(example, JUDGEMENT), "label": found.label, "spans": spans, "rationale": ""}
    return {**row, **judged, "score": found.score}
