"""Metrics of judges that compare two replies, and the agreement of two annotators.

A comparing judge is shown two replies, of which one is hallucinated, in both orders (HalluDial, appendix C). Each pair
gives two rows: one with the hallucinated reply first, one with it last. `accuracy_first` and `accuracy_last` are the
shares of right answers in either order, `accuracy` is their mean, and `both_orders` the share of pairs that are right
in both. An answer that names neither reply is wrong and counts in `invalid_rate`. `position_bias` is the share of
answers that name the first reply - the share that name the second: 1 for a judge that always names the first.
`combined_accuracy` adds the log-odds of both orders, which cancels such a bias.

Cohen's kappa = (p_o - p_e) / (1 - p_e), with the observed agreement p_o and the expected p_e of two annotators who
label at random with their own frequencies (Cohen 1960). It is 0 by chance, and undefined where both give every row the
same label. More annotators, ratings and spans: faithkit_papers/annotation/.

>>> pair = ["yes", "yes", "no", "no"], ["yes", "no", "no", "no"]
>>> both = measure_agreement(*pair, ["1", "2", "3", "4"], num_resamples=10)
>>> round(both.metrics["agreement"].value, 2), round(both.metrics["kappa"].value, 2)
(0.75, 0.5)
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from faithkit.baselines.word_features import length_score, unsupported_share
from faithkit.calibration import logit
from faithkit.metrics.classification import align_predictions, safe_ratio
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.scores.measures import COMPARING, kinds_of
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.metric import ACCURACY, CORRELATION
from faithkit.statistics.spread import Values

FIRST, LAST = "first", "last"  # in an example's `meta["order"]`: the position of the hallucinated reply
ORDER, OTHER, PAIR = "order", "other", "pair"  # further keys of `meta`: the other reply, and the name of the pair
BIAS = "position_bias"


def make_both_orders(right: Example, hallucinated: Example) -> tuple[Example, Example]:
    """Makes the two rows of a pair: the response is the first reply, `meta` holds the other one.

    The label is that of the first reply, so a judge that names the second calls the first faithful.
    """
    name = f"{hallucinated.id}|{right.id}"
    meta = {**hallucinated.meta, PAIR: name}
    plain = replace(hallucinated, spans=None, target=None, reference=None)
    first = replace(plain, id=f"{name}:{FIRST}", meta={**meta, ORDER: FIRST, OTHER: right.response})
    other = {**meta, ORDER: LAST, OTHER: hallucinated.response}
    return first, replace(plain, id=f"{name}:{LAST}", response=right.response, label=FAITHFUL, meta=other)


def comparison_metrics(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, num_resamples: int = 1000
) -> ScoredMetrics:
    """Computes all metrics of a comparing judge with their intervals.

    Args:
        examples: Both rows of each pair, as `make_both_orders` makes them, one after the other.
    """
    rows = align_predictions(examples, predictions)
    firsts, lasts = range(0, len(rows), 2), range(1, len(rows), 2)
    assert all(examples[i].meta[PAIR] == examples[i + 1].meta[PAIR] for i in firsts), "the rows come in pairs"
    right = np.array([row.label == example.label for row, example in zip(rows, examples, strict=True)], float)
    named = np.array([[row.label == label for label in (HALLUCINATED, FAITHFUL, UNPARSED)] for row in rows], float)
    odds = np.array([np.nan if row.score is None else logit([row.score])[0] for row in rows])
    combined = odds[firsts] - odds[lasts]  # the log-odds of the hallucinated reply, from both orders
    known = np.isfinite(combined)
    columns = [
        np.ones(len(firsts)),
        right[firsts],
        right[lasts],
        right[firsts] * right[lasts],
        *(named[firsts] + named[lasts]).T,
        known,
        np.where(known, combined > 0, 0) + 0.5 * np.where(known, combined == 0, 0),  # equal odds count half
    ]
    groups = Groups.of(examples[i].group for i in firsts)
    sums = groups.sums(np.stack(columns, axis=1))

    def statistic(weights: Values) -> dict[str, Values]:
        pairs, first, last, both, named_1, named_2, named_none, with_odds, right_by_odds = (weights @ sums).T
        found = {
            "accuracy": (first + last) / (2 * pairs),
            "accuracy_first": first / pairs,
            "accuracy_last": last / pairs,
            "both_orders": both / pairs,
            BIAS: (named_1 - named_2) / (2 * pairs),
            "invalid_rate": named_none / (2 * pairs),
        }
        if known.any():
            found["combined_accuracy"] = safe_ratio(right_by_odds, with_odds)
        return found

    n = {"combined_accuracy": int(known.sum())}
    return bootstrap(groups, statistic, kinds=kinds_of(COMPARING), n=n, num_resamples=num_resamples)


def predict_pair_baselines(examples: Sequence[Example]) -> dict[str, dict[str, Prediction]]:
    """Judges pairs without reading, by name: the longer reply, and the one with more words that the knowledge lacks.

    If both are equal they name the first, in both orders.
    """
    scorers = {"longer reply": lambda knowledge, text: length_score(text)}
    if any(example.knowledge for example in examples):
        scorers["word overlap"] = unsupported_share
    found: dict[str, dict[str, Prediction]] = {name: {} for name in scorers}
    for example in examples:
        for name, scorer in scorers.items():
            first, second = (scorer(example.knowledge, text) for text in (example.response, str(example.meta[OTHER])))
            label = HALLUCINATED if first >= second else FAITHFUL
            found[name][example.id] = Prediction(id=example.id, label=label, score=0.5 + (first - second) / 2)
    return found


def measure_agreement(
    first: Sequence[str], second: Sequence[str], groups: Sequence[str], *, num_resamples: int = 1000
) -> ScoredMetrics:
    """Computes `agreement` and `kappa` of two annotators on the same rows; any text is a label."""
    names = sorted({*first, *second})
    index = {name: place for place, name in enumerate(names)}
    cells = [index[one] * len(names) + index[other] for one, other in zip(first, second, strict=True)]
    row_groups = Groups.of(groups)
    sums = row_groups.sums(np.eye(len(names) ** 2)[cells])  # [G, labels x labels]

    def statistic(weights: Values) -> dict[str, Values]:
        observed, kappa = cohen_kappa((weights @ sums).reshape(-1, len(names), len(names)))
        return {"agreement": observed, "kappa": kappa}

    kinds = {"agreement": ACCURACY, "kappa": CORRELATION}
    return bootstrap(row_groups, statistic, kinds=kinds, num_resamples=num_resamples)


def cohen_kappa(tables: Values) -> tuple[Values, Values]:
    """Computes the observed agreement and Cohen's kappa of tables [..., labels, labels]; NaN where undefined."""
    totals = tables.sum(axis=(-2, -1), keepdims=True)
    shares = np.where(totals > 0, tables / np.where(totals > 0, totals, 1), np.nan)
    observed = np.trace(shares, axis1=-2, axis2=-1)
    disagreement = 1 - (shares.sum(axis=-1) * shares.sum(axis=-2)).sum(axis=-1)  # expected by chance
    defined = disagreement > 1e-12
    return observed, np.where(defined, (observed - 1 + disagreement) / np.where(defined, disagreement, 1), np.nan)
