"""Agreement of two annotators on the same rows: the share that they agree on, and Cohen's kappa with its interval.

kappa = (p_o - p_e) / (1 - p_e), with the observed agreement p_o and the one p_e of two annotators who keep their own
shares and label at random (Cohen 1960). 0 is chance; where both give every row the same label it is not defined. What
could not be read is a label of its own: it agrees with nobody's accurate or inaccurate.

>>> both = agreement(["yes", "yes", "no", "no"], ["yes", "no", "no", "no"], ["1", "2", "3", "4"], num_resamples=10)
>>> round(both.metrics["agreement"].value, 2), round(both.metrics["kappa"].value, 2)
(0.75, 0.5)
"""

from collections.abc import Sequence

import numpy as np

from faithkit.evaluation.intervals import Groups, Scored, Values, bootstrap


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
        table = (weights @ sums).reshape(-1, len(names), len(names))
        shares = table / table.sum(axis=(1, 2), keepdims=True)
        observed = np.trace(shares, axis1=1, axis2=2)
        by_chance = (shares.sum(axis=2) * shares.sum(axis=1)).sum(axis=1)
        room = 1 - by_chance
        defined = room > 1e-12
        kappa = np.where(defined, (observed - by_chance) / np.where(defined, room, 1), np.nan)
        return {"agreement": observed, "kappa": kappa}

    scored = bootstrap(of, statistic, shares=("agreement",), num_resamples=num_resamples)
    if "kappa" in scored.metrics:
        scored.metrics["kappa"] = scored.metrics["kappa"].within(-1.0, 1.0)
    return scored
