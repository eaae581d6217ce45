"""Student's t and the beta distribution without scipy, which would make an environment for scoring an eighth larger.

The regularised incomplete beta function is a continued fraction (Abramowitz & Stegun 26.5.8, by Lentz's method).
"""

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p, sqrt

_TINY, _EXACT = 1e-300, 1e-16
_MAX_STEPS = 100_000  # the square root of a or b suffices


def beta_cdf(x: float, a: float, b: float) -> float:
    """Computes P(X <= x) for the beta distribution with parameters a and b."""
    if not 0 < x < 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - beta_cdf(1 - x, b, a)
    value, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(_MAX_STEPS):
        half, is_odd = divmod(step, 2)
        if not step:
            term = 1.0
        elif is_odd:
            term = -(a + half) * (a + b + half) * x / ((a + step - 1) * (a + step))
        else:
            term = half * (b - half) * x / ((a + step - 1) * (a + step))
        denominator = 1 / (1 + term * denominator or _TINY)
        numerator = 1 + term / numerator or _TINY
        value *= numerator * denominator
        if step and abs(numerator * denominator - 1) < _EXACT:
            break
    return x * (1 - x) * _beta_density(x, a, b) * (value - 1) / a


@lru_cache(4096)
def beta_quantile(probability: float, a: float, b: float) -> float:
    """Computes the x in [0, 1] with `beta_cdf(x, a, b) == probability`, by Newton's method within a shrinking range."""
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(200):
        error = beta_cdf(x, a, b) - probability
        low, high = (low, x) if error > 0 else (x, high)
        better = x - error / (_beta_density(x, a, b) or _TINY)
        if not low < better < high:
            better = (low + high) / 2
        if abs(better - x) <= _EXACT * x:
            break
        x = better
    return x


def student_cdf(t: float, freedom: float) -> float:
    """Computes P(T <= t) for Student's t with `freedom` degrees of freedom."""
    tail = beta_cdf(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def student_quantile(probability: float, freedom: float) -> float:
    """Computes the t with `student_cdf(t, freedom) == probability`, for probabilities above 0.5."""
    share = beta_quantile(2 * probability - 1, 0.5, freedom / 2)
    return sqrt(freedom * share / (1 - share)) if share < 1 else inf


def _beta_density(x: float, a: float, b: float) -> float:
    return exp(lgamma(a + b) - lgamma(a) - lgamma(b) + (a - 1) * log(x) + (b - 1) * log1p(-x))
