"""How many labels bring the interval of an estimated rate (`prediction_powered.py`) down to a width."""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from faithkit.statistics.prediction_powered import MIN_GROUPS, MIN_OF_EACH, UPPER, Sums, Verdicts, tuned_power


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
    """Works out how many labels bring the interval down to a width, as `plan_sums` does."""
    return plan_sums(Sums.of(rows), width)


def plan_sums(sums: Sums, width: float) -> Plan:
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
        return Plan(num_labels=None, least_width=float(least))
    count = left / wanted
    for _ in range(20):  # Student's t of so many labels
        count = left / max(
            (width / (2 * stdtrit(max(count - 1, 2), UPPER))) ** 2 / effect - (whole - left) / num, 1e-12
        )
    floor = max(MIN_GROUPS, MIN_OF_EACH / min(share, 1 - share))
    needed = int(np.ceil(max(count, floor)))
    return Plan(num_labels=needed if needed <= num else None, least_width=float(least))
