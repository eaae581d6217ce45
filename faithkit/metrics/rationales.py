"""Measures what a judge says of responses against the dataset's own judgements (HalluDial's Table 3).

The whole reply is compared with the whole target: ROUGE-L without stemming, BLEU-4 of the corpus, BERTScore as it is
and rescaled by the F1 of unrelated sentences. A copied target gives all of them their best value, so read them beside
what a reply points at: the share of its quoted parts that stand in the response, and the characters that it shares with
the gold spans.

A reply without a readable verdict counts as an empty one.

>>> target = 'Yes. The reply says "twelve", and it is ten.'
>>> row = Rationale(group="1", said=target, target=target, hallucinated=True, num_quoted=1, num_located=1)
>>> found = measure_rationales([row, row]).scored(num_resamples=10).metrics
>>> {name: round(found[name].value, 2) for name in ("rouge_l", "bleu_4", "located_rate")}
{'rouge_l': 1.0, 'bleu_4': 1.0, 'located_rate': 1.0}
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from faithkit.metrics.classification import safe_ratio
from faithkit.metrics.responses.bleu import bleu, bleu_counts
from faithkit.metrics.responses.ngrams import rouge
from faithkit.metrics.responses.response_columns import MetricColumns
from faithkit.metrics.span_outcomes import count_characters, count_shared, merge_spans
from faithkit.records import Span
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.spread import Statistic, Values

# BERTScore is none: unlike texts may have one below 0.
SHARES = ("rouge_l", "bleu_4", "located_rate", "char_f1", "char_precision", "char_recall")


class Scorer(Protocol):
    """BERTScore, or what stands for it."""

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> dict[str, Values]:
        """`bertscore_precision`, `bertscore_recall` and `bertscore_f1` of each pair [N]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rationale:
    """A judge's reply beside the dataset's own judgement.

    Args:
        group: The dialogue or document.
        said: The reply; empty where it has no readable verdict.
        hallucinated: The response is, by its label.
        num_quoted: Parts that the reply quotes as hallucinated.
        num_located: Those that stand in the response.
        spans: Where they stand.
        gold: Where the hallucinated parts stand; None where the dataset does not tell.
    """

    group: str
    said: str
    target: str
    hallucinated: bool
    num_quoted: int = 0
    num_located: int = 0
    spans: tuple[Span, ...] = ()
    gold: tuple[Span, ...] | None = None


def measure_rationales(
    rows: Sequence[Rationale], scorer: Scorer | None = None, baseline: float | None = None
) -> MetricColumns:
    """Measures each row; BERTScore where there is a scorer.

    Args:
        baseline: Its F1 of unrelated sentences, for `bertscore_rescaled`: (F1 - b) / (1 - b).
    """
    said, targets = [row.said for row in rows], [row.target for row in rows]
    columns: dict[str, Values] = {"rouge_l": rouge(said, targets)["rouge_l"]}
    if scorer is not None:
        columns |= scorer.score(said, targets)
        if baseline is not None:
            columns["bertscore_rescaled"] = (columns["bertscore_f1"] - baseline) / (1 - baseline)
    return _with_corpus(rows, columns)


def select_hallucinated(measured: MetricColumns, rows: Sequence[Rationale]) -> tuple[MetricColumns, int]:
    """Selects the measures of hallucinated responses from those of all; gives also how many there are."""
    marked = np.array([row.hallucinated for row in rows], bool)
    kept = [row for row in rows if row.hallucinated]
    return _with_corpus(kept, {name: column[marked] for name, column in measured.columns.items()}), len(kept)


def _with_corpus(rows: Sequence[Rationale], columns: dict[str, Values]) -> MetricColumns:
    groups = Groups.of(row.group for row in rows)
    corpus = (_bleu(groups, rows), _located(groups, rows), _overlap(groups, rows))
    return MetricColumns(groups, columns, corpus)


def _bleu(groups: Groups, rows: Sequence[Rationale]) -> Statistic:
    sums = groups.sums(bleu_counts([row.said for row in rows], [row.target for row in rows]))
    return lambda weights: {"bleu_4": bleu(weights @ sums) / 100}


def _located(groups: Groups, rows: Sequence[Rationale]) -> Statistic:
    """Computes the share of quoted parts that stand in the response; undefined where nothing is quoted."""
    sums = groups.sums([[row.num_located, row.num_quoted] for row in rows])

    def statistic(weights: Values) -> dict[str, Values]:
        located, quoted = (weights @ sums).T
        return {"located_rate": safe_ratio(located, quoted)}

    return statistic


def _overlap(groups: Groups, rows: Sequence[Rationale]) -> Statistic:
    """Computes precision, recall and F1 of characters, over the rows whose gold spans are known."""
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
