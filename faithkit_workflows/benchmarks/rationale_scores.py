"""Scores the rationales of a judge against the dataset's reference judgements (HalluDial's Table 3).

The whole reply is compared with the whole target: ROUGE-L without stemming, BLEU-4 of the corpus, BERTScore plain and
rescaled by the F1 of unrelated sentences. A copied target maximises all of them, so read them together with the parts
that a reply quotes: the share of them that is in the response, and the characters that they share with the gold spans.

A reply without a readable verdict counts as an empty one.

>>> target = 'Yes. The reply says "twelve", and it is ten.'
>>> row = Rationale(group="1", reply=target, target=target, hallucinated=True, num_quoted=1, num_located=1)
>>> found = measure_rationales([row, row]).evaluation().score(num_resamples=10).metrics
>>> {name: round(found[name].value, 2) for name in ("rouge_l", "bleu_4", "located_rate")}
{'rouge_l': 1.0, 'bleu_4': 1.0, 'located_rate': 1.0}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from faithkit.metrics.classification import safe_ratio
from faithkit.metrics.responses.bert_score import BertScore, load_with_baseline
from faithkit.metrics.responses.measure_responses import MetricColumns
from faithkit.metrics.responses.ngrams import bleu, bleu_counts, rouge
from faithkit.metrics.span_metrics import count_characters, count_shared, merge_spans
from faithkit.published.figures import published_table
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction, Span
from faithkit.reports.report import Cell, Report, Row, score_table
from faithkit.scores.measures import RATIONALES, kinds_of
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.spread import Values
from judge.reply import locate_all, quoted_parts, read_list


@dataclass(frozen=True, slots=True, kw_only=True)
class Rationale:
    """A judge's reply with the dataset's reference judgement.

    Args:
        group: The dialogue or document.
        reply: Empty where it has no readable verdict.
        target: The reference judgement.
        hallucinated: The response's label.
        num_quoted: Parts that the reply quotes as hallucinated.
        num_located: Those of them that are in the response.
        spans: Their positions.
        gold: The hallucinated parts of the response; None if the dataset does not mark them.
    """

    group: str
    reply: str
    target: str
    hallucinated: bool
    num_quoted: int = 0
    num_located: int = 0
    spans: tuple[Span, ...] = ()
    gold: tuple[Span, ...] | None = None


def measure_rationales(
    rows: Sequence[Rationale], scorer: BertScore | None = None, baseline: float | None = None
) -> MetricColumns:
    """Measures each row; with BERTScore if a scorer is given.

    Args:
        baseline: Its F1 of unrelated sentences, for `bertscore_rescaled`: (F1 - b) / (1 - b).
    """
    replies, targets = [row.reply for row in rows], [row.target for row in rows]
    columns: dict[str, Values] = {"rouge_l": rouge(replies, targets)["rouge_l"]}
    if scorer is not None:
        columns |= scorer.score(replies, targets)
        if baseline is not None:
            columns["bertscore_rescaled"] = (columns["bertscore_f1"] - baseline) / (1 - baseline)
    return _with_corpus(rows, columns)


def _with_corpus(rows: Sequence[Rationale], columns: dict[str, Values]) -> MetricColumns:
    """Adds BLEU of the corpus, the share of quoted parts that are in the response, and their overlap with gold spans.

    The share is undefined where nothing is quoted, the overlap where no span is marked.
    """
    groups = Groups.of(row.group for row in rows)
    ngrams = groups.sums(bleu_counts([row.reply for row in rows], [row.target for row in rows]))
    parts = groups.sums([[row.num_located, row.num_quoted] for row in rows])
    counts = np.zeros((len(rows), 3))  # characters marked, found, both
    for place, row in enumerate(rows):
        if row.gold is not None:
            gold, found = merge_spans(row.gold), merge_spans(row.spans)
            counts[place] = count_characters(gold), count_characters(found), count_shared(gold, found)
    sums = groups.sums(counts)
    whole = sums.sum(axis=0)

    def statistic(weights: Values) -> dict[str, Values]:
        values = {"bleu_4": bleu(weights @ ngrams) / 100, "located_rate": safe_ratio(*(weights @ parts).T)}
        if not whole[0]:
            return values
        marked, found, both = (weights @ sums).T
        return values | {
            "char_precision": safe_ratio(both, found, whole[1]),
            "char_recall": safe_ratio(both, marked, whole[0]),
            "char_f1": safe_ratio(2 * both, marked + found, whole[0] + whole[1]),
        }

    return MetricColumns(groups=groups, columns=columns, kinds=kinds_of(RATIONALES), corpus=(statistic,))


# By metric: what a reader sees, and the column of the paper's table.
SHOWN: Mapping[str, tuple[str, str]] = {
    "rouge_l": ("ROUGE-L", "rouge_l"),
    "bleu_4": ("BLEU-4", "bleu_4"),
    "bertscore_f1": ("BERTScore F1, raw", ""),
    "bertscore_rescaled": ("BERTScore F1, rescaled", "bert_score"),
    "located_rate": ("quoted parts in response", ""),
    "char_f1": ("gold spans: F1", ""),
    "char_precision": ("  precision", ""),
    "char_recall": ("  recall", ""),
}
PREFIX = "rationale/"


def score_rationales(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    block: Mapping[str, Any],
    *,
    dataset: str,
    num_resamples: int,
) -> Report | None:
    """Reports a judge's replies against the dataset's judgements; returns None if either has no rationales.

    The metrics are `rationale/rouge_l` and so on, for hallucinated responses `rationale/hallucinated_rouge_l`.

    Args:
        block: The block `benchmark`, whose `bert_score` may name an encoder.
        dataset: The dataset whose published figures are shown too; empty for none.
    """
    parsed = (one for one in predictions.values() if one.label not in (None, UNPARSED))
    has_rationales = any(len(one.text.split()) > 5 for one in parsed)  # a verdict is shorter
    if not has_rationales or not any(example.target for example in examples):
        return None
    rows, notes = read_rationales(examples, predictions)
    if not rows:
        return None
    names, scorer, baseline = block.get("bert_score") or {}, None, None
    if encoder := names.get("encoder"):
        scorer, baseline = load_with_baseline(**names)
        if baseline is None:
            reason = f"{encoder} has no published baseline (benchmark.bert_score.baseline=NUMBER)"
            notes.append(f"rescaled BERTScore is left out: {reason}")
    else:
        notes.append("BERTScore is left out: no encoder is given (benchmark.bert_score.encoder=minilm)")
    measured = measure_rationales(rows, scorer, baseline)
    scored = measured.evaluation().score(num_resamples=num_resamples)
    metrics = {f"{PREFIX}{name}": metric for name, metric in scored.metrics.items()}
    columns = {f"all {len(rows):,} rows": scored.metrics}
    marked = np.array([row.hallucinated for row in rows], bool)
    if 0 < marked.sum() < len(rows):
        kept = [row for row in rows if row.hallucinated]
        wrong = _with_corpus(kept, {name: column[marked] for name, column in measured.columns.items()})
        found = wrong.evaluation().score(num_resamples=num_resamples).metrics
        columns[f"{len(kept):,} hallucinated"] = found
        metrics |= {f"{PREFIX}hallucinated_{name}": metric for name, metric in found.items()}
    # The report of the labels notes few groups already.
    scored_notes = [note for note in scored.notes if "groups" not in note]
    published = published_table("halludial_rationales") if dataset == "halludial" else None
    best = sorted(published.rows, key=lambda row: -row["rouge_l"])[:2] if published else []
    shown_rows: list[Row] = []
    for name, (shown, column) in SHOWN.items():
        if any(name in found for found in columns.values()):
            cells: dict[str, Cell] = {system: found.get(name) for system, found in columns.items()}
            shown_rows.append((shown, cells | {f"{row['system']} *": row.get(column) for row in best}))
    lines = ["percent; whole replies against whole targets; 95% intervals over groups"]
    if published:
        lines.append(f"* the best of {published.citation}: {published.protocol}; {published.note}")
    title, heads = "the judge's explanations against the dataset's judgements", [f"{row['system']} *" for row in best]
    table = score_table(title, "metric", [*columns, *heads], shown_rows, caption=lines)
    return Report(metrics=metrics, tables=(table,), notes=(*notes, *scored_notes))


def read_rationales(
    examples: Sequence[Example], predictions: Mapping[str, Prediction]
) -> tuple[list[Rationale], list[str]]:
    """Pairs each reply with the target of its example; also returns notes on the rows that lack either."""
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
        parts: list[str] = []
        if prediction.label == HALLUCINATED:  # the items of a list, else quotations
            listed = read_list(prediction.text)
            parts = quoted_parts(prediction.text) if listed is None else listed
        spans, num_missed = locate_all(parts, example.response)
        gold = example.spans  # or the quotations of the dataset's judgement; None if one is not found
        if gold is None:
            quoted = quoted_parts(example.target) if example.label == HALLUCINATED else []
            located, num_lost = locate_all(quoted, example.response)
            gold = None if num_lost or (not located and example.label == HALLUCINATED) else located
        rationales.append(
            Rationale(
                group=example.group,
                reply="" if is_unparsed else prediction.text,
                target=example.target,
                hallucinated=example.label == HALLUCINATED,
                num_quoted=len(parts),
                num_located=len(parts) - num_missed,
                spans=spans,
                gold=gold,
            )
        )
    counts = {
        "have no target: rationales leave them out": without_target,
        "got no reply in words: rationales leave them out": without_reply,
        "got no readable verdict: their rationale counts as an empty one": unparsed,
    }
    return rationales, [f"{number:,} of {len(examples):,} rows {what}" for what, number in counts.items() if number]
