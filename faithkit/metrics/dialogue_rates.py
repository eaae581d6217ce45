"""Hallucination rates of a language model: by turn, and by dialogue, where any turn counts (HalluDial, section 4).

Turns with an unreadable verdict, or without a reply, are left out and counted as `unparsed_rate` and `no_reply_rate`. A
dialogue counts where any of its judged turns is hallucinated, and is left out where none is judged. Intervals are over
dialogues.

>>> import numpy as np
>>> called = np.array([1, 0, 0, 0, np.nan, 0])
>>> turns = Turns(called=called, replied=np.ones(6, bool), groups=Groups.of("aabbcc"))
>>> found = rate_metrics(turns, num_resamples=10).metrics
>>> found["turn_rate"].value, round(found["dialogue_rate"].value, 3)
(0.2, 0.333)
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faithkit.metrics.classification import safe_ratio
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.metric import ERROR_RATE
from faithkit.statistics.spread import Statistic, Values

RATES = TURN_RATE, DIALOGUE_RATE = ("turn_rate", "dialogue_rate")


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """A judge's verdicts on the replies of one model.

    Args:
        called: 1 where the judge calls the reply hallucinated [N], NaN where there is no verdict.
        replied: Whether there is a reply [N].
        groups: The dialogue of each turn.
    """

    called: Values
    replied: NDArray[np.bool_]
    groups: Groups

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Marks the turns with a verdict [N]."""
        return np.isfinite(self.called)


def rate_statistic(turns: Turns) -> Statistic:
    """Makes a statistic of all rates."""
    judged, called = turns.judged, np.nan_to_num(turns.called)
    sums = turns.groups.sums(np.stack([called, judged, turns.replied, np.ones(len(called))], axis=1))  # [G, 4]
    any_called, any_judged = sums[:, 0] > 0, sums[:, 1] > 0

    def statistic(weights: Values) -> dict[str, Values]:
        hallucinated, with_verdict, replied, total = (weights @ sums).T
        return {
            TURN_RATE: safe_ratio(hallucinated, with_verdict),
            DIALOGUE_RATE: safe_ratio(weights @ any_called, weights @ any_judged),
            "unparsed_rate": safe_ratio(replied - with_verdict, replied),
            "no_reply_rate": 1 - replied / total,
        }

    return statistic


def rate_metrics(turns: Turns, *, num_resamples: int = 1000) -> ScoredMetrics:
    """Computes all rates with their intervals; n of `dialogue_rate` counts dialogues, that of the others turns."""
    judged = turns.judged
    n = {
        TURN_RATE: int(judged.sum()),
        DIALOGUE_RATE: len(np.unique(turns.groups.index[judged])),
        "unparsed_rate": int(turns.replied.sum()),
    }
    return bootstrap(turns.groups, rate_statistic(turns), kinds=ERROR_RATE, n=n, num_resamples=num_resamples)
