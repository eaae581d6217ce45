"""Agreement of two annotators on the same rows: the share that they agree on, and Cohen's kappa with its interval.

kappa = (p_o - p_e) / (1 - p_e), with the observed agreement p_o and the one p_e of two annotators who keep their own
shares and label at random (Cohen 1960). 0 is chance; where both give every row the same label it is not defined. What
could not be read is a label of its own: it agrees with nobody's accurate or inaccurate. More annotators, ratings and
spans: construction/agreement/.

>>> both = agreement(["yes", "yes", "no", "no"], ["yes", "no", "no", "no"], ["1", "2", "3", "4"], num_resamples=10)
>>> round(both.metrics["agreement"].value, 2), round(both.metrics["kappa"].value, 2)
(0.75, 0.5)
"""

from collections.abc import Sequence

import numpy as np

from faithkit.statistics.intervals import Groups, Scored, Values, bootstrap


def agreement(
    first: Sequence[str], second: Sequence[str], groups: Sequence[str], *, num_resamples: int = 1000
) -> Scored:
    """Computes `agreement` and `kappa` of two annotators' labels, over the labels that either gives."""
    names = sorted({*first, *second})
    index = {name: place for place, name in enumerate(names)}
    cells = [index[one] * len(names) + index[other] for one, other in zip(first, second, strict=True)]
    of = Groups.of(groups)
    sums = of.sums(np.eye(len(names) ** 2)[cells])  # [G, labels x labels]

    def statistic(weights: Values) -> dict[str, Values]:
        observed, kappa = kappa_of_tables((weights @ sums).reshape(-1, len(names), len(names)))
        return {"agreement": observed, "kappa": kappa}

    scored = bootstrap(of, statistic, shares=("agreement",), num_resamples=num_resamples)
    if "kappa" in scored.metrics:
        scored.metrics["kappa"] = scored.metrics["kappa"].within(-1.0, 1.0)
    return scored


def kappa_of_tables(tables: Values) -> tuple[Values, Values]:
    """Computes the observed agreement and Cohen's kappa of tables [..., labels, labels]; NaN where undefined."""
    totals = tables.sum(axis=(-2, -1), keepdims=True)
    shares = np.where(totals > 0, tables / np.where(totals > 0, totals, 1), np.nan)
    observed = np.trace(shares, axis1=-2, axis2=-1)
    room = 1 - (shares.sum(axis=-1) * shares.sum(axis=-2)).sum(axis=-1)
    defined = room > 1e-12
    return observed, np.where(defined, (observed - 1 + room) / np.where(defined, room, 1), np.nan)
