"""Chooses the responses that people should label next: at random, with a known probability for each.

`random` gives every response the same probability. `uncertainty` gives more to those of which a detector is less
certain: half of the labels are spread evenly, half as sqrt(p (1 - p)), the spread of a label that is hallucinated with
probability p (active statistical inference, Zrnic & Candès 2024). No probability is 0, so an estimate that weighs by
their inverse is unbiased for any scores: bad ones make it wider, never wrong.

Labels come in waves. Each wave draws from all responses, and labelled ones need no second label. After several waves a
response is labelled with the probability 1 - prod(1 - its probability in each), and all waves count together. This
probability is stored with each label, since another detector's scores do not give it.

>>> import numpy as np
>>> scores = np.linspace(0, 1, 1000)
>>> chosen, wave = sample_rows(scores, np.zeros(1000, bool), 50, "uncertainty", seed=0)
>>> len(chosen)
50
>>> chance = inclusion_probabilities([wave], scores)
>>> round(float(chance.sum())), bool(chance[500] > 1.5 * chance[0])
(50, True)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faithkit.choices import RANDOM, SAMPLING_RULES
from faithkit.errors import UserError
from faithkit.statistics.spread import Values


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
    wave = Wave(rule, _find_scale(size, count))
    random = np.random.default_rng(seed)
    order = random.permutation(len(left))
    ends = np.cumsum(np.minimum(1.0, wave.scale * size)[order])
    ends *= count / ends[-1]  # rounding must not lose the last one
    taken = np.diff(np.floor(ends + random.random()), prepend=0.0) > 0
    return random.permutation(np.sort(left[order[taken]])), wave


def _find_scale(size: Values, count: int) -> float:
    """Finds the scale at which the probabilities, none above 1, sum to `count`."""
    certain = np.zeros(len(size), bool)
    while not certain.all():
        scale = float((count - certain.sum()) / size[~certain].sum())
        more = ~certain & (scale * size >= 1)
        if not more.any():
            return scale
        certain |= more
    return float(1 / size.min())
