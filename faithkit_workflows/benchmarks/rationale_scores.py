"""Scores what a judge says of responses, where the dataset has judgements of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.metrics.rationales import Rationale
from faithkit.metrics.responses.bert_score import load_with_baseline
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction, Span
from faithkit.reports.rationales import LeftOut, rationale_report
from faithkit.reports.report import Report
from judge.locate import locate_all
from judge.reply import quoted_parts, read_list

MOST_WORDS = 5  # of a verdict alone: a judge that writes no more gives no reasons


def gives_reasons(predictions: Mapping[str, Prediction]) -> bool:
    """Tells whether any verdict comes with more words than its own; what failed has a message that is no reply."""
    return any(len(one.text.split()) > MOST_WORDS for one in predictions.values() if one.label not in (None, UNPARSED))


def score_rationales(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    block: Mapping[str, Any],
    *,
    dataset: str,
    num_resamples: int,
) -> Report | None:
    """Reports a judge's replies beside the dataset's judgements; None where either gives no reasons.

    Args:
        block: The configuration's `benchmark`, whose `bert_score` names an encoder, or none.
        dataset: Whose published figures stand beside; empty for none.
    """
    if not any(example.target for example in examples) or not gives_reasons(predictions):
        return None
    rows, left_out = read_rationales(examples, predictions)
    if not rows:
        return None
    names, scorer, baseline, notes = block.get("bert_score") or {}, None, None, []
    if encoder := names.get("encoder"):
        scorer, baseline = load_with_baseline(**names)
        if baseline is None:
            why = f"{encoder} has no published baseline (benchmark.bert_score.baseline=NUMBER)"
            notes.append(f"rescaled BERTScore is left out: {why}")
    else:
        notes.append("BERTScore is left out: no encoder is given (benchmark.bert_score.encoder=minilm)")
    return rationale_report(
        rows, left_out, scorer=scorer, baseline=baseline, notes=notes, dataset=dataset, num_resamples=num_resamples
    )


def read_rationales(
    examples: Sequence[Example], predictions: Mapping[str, Prediction]
) -> tuple[list[Rationale], LeftOut]:
    """Pairs each reply with the target of its example; counts the rows that lack either."""
    rows = []
    without_target = without_reply = unparsed = 0
    for example in examples:
        said = predictions[example.id]
        if not example.target:
            without_target += 1
            continue
        if not said.text.strip() and said.label != UNPARSED:
            without_reply += 1
            continue
        unparsed += said.label == UNPARSED
        parts = parts_of(said.text) if said.label == HALLUCINATED else []
        spans, missed = locate_all(parts, example.response)
        rows.append(
            Rationale(
                group=example.group,
                said="" if said.label == UNPARSED else said.text,
                target=example.target,
                hallucinated=example.label == HALLUCINATED,
                num_quoted=len(parts),
                num_located=len(parts) - missed,
                spans=spans,
                gold=gold_spans(example),
            )
        )
    return rows, LeftOut(
        rows=len(examples), without_target=without_target, without_reply=without_reply, unparsed=unparsed
    )


def parts_of(text: str) -> list[str]:
    """Finds the parts that a reply names: those of a list, else what it quotes."""
    listed = read_list(text)
    return quoted_parts(text) if listed is None else listed


def gold_spans(example: Example) -> tuple[Span, ...] | None:
    """Gives the dataset's spans, else those that its judgement quotes; None where it quotes none, or one is missing."""
    if example.spans is not None:
        return example.spans
    if example.label != HALLUCINATED:
        return ()
    spans, missed = locate_all(quoted_parts(example.target or ""), example.response)
    return spans if spans and not missed else None
