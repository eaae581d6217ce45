"""The share of hallucinated responses from a detector's verdicts on all of them and people's labels of a few.

Use it where a detector has read thousands of a system's responses and people a few dozen. The detector alone is biased
by its own errors; the labels alone leave a wide interval. The prediction-powered estimate keeps the labels' lack of
bias, and is the narrower the better the detector follows them (Angelopoulos et al. 2023; with the weight l tuned to
that, PPI++, Angelopoulos et al. 2024):

    rate = l mean(f) + mean_w(y - l f)        l = cov_w(y, f) / var(f)

f are the detector's scores on all N responses, y the labels of n of them, and mean_w weighs each labelled response by
1 / (the probability that it was chosen for labelling). A detector that knows nothing gets l = 0: the labels alone.

The standard error is the jackknife's over groups (dialogues, sources), so it has the error of l and of both samples.
The interval is Student's t with a degree of freedom for each labelled group but one, on the log-odds scale. It is not
to be trusted below `MIN_GROUPS` labelled groups, or `MIN_OF_EACH` labels of either class: there the interval is that of
the labels alone, Clopper and Pearson's exact one for as many independent labels as theirs are worth (Korn & Graubard
1998). A detector that is far off can carry the estimate out of [0, 1]: there the rate is the labels' alone too, with
their interval. How often each holds the truth stands in EXPERIMENTS.md.
`label_plan.py` says how many labels an interval takes.

Relatives: `responses/judge_error.py` corrects a rate by the detector's recall and false alarms on labelled rows of
anywhere (Rogan & Gladen 1978). It assumes that the detector errs as often here as there. This one assumes nothing of
the detector, but its labels must be of these very responses, chosen by chance.

>>> import numpy as np
>>> truth = np.arange(2000) % 4 == 0  # a quarter is hallucinated
>>> called = np.where(np.arange(2000) % 9 == 0, ~truth, truth)  # a ninth of the verdicts is wrong
>>> labels = np.where(np.arange(2000) % 17 == 0, truth, np.nan)  # 118 labels
>>> rows = Verdicts.of(called, labels, groups=[str(row) for row in range(2000)])
>>> found = estimate_rate(rows)
>>> round(float(called.mean()), 2), round(found.metric.value, 2), found.is_exact
(0.31, 0.25, False)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit

from faithkit.errors import UserError
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import Spread, Values, share_interval

MIN_GROUPS = 20
MIN_OF_EACH = 5
UPPER = 0.975


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """A detector's verdicts on responses, and people's labels of some of them.

    Args:
        scores: P(hallucinated), or 0 and 1 [N].
        labels: 1 for hallucinated, 0 for faithful, NaN where nobody labelled [N].
        groups: The dialogue or source of each response.
        probability: With which each response was to be labelled [N]; any constant where all had the same.
    """

    scores: Values
    labels: Values
    groups: Groups
    probability: Values

    @classmethod
    def of(
        cls, scores: ArrayLike, labels: ArrayLike, groups: Sequence[str], probability: ArrayLike | None = None
    ) -> "Verdicts":
        """Checks and converts the columns.

        Raises:
            UserError: A labelled response had no chance to be chosen, or a probability is above 1.
        """
        f, y = np.asarray(scores, np.float64), np.asarray(labels, np.float64)
        chance = np.ones(len(f)) if probability is None else np.asarray(probability, np.float64)
        given = chance[np.isfinite(y)]
        if not np.all((given > 0) & (given <= 1)):
            hint = "leave the column out where every response had the same chance"
            raise UserError("a labelled response needs a probability above 0 and at most 1", hint=hint)
        return cls(f, y, Groups.of(groups), chance)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Marks the labelled responses [N]."""
        return np.isfinite(self.labels)

    @property
    def num_groups(self) -> int:
        """Counts the groups with a labelled response."""
        return len(np.unique(self.groups.index[self.labelled]))

    def part(self, rows: NDArray[np.bool_]) -> "Verdicts":
        """Selects some of the responses."""
        _, index = np.unique(self.groups.index[rows], return_inverse=True)
        groups = Groups(index, int(index.max()) + 1 if len(index) else 0)
        return replace(
            self,
            scores=self.scores[rows],
            labels=self.labels[rows],
            groups=groups,
            probability=self.probability[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelSums:
    """All that an estimate needs of the responses, whether they are held or were read shard by shard.

    Args:
        total: Sums [9]: 1, f, f^2 of all; of the labelled the weights w, wy, wf, w^2, wf^2, wyf.
        num_labels: The labelled responses.
        num_hallucinated: Those of them that are labelled so.
        num_groups: The groups that they are from.
        error: Gives the jackknife's standard error with a weight of the detector; None tunes it.
    """

    total: Values
    num_labels: int
    num_hallucinated: int
    num_groups: int
    error: Callable[[float | None], float]

    @classmethod
    def of(cls, rows: Verdicts) -> "LabelSums":
        """Sums up responses that are held."""
        table, labels = _sum_by_group(rows), rows.labels[rows.labelled]
        return cls(
            total=table.sum(axis=0),
            num_labels=len(labels),
            num_hallucinated=int(labels.sum()),
            num_groups=rows.num_groups,
            error=lambda power: jackknife_error(leave_out_sums(table.sum(axis=0), table, power)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated rate.

    Args:
        metric: The rate with its 95% interval; n counts all responses.
        power: l, the weight of the detector.
        num_labels: The labelled responses.
        num_groups: The groups that they are from.
        is_exact: The labels are too few, or their groups all alike: the rate is theirs alone, with an exact interval.
        is_beyond: With the detector the rate would lie beyond [0, 1], and is the labels' alone.
    """

    metric: Metric
    power: float
    num_labels: int
    num_groups: int
    is_exact: bool
    is_beyond: bool = False


def estimate_rate(rows: Verdicts, *, power: float | None = None) -> Estimate:
    """Estimates the rate of the system behind the responses.

    Args:
        power: l; None tunes it, 0 is the labels alone, 1 the plain estimate of 2023.

    Raises:
        UserError: No response is labelled.
    """
    return estimate_sums(LabelSums.of(rows), power=power)


def estimate_sums(sums: LabelSums, *, power: float | None = None) -> Estimate:
    """Does what `estimate_rate` does with sums of the responses.

    Raises:
        UserError: No response is labelled.
    """
    if not sums.num_labels:
        raise UserError("no response is labelled", hint="label some first: labels=null chooses which")
    fewest = min(sums.num_hallucinated, sums.num_labels - sums.num_hallucinated)
    few = sums.num_groups < MIN_GROUPS or fewest < MIN_OF_EACH
    if few:
        power = 0.0
    value = float(_solve(sums.total, power))
    beyond = power != 0 and not 0 < value < 1
    if beyond:  # cut off at 0 or 1 it would stand beside an interval that is not its own
        power, value = 0.0, float(_solve(sums.total, 0.0))
    tuned = float(tuned_power(sums.total)) if power is None else power
    error = sums.error(power)
    exact = few or not (np.isfinite(error) and error > 0)
    if exact:
        tuned, value = 0.0, float(_solve(sums.total, 0.0))
    low, high = (
        _exact_interval(sums) if exact else share_interval(value, Spread.alike(error, sums.num_groups), sums.num_groups)
    )
    metric = Metric(value=value, low=min(low, value), high=max(high, value), n=round(sums.total[0]))
    return Estimate(
        metric=metric,
        power=tuned,
        num_labels=sums.num_labels,
        num_groups=sums.num_groups,
        is_exact=exact,
        is_beyond=beyond,
    )


def _sum_by_group(rows: Verdicts) -> Values:
    """Sums by group [G, 9]: 1, f, f^2 of all; of the labelled the weights w, wy, wf, w^2, wf^2, wyf."""
    known = rows.labelled
    y = np.where(known, rows.labels, 0.0)
    weight = np.where(known, 1 / np.where(known, rows.probability, 1.0), 0.0)
    f = rows.scores
    return rows.groups.sums(np.stack([np.ones(len(f)), f, f * f, *weighted_terms(y, f, weight)], axis=1))


def weighted_terms(labels: Values, scores: Values, weights: Values) -> list[Values]:
    """The terms of labelled responses in the sums: w, wy, wf, w^2, wf^2, wyf, each [N]."""
    return [
        *(weights, weights * labels, weights * scores),
        *(weights**2, weights * scores * scores, weights * labels * scores),
    ]


def tuned_power(sums: Values) -> Values:
    """The tuned weight of the detector from sums [..., 9]; 0 where it says the same of all, or the opposite."""
    count, f, ff, weight, wy, wf, _, _, wyf = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = wyf / weight - (wy / weight) * (wf / weight)
        variance = ff / count - (f / count) ** 2
        return np.where(variance > 1e-12, np.maximum(covariance / variance, 0.0), 0.0)


def _solve(sums: Values, power: float | None) -> Values:
    """The estimate from sums [..., 9]."""
    count, f, _, weight, wy, wf, _, _, _ = np.moveaxis(sums, -1, 0)
    chosen = tuned_power(sums) if power is None else power
    with np.errstate(invalid="ignore", divide="ignore"):
        return wy / weight + chosen * (f / count - wf / weight)


def leave_out_sums(total: Values, table: Values, power: float | None) -> Values:
    """Leaves each of some groups out once: their number, and the sums of what the estimate moves by and its square [3].

    Added up over all groups they tell the jackknife's error, so that the groups need not be held together.

    Args:
        total: Sums over all groups [9].
        table: Sums of some of them [G, 9].
    """
    moved = _solve(total - table, power) - _solve(total, power)
    return np.array([len(moved), moved.sum(), (moved**2).sum()])


def jackknife_error(left_out: Values) -> float:
    """The jackknife's standard error from the sums of `leave_out` over all groups."""
    count, moved, squares = left_out
    return float(np.sqrt((count - 1) / count * np.maximum(squares - moved**2 / count, 0.0)))


def _exact_interval(sums: LabelSums) -> tuple[float, float]:
    """Clopper and Pearson's interval of the labels alone, for as many labels as theirs are worth."""
    _, _, _, weight, wy, _, ww, _, _ = sums.total
    share, groups, labels = float(wy / weight), sums.num_groups, sums.num_labels
    error = sums.error(0.0)
    if 0 < share < 1 and np.isfinite(error) and error > 0 and groups > 1:
        worth = min(share * (1 - share) / error**2, labels)
        worth *= float((stdtrit(max(labels - 1, 1), UPPER) / stdtrit(groups - 1, UPPER)) ** 2)
    else:
        worth = min(groups, float(weight**2 / ww))
    count = share * worth
    low = 0.0 if share <= 0 else float(betaincinv(count, worth - count + 1, 1 - UPPER))
    high = 1.0 if share >= 1 else float(betaincinv(count + 1, worth - count, UPPER))
    return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    """The number of labels that an interval of a wanted width takes.

    Args:
        num_labels: In all, those that there are among them; None where even a label of every response is too few.
        least_width: The width with every response labelled.
    """

    num_labels: int | None
    least_width: float


def plan_labels(rows: Verdicts, width: float) -> LabelPlan:
    """Works out how many labels bring the interval down to a width, as `plan_sums` does."""
    return plan_sums(LabelSums.of(rows), width)


def plan_sums(sums: LabelSums, width: float) -> LabelPlan:
    """Works out how many labels, chosen at random, bring the interval down to a width.

    The variance with n labels of N responses is d (v / n + (u - v) / N), where u is the variance of a label, v what of
    it the detector leaves unexplained, and d the design effect: what groups and unequal chances add, as they do now. A
    rough number where the labels are few.
    """
    total, present, num = sums.total, sums.num_labels, round(sums.total[0])
    _, _, _, weight, wy, wf, _, wff, wyf = total
    share = (present * wy / weight + 0.5) / (present + 1)  # never 0 or 1
    whole = share * (1 - share)
    power = tuned_power(total) if present > sums.num_hallucinated else 0.0
    mean_y, mean_f = wy / weight, wf / weight
    variance_f, covariance = wff / weight - mean_f**2, wyf / weight - mean_y * mean_f
    left = float(np.clip(mean_y - mean_y**2 - 2 * power * covariance + power**2 * variance_f, 0.0, whole))
    left = max(left, whole / (present + 2))  # no error among n labels does not mean that there is none
    now = left / present + max(whole - left, 0.0) / num
    error = sums.error(None)
    effect = max(1.0, error**2 / now) if np.isfinite(error) and sums.num_groups >= MIN_GROUPS else 1.0
    reach = 2 * float(stdtrit(max(num - 1, 1), UPPER))
    least = reach * np.sqrt(effect * whole / num)
    wanted = (width / (2 * 1.96)) ** 2 / effect - max(whole - left, 0.0) / num
    if wanted <= 0 or left / wanted > num:
        return LabelPlan(num_labels=None, least_width=float(least))
    count = left / wanted
    for _ in range(20):  # Student's t of so many labels
        count = left / max(
            (width / (2 * stdtrit(max(count - 1, 2), UPPER))) ** 2 / effect - (whole - left) / num, 1e-12
        )
    floor = max(MIN_GROUPS, MIN_OF_EACH / min(share, 1 - share))
    needed = int(np.ceil(max(count, floor)))
    return LabelPlan(num_labels=needed if needed <= num else None, least_width=float(least))
