"""Scores the rationales of a judge against the judgements of the dataset."""

from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.metrics.rationales import Rationale
from faithkit.metrics.responses.bert_score import load_with_baseline
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction, Span
from faithkit.reports.rationale_report import LeftOut, rationale_report
from faithkit.reports.report import Report
from judge.locate import locate_all
from judge.reply import quoted_parts, read_list

MAX_VERDICT_WORDS = 5  # a longer reply contains a rationale


def has_rationales(predictions: Mapping[str, Prediction]) -> bool:
    """Returns whether any parsed reply is longer than a verdict."""
    parsed = (one for one in predictions.values() if one.label not in (None, UNPARSED))
    return any(len(one.text.split()) > MAX_VERDICT_WORDS for one in parsed)


def score_rationales(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    block: Mapping[str, Any],
    *,
    dataset: str,
    num_resamples: int,
) -> Report | None:
    """Reports a judge's replies against the dataset's judgements; returns None if either has no rationales.

    Args:
        block: The block `benchmark`, whose `bert_score` may name an encoder.
        dataset: The dataset whose published figures are shown too; empty for none.
    """
    if not any(example.target for example in examples) or not has_rationales(predictions):
        return None
    rationales, left_out = read_rationales(examples, predictions)
    if not rationales:
        return None
    names, scorer, baseline, notes = block.get("bert_score") or {}, None, None, []
    if encoder := names.get("encoder"):
        scorer, baseline = load_with_baseline(**names)
        if baseline is None:
            reason = f"{encoder} has no published baseline (benchmark.bert_score.baseline=NUMBER)"
            notes.append(f"rescaled BERTScore is left out: {reason}")
    else:
        notes.append("BERTScore is left out: no encoder is given (benchmark.bert_score.encoder=minilm)")
    options: dict[str, Any] = {"scorer": scorer, "baseline": baseline, "notes": notes, "dataset": dataset}
    return rationale_report(rationales, left_out, num_resamples=num_resamples, **options)


def read_rationales(
    examples: Sequence[Example], predictions: Mapping[str, Prediction]
) -> tuple[list[Rationale], LeftOut]:
    """Pairs each reply with the target of its example, and counts the rows that lack either."""
    rationales = []
    without_target = without_reply = unparsed = 0
    for example in examples:
        prediction = predictions[example.id]
        is_unparsed = prediction.label == UNPARSED
        if not example.target:
            without_target += 1
            continue
        if not prediction.text.strip() and not is_unparsed:
            without_reply += 1
            continue
        unparsed += is_unparsed
        parts = parse_parts(prediction.text) if prediction.label == HALLUCINATED else []
        spans, num_missed = locate_all(parts, example.response)
        rationales.append(
            Rationale(
                group=example.group,
                reply="" if is_unparsed else prediction.text,
                target=example.target,
                hallucinated=example.label == HALLUCINATED,
                num_quoted=len(parts),
                num_located=len(parts) - num_missed,
                spans=spans,
                gold=gold_spans(example),
            )
        )
    counts = {"without_target": without_target, "without_reply": without_reply, "unparsed": unparsed}
    return rationales, LeftOut(rows=len(examples), **counts)


def parse_parts(text: str) -> list[str]:
    """Parses the hallucinated parts in a reply: the items of a list, else quotations."""
    listed = read_list(text)
    return quoted_parts(text) if listed is None else listed


def gold_spans(example: Example) -> tuple[Span, ...] | None:
    """Returns the dataset's spans, else the quotations of its judgement; None if one is not found."""
    if example.spans is not None:
        return example.spans
    if example.label != HALLUCINATED:
        return ()
    spans, num_missed = locate_all(quoted_parts(example.target or ""), example.response)
    return spans if spans and not num_missed else None
