"""The share of hallucinated responses, from a detector's scores on all of them and people's labels of a few.

Use it where a detector has read thousands of a system's responses and people a few dozen. The detector alone is biased
by its errors; the labels alone leave a wide interval. The prediction-powered estimate is as unbiased as the labels, and
the narrower the better the detector follows them (Angelopoulos et al. 2023; with the weight l tuned to that, PPI++,
Angelopoulos et al. 2024):

    rate = l mean(f) + mean_w(y - l f)        l = cov_w(y, f) / var(f)

f are the detector's scores on all N responses, y the labels of n of them, and mean_w weighs each labelled response by
1 / (the probability that it was chosen for labelling). A detector that knows nothing gets l = 0: the labels alone.

The standard error is the jackknife's over groups (dialogues, sources), so it includes the error of l and of both
samples. The interval is Student's t on the log-odds scale, with a degree of freedom for each labelled group but one.
Below `MIN_GROUPS` labelled groups, or `MIN_OF_EACH` labels of either class, it is that of the labels alone: Clopper and
Pearson's exact one for as many independent labels as theirs are worth (Korn & Graubard 1998). Where the estimate would
lie outside [0, 1], rate and interval are the labels' alone, too. research/experiments/statistics.md lists the coverage.

Related: `faithkit.metrics.judge_error` corrects a rate by the detector's recall and false alarms on labelled rows of
any data (Rogan & Gladen 1978), and assumes that the detector errs as often here as there. This one assumes nothing of
the detector, but its labels must be of these very responses, chosen by chance.

>>> import numpy as np
>>> truth = np.arange(2000) % 4 == 0  # a quarter is hallucinated
>>> called = np.where(np.arange(2000) % 9 == 0, ~truth, truth)  # a ninth of the verdicts is wrong
>>> labels = np.where(np.arange(2000) % 17 == 0, truth, np.nan)  # 118 labels
>>> rows = Verdicts.of(called, labels, groups=[str(row) for row in range(2000)])
>>> found = estimate_rate(rows)
>>> round(float(called.mean()), 2), round(found.metric.value, 2), found.is_exact
(0.31, 0.25, False)

`sample_rows` chooses the responses that people should label next: at random, with a known probability for each.
`random` gives every response the same probability. `uncertainty` gives more to those of which a detector is less
certain: half of the labels are spread evenly, half as sqrt(p (1 - p)), the spread of a label that is hallucinated with
probability p (active statistical inference, Zrnic & Candès 2024). No probability is 0, so an estimate that weighs by
their inverse is unbiased for any scores: bad ones make it wider, never wrong.

Labels come in waves. Each wave draws from all responses, and labelled ones need no second label. After several waves a
response is labelled with the probability 1 - prod(1 - its probability in each), and all waves count together. This
probability is stored with each label, since another detector's scores do not give it.

>>> scores = np.linspace(0, 1, 1000)
>>> chosen, wave = sample_rows(scores, np.zeros(1000, bool), 50, "uncertainty", seed=0)
>>> len(chosen)
50
>>> chance = inclusion_probabilities([wave], scores)
>>> round(float(chance.sum())), bool(chance[500] > 1.5 * chance[0])
(50, True)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from faithkit.errors import UserError
from faithkit.settings.config_files import RANDOM, SAMPLING_RULES
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import Values, exact_interval, proportion_interval, t_quantile

MIN_GROUPS = 20
MIN_OF_EACH = 5


@dataclass(frozen=True, slots=True)
class Wave:
    """One draw: a response is chosen with the probability min(1, scale x its relative probability by the rule)."""

    rule: str
    scale: float


def read_waves(text: str) -> list[Wave]:
    """Reads waves from the form of `write_waves`.

    Raises:
        ValueError: The text is not a list of waves.
    """
    waves = []
    for part in text.split(";"):
        rule, _, scale = part.strip().partition(" ")
        wave = Wave(rule, float(scale))
        if rule not in SAMPLING_RULES or not wave.scale > 0:
            raise ValueError(f"no wave of labels: {part!r}")
        waves.append(wave)
    return waves


def write_waves(waves: Sequence[Wave]) -> str:
    """Writes waves as one cell of a table."""
    return "; ".join(f"{wave.rule} {wave.scale!r}" for wave in waves)


def relative_probabilities(scores: Values, rule: str, mean_spread: float | None = None) -> Values:
    """Computes how much more often than the mean each response is to be chosen [N].

    Args:
        mean_spread: The mean of sqrt(p (1 - p)) over all responses, if `scores` are of some of them.
    """
    if rule == RANDOM:
        return np.ones(len(scores))
    spread = np.sqrt(scores * (1 - scores))
    mean = spread.mean() if mean_spread is None else mean_spread
    return 0.5 + 0.5 * (spread / mean if mean > 0 else np.ones(len(scores)))  # half of the labels are spread evenly


def inclusion_probabilities(waves: Sequence[Wave], scores: Values, mean_spread: float | None = None) -> Values:
    """Computes the probability that any of the waves chose each response [N]."""
    missed = np.ones(len(scores))
    for wave in waves:
        missed *= 1 - np.minimum(1.0, wave.scale * relative_probabilities(scores, wave.rule, mean_spread))
    return 1 - missed


def check_scores(stored: Values, computed: Values) -> None:
    """Refuses labels that were drawn by other scores: a next wave needs the probabilities of all other responses too.

    Args:
        stored: The probability stored with each label [N].
        computed: The probability that the given scores yield [N].

    Raises:
        UserError: They differ by more than rounding.
    """
    # A spreadsheet may round a probability; other scores change some much more.
    if (np.abs(computed - stored) > 1e-3 * stored).any():
        worst = int(np.argmax(np.abs(np.log(computed / stored))))
        difference = f"a probability of {stored[worst]:.3g} is {computed[worst]:.3g} by these"
        hint = "give the verdicts that they were drawn by, or draw no more of them: pipeline.label_next=null"
        raise UserError(f"these labels were drawn by other scores: {difference}", hint=hint)


def sample_rows(
    scores: Values, labelled: NDArray[np.bool_], count: int, rule: str, *, seed: int
) -> tuple[NDArray[np.intp], Wave]:
    """Chooses `count` unlabelled responses, in random order, and returns the wave that did.

    Systematic sampling in random order (Madow 1949): each row has exactly its probability, and the number is exact. Any
    first part of the chosen rows is a sample by itself, for annotators who stop early.

    Raises:
        UserError: Fewer are left.
    """
    left = np.flatnonzero(~labelled)
    if count > len(left):
        problem = f"{count:,} responses are to be labelled, and {len(left):,} are left without a label"
        raise UserError(problem, hint=f"ask for fewer: {len(left)} at most")
    size = relative_probabilities(scores, rule)[left]
    # The scale at which the probabilities, none above 1, sum to `count`.
    scale, certain = float(1 / size.min()), np.zeros(len(size), bool)
    while not certain.all():
        fitting = float((count - certain.sum()) / size[~certain].sum())
        more = ~certain & (fitting * size >= 1)
        if not more.any():
            scale = fitting
            break
        certain |= more
    wave = Wave(rule, scale)
    random = np.random.default_rng(seed)
    order = random.permutation(len(left))
    ends = np.cumsum(np.minimum(1.0, wave.scale * size)[order])
    ends *= count / ends[-1]  # rounding must not lose the last one
    taken = np.diff(np.floor(ends + random.random()), prepend=0.0) > 0
    return random.permutation(np.sort(left[order[taken]])), wave


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """A detector's verdicts on responses, and people's labels of some of them.

    Args:
        scores: P(hallucinated), or 0 and 1 [N].
        labels: 1 for hallucinated, 0 for faithful, NaN for unlabelled responses [N].
        groups: The dialogue or source of each response.
        probability: The probability that each response was chosen for labelling [N]; any constant if all are equal.
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
            UserError: The probability of a labelled response is not in (0, 1].
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelSums:
    """All that an estimate needs of the responses.

    Args:
        total: Sums [9]: 1, f, f^2 of all; of the labelled the weights w, wy, wf, w^2, wf^2, wyf.
        num_labels: The labelled responses.
        num_hallucinated: Those of them that are labelled hallucinated.
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
        """Sums up responses in memory."""
        known = rows.labelled
        y = np.where(known, rows.labels, 0.0)
        weight = np.where(known, 1 / np.where(known, rows.probability, 1.0), 0.0)
        f = rows.scores
        columns = [np.ones(len(f)), f, f * f, weight, weight * y, weight * f]
        columns += [weight**2, weight * f * f, weight * y * f]
        table = rows.groups.sums(np.stack(columns, axis=1))
        total, count = table.sum(axis=0), len(table)

        def jackknife_error(power: float | None) -> float:
            moved = _solve(total - table, power) - _solve(total, power)
            return float(np.sqrt((count - 1) / count * np.maximum((moved**2).sum() - moved.sum() ** 2 / count, 0.0)))

        return cls(
            total=total,
            num_labels=int(known.sum()),
            num_hallucinated=int(rows.labels[known].sum()),
            num_groups=len(np.unique(rows.groups.index[known])),
            error=jackknife_error,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated rate.

    Args:
        metric: The rate with its 95% interval; n counts all responses.
        power: l, the weight of the detector.
        num_labels: The labelled responses.
        num_groups: The groups that they are from.
        is_exact: There are too few labels, or no spread over groups: the rate is that of the labels, with an exact
            interval.
        is_beyond: With the detector the rate would lie outside [0, 1]; it is that of the labels.
    """

    metric: Metric
    power: float
    num_labels: int
    num_groups: int
    is_exact: bool
    is_beyond: bool = False


def estimate_rate(rows: Verdicts, *, power: float | None = None) -> Estimate:
    """Estimates the hallucination rate of the system behind the responses.

    Args:
        power: l; None tunes it, 0 uses the labels alone, 1 is the plain estimate of 2023.

    Raises:
        UserError: No response is labelled.
    """
    sums = LabelSums.of(rows)
    if not sums.num_labels:
        raise UserError("no response is labelled", hint="label some first: labels=null chooses which")
    fewest = min(sums.num_hallucinated, sums.num_labels - sums.num_hallucinated)
    few = sums.num_groups < MIN_GROUPS or fewest < MIN_OF_EACH
    if few:
        power = 0.0
    value = float(_solve(sums.total, power))
    beyond = power != 0 and not 0 < value < 1
    if beyond:
        power, value = 0.0, float(_solve(sums.total, 0.0))
    error = sums.error(power)
    exact = few or not (np.isfinite(error) and error > 0)
    if exact:
        power, value = 0.0, float(_solve(sums.total, 0.0))
        # How many independent labels those of groups, with their weights, are worth.
        _, _, _, weight, wy, _, ww, _, _ = sums.total
        share, groups, labels, error = float(wy / weight), sums.num_groups, sums.num_labels, sums.error(0.0)
        if 0 < share < 1 and np.isfinite(error) and error > 0 and groups > 1:
            worth = min(share * (1 - share) / error**2, labels) * (t_quantile(labels) / t_quantile(groups)) ** 2
        else:
            worth = min(groups, float(weight**2 / ww))
        low, high = exact_interval(share, worth)
    else:
        low, high = proportion_interval(value, error, sums.num_groups)
    return Estimate(
        metric=Metric(value=value, low=min(low, value), high=max(high, value), n=round(sums.total[0])),
        power=float(tune_power(sums.total)) if power is None else power,
        num_labels=sums.num_labels,
        num_groups=sums.num_groups,
        is_exact=exact,
        is_beyond=beyond,
    )


def tune_power(sums: Values) -> Values:
    """Tunes the weight of the detector to sums [..., 9]; 0 where its scores are constant or point the other way."""
    count, f, ff, weight, wy, wf, _, _, wyf = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = wyf / weight - (wy / weight) * (wf / weight)
        variance = ff / count - (f / count) ** 2
        return np.where(variance > 1e-12, np.maximum(covariance / variance, 0.0), 0.0)


def _solve(sums: Values, power: float | None) -> Values:
    """Computes the estimate from sums [..., 9]."""
    count, f, _, weight, wy, wf, _, _, _ = np.moveaxis(sums, -1, 0)
    chosen = tune_power(sums) if power is None else power
    with np.errstate(invalid="ignore", divide="ignore"):
        return wy / weight + chosen * (f / count - wf / weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    """The number of labels that an interval of a given width takes.

    Args:
        num_labels: In total, with those that exist; None if labels of all responses are too few.
        least_width: The width with every response labelled.
    """

    num_labels: int | None
    least_width: float


def plan_labels(sums: LabelSums, width: float) -> LabelPlan:
    """Computes how many labels, chosen at random, narrow the interval to a width; a rough number if labels are few.

    The variance with n labels of N responses is d (v / n + (u - v) / N): u is the variance of a label, v the part of it
    that the detector leaves unexplained, and d the design effect of groups and unequal probabilities, as it is now.
    """
    total, present, num = sums.total, sums.num_labels, round(sums.total[0])
    _, _, _, weight, wy, wf, _, wff, wyf = total
    share = (present * wy / weight + 0.5) / (present + 1)  # never 0 or 1
    variance = share * (1 - share)  # u
    power = tune_power(total) if present > sums.num_hallucinated else 0.0
    mean_y, mean_f = wy / weight, wf / weight
    variance_f, covariance = wff / weight - mean_f**2, wyf / weight - mean_y * mean_f
    residual = mean_y - mean_y**2 - 2 * power * covariance + power**2 * variance_f
    # Labels that the detector predicts without an error do not mean that it makes none.
    unexplained = max(float(np.clip(residual, 0.0, variance)), variance / (present + 2))  # v
    explained = max(variance - unexplained, 0.0) / num
    error = sums.error(None)
    has_error = np.isfinite(error) and sums.num_groups >= MIN_GROUPS
    effect = max(1.0, error**2 / (unexplained / present + explained)) if has_error else 1.0
    least_width = float(2 * t_quantile(num) * np.sqrt(effect * variance / num))
    wanted = (width / (2 * 1.96)) ** 2 / effect - explained
    if wanted <= 0 or unexplained / wanted > num:
        return LabelPlan(num_labels=None, least_width=least_width)
    count = unexplained / wanted
    for _ in range(20):  # Student's t depends on the number itself
        half = width / (2 * t_quantile(max(count, 3)))
        count = unexplained / max(half**2 / effect - (variance - unexplained) / num, 1e-12)
    needed = int(np.ceil(max(count, MIN_GROUPS, MIN_OF_EACH / min(share, 1 - share))))
    return LabelPlan(num_labels=needed if needed <= num else None, least_width=least_width)
