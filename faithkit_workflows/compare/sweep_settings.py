"""Tells which settings of a sweep mattered: fANOVA's share of each, means by value, and a test for few runs.

The importance is optuna's fANOVA (Hutter, Hoos & Leyton-Brown 2014): a random forest learns the figure from the
settings, and its variance is shared out among them. With few runs a forest finds what chance put there, so it is given
from some runs on alone. The test asks how often runs dealt to the values by chance would differ as much (Fisher's
permutation test of the variance between values): of four runs no answer can be surer than one in three.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from faithkit.statistics.metric import Metric, average_runs
from faithkit_workflows.compare.sweep import SEED, Ranking

MOST_VALUES = 5  # of numbers; more are told in thirds
MIN_RUNS = 8  # for an importance, and
MIN_RUNS_EACH = 4  # for each setting
NUM_RESAMPLES = 4999
WIDE = 30.0  # times the smallest number: the forest and the plot see its logarithm


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingEffect:
    """How much a setting mattered.

    Args:
        importance: The share of the figure's variance; None where runs are too few, or optuna is missing.
        p_value: Of the permutation test.
        corrected: By Holm, for the settings of this sweep.
        values: By value, or by third, the mean over runs with its interval; n is the number of runs.
    """

    key: str
    importance: float | None
    p_value: float
    values: Mapping[str, Metric]
    corrected: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The settings of a ranking, the most important first, and what must be said of them."""

    settings: Sequence[SettingEffect]
    notes: Sequence[str]


def effects_of(ranking: Ranking, *, is_adaptive: bool = False) -> Effects:
    """Measures how much each setting that varies mattered.

    Args:
        is_adaptive: The settings were proposed by a search, which prefers what was good before.
    """
    scores = np.array([one.chosen.metric.value for one in ranking.runs])
    columns = _columns(ranking)
    notes = []
    if len(scores) < 3 or not columns:
        return Effects(settings=[], notes=["fewer than three runs: which settings mattered cannot be told"])
    enough = max(MIN_RUNS, MIN_RUNS_EACH * len(columns))
    shares: Mapping[str, float] = {}
    if np.ptp(scores) == 0:
        notes.append("all runs have the same figure: no setting mattered")
    elif len(scores) < enough:
        notes.append(
            f"{len(scores)} runs are too few for the importance of {len(columns)} settings: {enough} are enough"
        )
    elif find_spec("optuna") is None:
        notes.append("importance needs the package optuna: pip install '.[sweep]'")
    else:
        shares = importances(columns, scores)
    found = [
        SettingEffect(
            key=key,
            importance=shares.get(key),
            p_value=permutation_p(grouped(values), scores),
            values={name: average_runs(list(own), len(own)) for name, own in _by_value(values, scores).items()},
        )
        for key, values in columns.items()
    ]
    if is_adaptive:
        notes.append("a search tries again what was good: p takes runs for drawn at random, and is a hint only")
    if SEED in columns:
        notes.append("seed is chance: what matters no more than it does not matter")
    return Effects(settings=_corrected(found), notes=notes)


def _columns(ranking: Ranking) -> dict[str, list[str]]:
    """Gives the values of each setting that varies among these runs."""
    keys = dict.fromkeys(key for one in ranking.runs for key in one.settings)
    columns = {key: [one.settings.get(key, "") for one in ranking.runs] for key in keys}
    return {key: values for key, values in columns.items() if len(set(values)) > 1}


def _corrected(effects: Sequence[SettingEffect]) -> list[SettingEffect]:
    from statsmodels.stats.multitest import multipletests

    ordered = sorted(effects, key=lambda one: (-(one.importance or 0.0), one.p_value))
    corrected = multipletests([one.p_value for one in ordered], method="holm")[1]
    return [replace(one, corrected=float(p)) for one, p in zip(ordered, corrected, strict=True)]


def numbers_of(values: Sequence[str]) -> NDArray[np.float64] | None:
    """Reads values as numbers; None where they are names."""
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def is_wide(numbers: NDArray[np.float64]) -> bool:
    """Tells whether numbers are looked at by their logarithm."""
    return bool(numbers.min() > 0 and numbers.max() / numbers.min() >= WIDE)


def grouped(values: Sequence[str]) -> list[str]:
    """Gives the group of each value: the value itself, or of many numbers the third that it lies in."""
    numbers = numbers_of(values)
    if numbers is None or len(set(values)) <= MOST_VALUES:
        return list(values)
    cuts = np.quantile(numbers, [1 / 3, 2 / 3])
    places = np.searchsorted(cuts, numbers)
    names = [f"{numbers[places == n].min():.3g} to {numbers[places == n].max():.3g}" for n in range(3) if n in places]
    present = [n for n in range(3) if n in places]
    return [names[present.index(place)] for place in places]


def _by_value(values: Sequence[str], scores: NDArray[np.float64]) -> dict[str, list[float]]:
    groups = grouped(values)
    numbers = numbers_of(values)
    order = range(len(values)) if numbers is None else np.argsort(numbers, kind="stable")
    found: dict[str, list[float]] = {}
    for place in order:
        found.setdefault(groups[place], []).append(float(scores[place]))
    return found if numbers is not None else dict(sorted(found.items()))


def permutation_p(groups: Sequence[str], scores: NDArray[np.float64]) -> float:
    """Tests whether the figure differs between groups: how often chance would share it out as unevenly."""
    from scipy.stats import permutation_test

    names = list(dict.fromkeys(groups))
    member = np.array([[group == name for name in names] for group in groups], dtype=float)
    member /= np.sqrt(member.sum(axis=0))

    def between(permuted: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        # Rounded: the same shares, added in another order, must not count as less.
        return np.asarray(((permuted @ member) ** 2).sum(axis=-1).round(12))

    found = permutation_test(
        (scores - scores.mean(),),
        between,
        permutation_type="pairings",
        vectorized=True,
        n_resamples=NUM_RESAMPLES,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def importances(columns: Mapping[str, Sequence[str]], scores: NDArray[np.float64]) -> dict[str, float]:
    """Computes fANOVA's share of each setting; the shares add up to 1."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space: dict[str, BaseDistribution] = {}
    for key, values in columns.items():
        numbers = numbers_of(values)
        if numbers is None or len(set(values)) == 2:
            space[key] = CategoricalDistribution(sorted(set(values)))
        else:
            space[key] = FloatDistribution(float(numbers.min()), float(numbers.max()), log=is_wide(numbers))
    study = optuna.create_study(direction="maximize")
    for place, score in enumerate(scores):
        params = {
            key: values[place] if isinstance(space[key], CategoricalDistribution) else float(values[place])
            for key, values in columns.items()
        }
        study.add_trial(optuna.create_trial(params=params, distributions=space, value=float(score)))
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {key: share for key, share in found.items() if math.isfinite(share)}
