"""Chooses the responses that people should label next: by chance, with a known probability for each.

`random` gives every response the same chance. `uncertainty` gives the more to those of which a detector is less sure:
half of the labels go evenly, half as sqrt(p (1 - p)), the spread of a label that is hallucinated with probability p
(active statistical inference, Zrnic & Candès 2024). No probability is 0, and an estimate that weighs by their inverse
is unbiased whatever the detector's scores are worth: bad ones make it wider, never wrong.

Labels come in waves. A wave draws from all responses, and one that was labelled before needs no second label. So a
response is labelled after several waves with the probability 1 - prod(1 - its probability in each), and all waves
count together. This probability is kept beside each label, since another detector's scores do not give it.

>>> import numpy as np
>>> scores = np.linspace(0, 1, 1000)
>>> chosen, wave = draw(scores, np.zeros(1000, bool), 50, UNCERTAINTY, seed=0)
>>> len(chosen)
50
>>> chance = probabilities([wave], scores)
>>> round(float(chance.sum())), bool(chance[500] > 1.5 * chance[0])
(50, True)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError
from faithkit.statistics.spread import Values

SAMPLING_RULES = RANDOM, UNCERTAINTY = ("random", "uncertainty")
EVENLY = 0.5  # of the labels, whatever the scores
ROUNDING = 1e-3  # of a probability, as a spreadsheet may round it; other scores move some much further


@dataclass(frozen=True, slots=True)
class Wave:
    """One draw: a response is chosen with the probability min(1, scale x its size by the rule)."""

    rule: str
    scale: float

    def __str__(self) -> str:
        return f"{self.rule} {self.scale!r}"


def read_waves(text: str) -> list[Wave]:
    """Reads waves as `write_waves` writes them.

    Raises:
        ValueError: It is no list of waves.
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
    return "; ".join(map(str, waves))


def relative_probabilities(scores: Values, rule: str, mean_spread: float | None = None) -> Values:
    """Weighs how often a response is to be chosen, beside others [N]; 1 in the mean.

    Args:
        mean_spread: Of all responses, where these are some of them: the mean of sqrt(p (1 - p)).
    """
    if rule == RANDOM:
        return np.ones(len(scores))
    spread = np.sqrt(scores * (1 - scores))
    mean = spread.mean() if mean_spread is None else mean_spread
    return EVENLY + (1 - EVENLY) * (spread / mean if mean > 0 else np.ones(len(scores)))


def inclusion_probabilities(waves: Sequence[Wave], scores: Values, mean_spread: float | None = None) -> Values:
    """The probability that a response was chosen by any of the waves [N]; arguments are those of `sizes`."""
    missed = np.ones(len(scores))
    for wave in waves:
        missed *= 1 - np.minimum(1.0, wave.scale * relative_probabilities(scores, wave.rule, mean_spread))
    return 1 - missed


def check_scores(told: Values, now: Values) -> None:
    """Refuses labels that were drawn by other scores: a next wave needs the probabilities of all other responses too.

    Args:
        told: The probability that each label tells [N].
        now: The probability that the scores at hand give it [N].

    Raises:
        UserError: They differ by more than rounding.
    """
    apart = np.abs(now - told) > ROUNDING * told
    if apart.any():
        worst = int(np.argmax(np.abs(np.log(now / told))))
        problem = f"these labels were drawn by other scores: a chance of {told[worst]:.3g} is {now[worst]:.3g} by these"
        hint = "give the verdicts that they were drawn by, or draw no more of them: pipeline.label_next=null"
        raise UserError(problem, hint=hint)


def sample_rows(
    scores: Values, labelled: NDArray[np.bool_], count: int, rule: str, *, seed: int
) -> tuple[NDArray[np.intp], Wave]:
    """Chooses `count` responses that are not labelled yet, in random order, and tells the wave.

    Systematic sampling in random order (Madow 1949): each row has exactly its probability, and the number is as asked.
    The first of the chosen are a sample by themselves, for who labels from the top and stops.

    Raises:
        UserError: Fewer are left.
    """
    left = np.flatnonzero(~labelled)
    if count > len(left):
        problem = f"{count:,} responses are to be labelled, and {len(left):,} are left without a label"
        raise UserError(problem, hint=f"ask for fewer: {len(left)} at most")
    size = relative_probabilities(scores, rule)
    wave = Wave(rule, _scale(size[left], count))
    chance = np.minimum(1.0, wave.scale * size[left])
    random = np.random.default_rng(seed)
    order = random.permutation(len(left))
    ends = np.cumsum(chance[order])
    ends *= count / ends[-1]  # rounding must not lose the last one
    steps = np.floor(ends + random.random())
    taken = np.diff(steps, prepend=0.0) > 0
    return random.permutation(np.sort(left[order[taken]])), wave


def _scale(size: Values, count: int) -> float:
    """The scale at which the probabilities add up to `count`: those of 1 are set apart until there are no more."""
    certain = np.zeros(len(size), bool)
    while not certain.all():
        scale = float((count - certain.sum()) / size[~certain].sum())
        more = ~certain & (scale * size >= 1)
        if not more.any():
            return scale
        certain |= more
    return float(1 / size.min())
