"""Corrects the rate of a judge by its errors on labelled rows: what share would people call hallucinated?

Use it wherever a rate comes from a detector. Of labelled rows the judge finds a share r of the hallucinated ones (its
recall) and calls a share f of the faithful ones hallucinated (its false alarms). Where it calls a share q of responses
hallucinated, p of them are: q = r p + f (1 - p), so p = (q - f) / (r - f) (Rogan & Gladen 1978).

Both samples are resampled by groups, so the interval holds the error of q and that of r and f. It rests on one
assumption: the judge errs as often on these responses as on the labelled ones. A value outside [0, 1] is moved to the
bound, with a note. Where the whole interval lies outside, no p gives such a q: the assumption does not hold, and there
is not a corrected rate.

>>> import numpy as np
>>> error = JudgeError.of_rows(gold=[1] * 40 + [0] * 40, called=[1] * 36 + [0] * 4 + [1] * 12 + [0] * 28,
...                            groups=[str(number) for number in range(80)])
>>> q = np.array([1.0] * 60 + [0.0] * 40)  # 60% called; p = (.6 - .3) / (.9 - .3)
>>> found = corrected_rate(q, [str(number) for number in range(100)], error)
>>> round(found.metric.value, 6)
0.5
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from faithkit.errors import UserError
from faithkit.metrics.classification import align_predictions
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.statistics.bootstrap import Groups, bootstrap
from faithkit.statistics.metric import ACCURACY, ERROR_RATE, UPPER_QUANTILE, Metric, student_quantile
from faithkit.statistics.spread import Values


@dataclass(frozen=True, slots=True, eq=False)
class JudgeError:
    """The errors of a judge on labelled rows.

    Args:
        table: Found, missed, false alarms and rightly passed of each group [G, 4].
        name: The rows, as a table names them.
    """

    table: Values
    name: str = ""

    @classmethod
    def of_rows(cls, gold: ArrayLike, called: ArrayLike, groups: Sequence[str], name: str = "") -> "JudgeError":
        """Counts rows of 0 and 1.

        Raises:
            UserError: There are no hallucinated or no faithful rows.
        """
        truth, calls = np.asarray(gold, bool), np.asarray(called, bool)
        cells = np.stack([truth & calls, truth & ~calls, ~truth & calls, ~truth & ~calls], axis=1)
        if not truth.any() or truth.all():
            only = HALLUCINATED if truth.any() else "faithful"
            hint = "give rows of both labels: benchmark.judge_labels=[{dataset: audit, path: DIR}]"
            raise UserError(f"a judge's error cannot be measured where every labelled row is {only}", hint=hint)
        return cls(Groups.of(groups).sums(cells), name)

    @classmethod
    def of(cls, examples: Sequence[Example], predictions: Mapping[str, Prediction], name: str = "") -> "JudgeError":
        """Compares a judge's verdicts with the labels; verdicts that could not be parsed are left out.

        Raises:
            UserError: No verdict could be parsed, or there are no hallucinated or no faithful rows.
        """
        pairs = [
            (e, p)
            for e, p in zip(examples, align_predictions(examples, predictions), strict=True)
            if p.label != UNPARSED
        ]
        if not pairs:
            problem = f"none of the judge's {len(examples):,} verdicts on labelled rows could be parsed"
            raise UserError(
                problem, hint="read its replies in the predictions file, and ask in another form: judge.ask=..."
            )
        gold, called = ([one.label == HALLUCINATED for one in side] for side in zip(*pairs, strict=True))
        return cls.of_rows(gold, called, [example.group for example, _ in pairs], name)

    def rates(self, weights: Values) -> tuple[Values, Values]:
        """Recall and false alarms [R] under weights of groups [R, G]; NaN where a resample lacks a label."""
        found, missed, alarms, passed = (weights @ self.table).T
        with np.errstate(invalid="ignore"):
            return found / (found + missed), alarms / (alarms + passed)

    def metrics(self, *, num_resamples: int = 1000) -> dict[str, Metric]:
        """`recall` and `false_alarms` with their intervals."""
        groups = Groups(np.arange(len(self.table)), len(self.table))

        def statistic(weights: Values) -> dict[str, Values]:
            recall, alarms = self.rates(weights)
            return {"recall": recall, "false_alarms": alarms}

        sizes = self.table.sum(axis=0)
        n = {"recall": int(sizes[0] + sizes[1]), "false_alarms": int(sizes[2] + sizes[3])}
        return bootstrap(
            groups, statistic, n=n, kinds={"recall": ACCURACY, "false_alarms": ERROR_RATE}, num_resamples=num_resamples
        ).metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A corrected rate, and a note on its limits; no metric where nothing can be corrected."""

    metric: Metric | None
    note: str = ""


def corrected_rate(called: Values, groups: Sequence[str], error: JudgeError, *, num_resamples: int = 1000) -> Corrected:
    """Corrects the share of responses that a judge calls hallucinated.

    Args:
        called: 1 where it calls a response hallucinated [N], NaN where its verdict could not be parsed.
        groups: The dialogue or document of each response.
    """
    rows = np.isfinite(called)
    response_groups = Groups.of(name for name, kept in zip(groups, rows, strict=True) if kept)
    table = response_groups.sums(np.stack([called[rows], np.ones(int(rows.sum()))], axis=1))  # [G, 2]
    whole = error.rates(np.ones((1, len(error.table))))
    [value] = _solve(called[rows].mean(keepdims=True), *whole)
    if not np.isfinite(value):
        return Corrected(metric=None, note="no correction: it calls faithful rows hallucinated as often as others")
    shown, num_rows = float(np.clip(value, 0.0, 1.0)), int(rows.sum())
    draw = np.random.default_rng(0)
    weights = [
        draw.multinomial(count, np.full(count, 1 / count), size=num_resamples).astype(np.float64)
        for count in (response_groups.count, len(error.table))
    ]
    recall, alarms = error.rates(weights[1])
    called_sums = weights[0] @ table
    shares = [called_sums[:, 0] / called_sums[:, 1], recall, alarms]
    found, missed, false_alarms, passed = error.table.T
    with_label = (int((found + missed > 0).sum()), int((false_alarms + passed > 0).sum()))  # hallucinated, faithful
    counts = (response_groups.count, *with_label)
    for place, count in enumerate(counts):
        # No resample shows the error of a share that is 0 or 1 in all of them. The draws are those of as many
        # independent observations as groups, by Jeffreys' prior.
        if (shares[place] == 0).all() or (shares[place] == 1).all():
            right = count if shares[place][0] == 1 else 0
            shares[place] = draw.beta(right + 0.5, count - right + 0.5, size=num_resamples)
    samples = _solve(*shares)
    defined = samples[np.isfinite(samples)]
    if len(defined) < (1 - 0.01) * num_resamples:  # with more undefined ones nothing is known about the rate
        note = "the labelled rows are too few to correct by: the interval is everything"
        return Corrected(metric=Metric(value=shown, low=0.0, high=1.0, n=num_rows), note=note)
    # The quantiles of a 95% interval are farther out for few groups: Student's t (Hesterberg 2015, expanded).
    fewest, level = min(response_groups.count, len(error.table)), 0.0
    if fewest > 1:
        level = NormalDist().cdf(-((fewest / (fewest - 1)) ** 0.5) * student_quantile(UPPER_QUANTILE, fewest - 1))
    low, high = np.quantile(defined, (level, 1 - level))
    if min(low, value) > 1 or max(high, value) < 0:
        called_share = 100 * called[rows].mean()
        note = f"no correction: no share of hallucinated responses explains {called_share:.1f}% called so, by its error"
        return Corrected(metric=None, note=f"{note} on labelled rows ({100 * value:.1f})")
    note = f"{100 * value:.1f} before it was put on the bound" if not 0 <= value <= 1 else ""
    bounds = {"low": float(np.clip(min(low, value), 0.0, 1.0)), "high": float(np.clip(max(high, value), 0.0, 1.0))}
    return Corrected(metric=Metric(value=shown, **bounds, n=num_rows), note=note)


def _solve(called: Values, recall: Values, alarms: Values) -> Values:
    """Computes corrected rates, not yet within 0 and 1; NaN where the judge does not separate the classes."""
    gain = recall - alarms
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(gain > 0, (called - alarms) / gain, np.nan)
