"""Scores a judge that is shown two replies, of which one is hallucinated, in both orders (HalluDial, appendix C).

Each pair gives two rows: one with the hallucinated reply first, one with it last. `accuracy_first` and `accuracy_last`
are the shares that name it in either order and `accuracy` is the mean of both; a reply that names neither counts as
wrong and is `invalid_rate`. `both_orders` is the share of pairs that are right in both. `position_bias` is the share of
replies that name the first less the share that name the second: 0 for a judge that reads, 1 for one that always says 1.
`combined_accuracy` adds the log-odds of both orders, which cancels such a bias.

Agreement of two annotators on the same rows: the share that they agree on, and Cohen's kappa with its interval.

kappa = (p_o - p_e) / (1 - p_e), with the observed agreement p_o and the one p_e of two annotators who keep their own
shares and label at random (Cohen 1960). 0 is chance; where both give every row the same label it is not defined. What
could not be read is a label of its own: it agrees with nobody's accurate or inaccurate. More annotators, ratings and
spans: construction/agreement/.

>>> both = agreement(["yes", "yes", "no", "no"], ["yes", "no", "no", "no"], ["1", "2", "3", "4"], num_resamples=10)
>>> round(both.metrics["agreement"].value, 2), round(both.metrics["kappa"].value, 2)
(0.75, 0.5)
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from faithkit.baselines.word_overlap import length_score, unsupported_share
from faithkit.calibration.thresholds import logit
from faithkit.metrics.classification import safe_ratio
from faithkit.metrics.outcomes import align_predictions
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.spread import Values

FIRST, LAST = "first", "last"  # in an example's `meta["order"]`: where the hallucinated reply stands
ORDER, OTHER, PAIR = "order", "other", "pair"  # in `meta`: beside it the other reply, and the name of the pair
BIAS = "position_bias"


def make_both_orders(right: Example, hallucinated: Example) -> tuple[Example, Example]:
    """Makes the two rows of a pair: the response is the reply that stands first, `meta` has the other one.

    Its label is that of the first reply, so a judge that names the second calls the first faithful.
    """
    name = f"{hallucinated.id}|{right.id}"
    meta = {**hallucinated.meta, PAIR: name}
    plain = replace(hallucinated, spans=None, target=None, reference=None)
    return (
        replace(plain, id=f"{name}:{FIRST}", meta={**meta, ORDER: FIRST, OTHER: right.response}),
        replace(
            plain,
            id=f"{name}:{LAST}",
            response=right.response,
            label=FAITHFUL,
            meta={**meta, ORDER: LAST, OTHER: hallucinated.response},
        ),
    )


def comparison_metrics(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, num_resamples: int = 1000
) -> ScoredMetrics:
    """Computes all metrics with their intervals.

    Args:
        examples: Both rows of each pair, as `order_pair` makes them, one behind the other.
    """
    said = align_predictions(examples, predictions)
    firsts, lasts = range(0, len(said), 2), range(1, len(said), 2)
    assert all(examples[i].meta[PAIR] == examples[i + 1].meta[PAIR] for i in firsts), "the rows come in pairs"
    right = np.array([one.label == example.label for one, example in zip(said, examples, strict=True)], float)
    named = np.array([[one.label == label for label in (HALLUCINATED, FAITHFUL, UNPARSED)] for one in said], float)
    odds = np.array([np.nan if one.score is None else logit([one.score])[0] for one in said])
    combined = odds[firsts] - odds[lasts]  # the log-odds of the hallucinated reply, in both orders
    known = np.isfinite(combined)
    columns = [
        np.ones(len(firsts)),
        right[firsts],
        right[lasts],
        right[firsts] * right[lasts],
        *(named[firsts] + named[lasts]).T,
        known,
        np.where(known, combined > 0, 0) + 0.5 * np.where(known, combined == 0, 0),  # of equal odds, a half
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

    shares = ("accuracy", "accuracy_first", "accuracy_last", "both_orders", "invalid_rate", "combined_accuracy")
    n = {"combined_accuracy": int(known.sum())}
    scored = bootstrap(groups, statistic, n=n, shares=shares, num_resamples=num_resamples)
    scored.metrics[BIAS] = scored.metrics[BIAS].within(-1.0, 1.0)
    return scored


def predict_pair_baselines(examples: Sequence[Example]) -> dict[str, dict[str, Prediction]]:
    """Judges without reading, by name: the longer reply, and the one with more words that the knowledge lacks.

    Of equals they name the first, in both orders.
    """
    found: dict[str, dict[str, Prediction]] = {"longer reply": {}}
    if any(example.knowledge for example in examples):
        found["word overlap"] = {}
    for example in examples:
        texts = example.response, str(example.meta[OTHER])
        scores = {
            "longer reply": [length_score(text) for text in texts],
            "word overlap": [unsupported_share(example.knowledge, text) for text in texts],
        }
        for name, said in found.items():
            first, second = scores[name]
            label = HALLUCINATED if first >= second else FAITHFUL
            said[example.id] = Prediction(id=example.id, label=label, score=0.5 + (first - second) / 2)
    return found


def measure_agreement(
    first: Sequence[str], second: Sequence[str], groups: Sequence[str], *, num_resamples: int = 1000
) -> ScoredMetrics:
    """Computes `agreement` and `kappa` of two annotators' labels, over the labels that either gives."""
    names = sorted({*first, *second})
    index = {name: place for place, name in enumerate(names)}
    cells = [index[one] * len(names) + index[other] for one, other in zip(first, second, strict=True)]
    of = Groups.of(groups)
    sums = of.sums(np.eye(len(names) ** 2)[cells])  # [G, labels x labels]

    def statistic(weights: Values) -> dict[str, Values]:
        observed, kappa = cohen_kappa((weights @ sums).reshape(-1, len(names), len(names)))
        return {"agreement": observed, "kappa": kappa}

    scored = bootstrap(of, statistic, shares=("agreement",), num_resamples=num_resamples)
    if "kappa" in scored.metrics:
        scored.metrics["kappa"] = scored.metrics["kappa"].within(-1.0, 1.0)
    return scored


def cohen_kappa(tables: Values) -> tuple[Values, Values]:
    """Computes the observed agreement and Cohen's kappa of tables [..., labels, labels]; NaN where undefined."""
    totals = tables.sum(axis=(-2, -1), keepdims=True)
    shares = np.where(totals > 0, tables / np.where(totals > 0, totals, 1), np.nan)
    observed = np.trace(shares, axis1=-2, axis2=-1)
    room = 1 - (shares.sum(axis=-1) * shares.sum(axis=-2)).sum(axis=-1)
    defined = room > 1e-12
    return observed, np.where(defined, (observed - 1 + room) / np.where(defined, room, 1), np.nan)
