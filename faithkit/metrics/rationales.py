"""Compares a judge's explanations with the dataset's reference judgements (HalluDial's Table 3).

The whole reply is compared with the whole target: ROUGE-L without stemming, BLEU-4 of the corpus, BERTScore plain and
rescaled by the F1 of unrelated sentences. A copied target maximises all of them, so read them together with the parts
that a reply quotes: the share of them that is in the response, and the characters that they share with the gold spans.

A reply without a readable verdict counts as an empty one.

>>> target = 'Yes. The reply says "twelve", and it is ten.'
>>> row = Rationale(group="1", reply=target, target=target, hallucinated=True, num_quoted=1, num_located=1)
>>> found = measure_rationales([row, row]).scored(num_resamples=10).metrics
>>> {name: round(found[name].value, 2) for name in ("rouge_l", "bleu_4", "located_rate")}
{'rouge_l': 1.0, 'bleu_4': 1.0, 'located_rate': 1.0}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from faithkit.metrics.classification import safe_ratio
from faithkit.metrics.responses.ngrams import bleu, bleu_counts, rouge
from faithkit.metrics.responses.response_columns import MetricColumns
from faithkit.metrics.span_metrics import count_characters, count_shared, merge_spans
from faithkit.records import Span
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.metric import ACCURACY, NUMBER, MetricKind
from faithkit.statistics.spread import Statistic, Values

KINDS: Mapping[str, MetricKind] = {
    **dict.fromkeys(("rouge_l", "bleu_4", "located_rate", "char_f1", "char_precision", "char_recall"), ACCURACY),
    **dict.fromkeys(("bertscore_precision", "bertscore_recall", "bertscore_f1", "bertscore_rescaled"), NUMBER),
}


class Scorer(Protocol):
    """Scores pairs of texts, as `BertScore` does."""

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> dict[str, Values]:
        """Computes `bertscore_precision`, `bertscore_recall` and `bertscore_f1` of each pair [N]."""
        ...


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
        gold: The hallucinated parts of the response; None where the dataset does not mark them.
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
    rows: Sequence[Rationale], scorer: Scorer | None = None, baseline: float | None = None
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


def select_hallucinated(measured: MetricColumns, rows: Sequence[Rationale]) -> tuple[MetricColumns, int]:
    """Selects the measures of hallucinated responses from those of all; also returns their number."""
    marked = np.array([row.hallucinated for row in rows], bool)
    kept = [row for row in rows if row.hallucinated]
    return _with_corpus(kept, {name: column[marked] for name, column in measured.columns.items()}), len(kept)


def _with_corpus(rows: Sequence[Rationale], columns: dict[str, Values]) -> MetricColumns:
    groups = Groups.of(row.group for row in rows)
    corpus = (_bleu(groups, rows), _located(groups, rows), _overlap(groups, rows))
    return MetricColumns(groups=groups, columns=columns, kinds=KINDS, corpus=corpus)


def _bleu(groups: Groups, rows: Sequence[Rationale]) -> Statistic:
    sums = groups.sums(bleu_counts([row.reply for row in rows], [row.target for row in rows]))
    return lambda weights: {"bleu_4": bleu(weights @ sums) / 100}


def _located(groups: Groups, rows: Sequence[Rationale]) -> Statistic:
    """Makes a statistic of the share of quoted parts that are in the response; undefined where nothing is quoted."""
    sums = groups.sums([[row.num_located, row.num_quoted] for row in rows])
    return lambda weights: {"located_rate": safe_ratio(*(weights @ sums).T)}


def _overlap(groups: Groups, rows: Sequence[Rationale]) -> Statistic:
    """Makes a statistic of precision, recall and F1 of characters, over the rows with gold spans."""
    counts = np.zeros((len(rows), 3))  # marked, found, both
    for place, row in enumerate(rows):
        if row.gold is not None:
            gold, found = merge_spans(row.gold), merge_spans(row.spans)
            counts[place] = count_characters(gold), count_characters(found), count_shared(gold, found)
    sums = groups.sums(counts)
    whole = sums.sum(axis=0)

    def statistic(weights: Values) -> dict[str, Values]:
        if not whole[0]:
            return {}
        marked, found, both = (weights @ sums).T
        return {
            "char_precision": safe_ratio(both, found, whole[1]),
            "char_recall": safe_ratio(both, marked, whole[0]),
            "char_f1": safe_ratio(2 * both, marked + found, whole[0] + whole[1]),
        }

    return statistic
