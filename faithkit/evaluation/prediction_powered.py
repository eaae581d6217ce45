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
1998). How often each holds the truth stands in EXPERIMENTS.md.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit

from faithkit.errors import UserError
from faithkit.evaluation.intervals import Groups, Metric, Values
from faithkit.evaluation.jackknife import Spread, share_interval

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated rate.

    Args:
        metric: The rate with its 95% interval; n counts all responses.
        power: l, the weight of the detector.
        num_labels: The labelled responses.
        num_groups: The groups that they are from.
        is_exact: The labels are too few, and the rate is theirs alone.
    """

    metric: Metric
    power: float
    num_labels: int
    num_groups: int
    is_exact: bool


def estimate_rate(rows: Verdicts, *, power: float | None = None) -> Estimate:
    """Estimates the rate of the system behind the responses.

    Args:
        power: l; None tunes it, 0 is the labels alone, 1 the plain estimate of 2023.

    Raises:
        UserError: No response is labelled.
    """
    table = _sums(rows)
    labels = rows.labels[rows.labelled]
    if not len(labels):
        raise UserError("no response is labelled", hint="label some first: labels=null chooses which")
    few = rows.num_groups < MIN_GROUPS or min(labels.sum(), (1 - labels).sum()) < MIN_OF_EACH
    tuned = 0.0 if few else float(_power(table.sum(axis=0))) if power is None else power
    value = float(_solve(table.sum(axis=0), 0.0 if few else power))
    error = _standard_error(table, 0.0 if few else power)
    exact = few or not (np.isfinite(error) and error > 0 and 0 < value < 1)
    low, high = (
        _exact_interval(rows, table)
        if exact
        else share_interval(value, Spread(error, rows.num_groups, rows.num_groups), rows.num_groups)
    )
    value = min(max(value, 0.0), 1.0)
    metric = Metric(value=value, low=min(low, value), high=max(high, value), n=len(rows.scores))
    return Estimate(metric=metric, power=tuned, num_labels=len(labels), num_groups=rows.num_groups, is_exact=exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The number of labels that an interval of a wanted width takes.

    Args:
        num_labels: In all, those that there are among them; None where even a label of every response is too few.
        least_width: The width with every response labelled.
    """

    num_labels: int | None
    least_width: float


def plan_labels(rows: Verdicts, width: float) -> Plan:
    """Works out how many labels, chosen at random, bring the interval down to a width.

    The variance with n labels of N responses is d (v / n + (u - v) / N), where u is the variance of a label, v what of
    it the detector leaves unexplained, and d the design effect: what groups and unequal chances add, as they do now. A
    rough number where the labels are few.
    """
    table = _sums(rows)
    total = table.sum(axis=0)
    present, num = int(rows.labelled.sum()), len(rows.scores)
    _, _, _, weight, wy, wf, _, wff, wyf = total
    share = (present * wy / weight + 0.5) / (present + 1)  # never 0 or 1
    whole = share * (1 - share)
    power = _power(total) if min(present - rows.labels[rows.labelled].sum(), present) > 0 else 0.0
    mean_y, mean_f = wy / weight, wf / weight
    variance_f, covariance = wff / weight - mean_f**2, wyf / weight - mean_y * mean_f
    left = float(np.clip(mean_y - mean_y**2 - 2 * power * covariance + power**2 * variance_f, 0.0, whole))
    left = max(left, whole / (present + 2))  # no error among n labels does not mean that there is none
    now = left / present + max(whole - left, 0.0) / num
    error = _standard_error(table, None)
    effect = max(1.0, error**2 / now) if np.isfinite(error) and rows.num_groups >= MIN_GROUPS else 1.0
    reach = 2 * float(stdtrit(max(num - 1, 1), UPPER))
    least = reach * np.sqrt(effect * whole / num)
    wanted = (width / (2 * 1.96)) ** 2 / effect - max(whole - left, 0.0) / num
    if wanted <= 0 or left / wanted > num:
        return Plan(num_labels=None, least_width=float(least))
    count = left / wanted
    for _ in range(20):  # Student's t of so many labels
        count = left / max(
            (width / (2 * stdtrit(max(count - 1, 2), UPPER))) ** 2 / effect - (whole - left) / num, 1e-12
        )
    floor = max(MIN_GROUPS, MIN_OF_EACH / min(share, 1 - share))
    needed = int(np.ceil(max(count, floor)))
    return Plan(num_labels=needed if needed <= num else None, least_width=float(least))


def _sums(rows: Verdicts) -> Values:
    """Sums by group [G, 9]: 1, f, f^2 of all; of the labelled the weights w, wy, wf, w^2, wf^2, wyf."""
    known = rows.labelled
    y = np.where(known, rows.labels, 0.0)
    weight = np.where(known, 1 / np.where(known, rows.probability, 1.0), 0.0)
    f = rows.scores
    columns = (np.ones(len(f)), f, f * f, weight, weight * y, weight * f, weight**2, weight * f * f, weight * y * f)
    return rows.groups.sums(np.stack(columns, axis=1))


def _power(sums: Values) -> Values:
    """The tuned weight of the detector from sums [..., 9]; 0 where it says the same of all, or the opposite."""
    count, f, ff, weight, wy, wf, _, _, wyf = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = wyf / weight - (wy / weight) * (wf / weight)
        variance = ff / count - (f / count) ** 2
        return np.where(variance > 1e-12, np.maximum(covariance / variance, 0.0), 0.0)


def _solve(sums: Values, power: float | None) -> Values:
    """The estimate from sums [..., 9]."""
    count, f, _, weight, wy, wf, _, _, _ = np.moveaxis(sums, -1, 0)
    chosen = _power(sums) if power is None else power
    with np.errstate(invalid="ignore", divide="ignore"):
        return wy / weight + chosen * (f / count - wf / weight)


def _standard_error(table: Values, power: float | None) -> float:
    """The jackknife's standard error: each group is left out once, in one pass over the sums."""
    without_each = _solve(table.sum(axis=0) - table, power)
    squares = (without_each - without_each.mean()) ** 2
    return float(np.sqrt((len(table) - 1) / len(table) * squares.sum()))


def _exact_interval(rows: Verdicts, table: Values) -> tuple[float, float]:
    """Clopper and Pearson's interval of the labels alone, for as many labels as theirs are worth."""
    _, _, _, weight, wy, _, ww, _, _ = table.sum(axis=0)
    share, groups, labels = float(wy / weight), rows.num_groups, int(rows.labelled.sum())
    error = _standard_error(table, 0.0)
    if 0 < share < 1 and np.isfinite(error) and error > 0 and groups > 1:
        worth = min(share * (1 - share) / error**2, labels)
        worth *= float((stdtrit(max(labels - 1, 1), UPPER) / stdtrit(groups - 1, UPPER)) ** 2)
    else:
        worth = min(groups, float(weight**2 / ww))
    count = share * worth
    low = 0.0 if share <= 0 else float(betaincinv(count, worth - count + 1, 1 - UPPER))
    high = 1.0 if share >= 1 else float(betaincinv(count + 1, worth - count, UPPER))
    return low, high
