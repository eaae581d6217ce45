"""A cascade of two detectors: the dear one is asked only where the cheap one is unsure.

    from faithkit import Cascade, Critic, Judge
    cascade = Cascade.fit(Critic.load("runs/..."), Judge.load("smollm2-135m"), validation_rows, budget=0.2)
    list(cascade.predict_examples(rows))

Where the cheap detector's score lies in a band, the dear one's verdict counts. The band is chosen on rows that are not
tested: by a budget, the share of them that the dear one is asked about, which needs no labels; or by a precision, which
does. On other rows the share that is asked differs as far as their scores do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from faithkit.calibration.thresholds import apply_temperature, choose_threshold, logit
from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction

GIVEN = "as given"
AT_A_TIME = 2048  # examples whose predictions are given out together


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The scores of the cheap detector, both ends included, at which the dear one is asked.

    Args:
        chosen: How it was chosen, as a table says it.
    """

    low: float
    high: float
    chosen: str = GIVEN

    @property
    def is_chosen(self) -> bool:
        """Tells whether it was chosen on rows."""
        return self.chosen != GIVEN

    @property
    def is_empty(self) -> bool:
        """Tells whether the dear detector is asked nothing."""
        return self.low > self.high

    def asks(self, said: Prediction) -> bool:
        """Tells whether the dear detector is asked about a row, by what the cheap one said of it."""
        if self.is_empty:
            return False
        return said.score is None or said.label == UNPARSED or self.low <= said.score <= self.high


NOTHING = Band(low=1.0, high=0.0, chosen="nothing is asked")
EVERYTHING = Band(low=0.0, high=1.0, chosen="everything is asked")


@dataclass(slots=True)
class Cascade:
    """Judges by the cheap detector, and where its score lies in the band by the dear one.

    The dear one's probability is moved into the band, so that the scores of all rows can be compared: what the cheap
    one is sure of stays below or above. Where the dear one's reply cannot be read, the cheap one's verdict stays.

    Attributes:
        num_asked: Rows that the dear detector was asked about.
    """

    cheap: Detector
    dear: Detector
    band: Band
    num_asked: int = field(default=0, init=False)

    @classmethod
    def fit(
        cls,
        cheap: Detector,
        dear: Detector,
        examples: Sequence[Example],
        *,
        budget: float | None = None,
        precision: float | None = None,
    ) -> "Cascade":
        """Chooses the band on examples that are not tested; the dear detector is not asked about them.

        Args:
            budget: The share of rows that the dear one is to be asked about.
            precision: Or that of the cheap one's calls outside the band, of either label; the examples have labels.

        Raises:
            UserError: Both or none is given, there are no examples, or none with a label.
        """
        if (budget is None) == (precision is None):
            raise UserError("a cascade needs a budget or a precision", hint="budget=0.2, or precision=0.9")
        said = list(cheap.predict_examples(examples))
        if budget is not None:
            return cls(cheap, dear, band_of_budget(said, budget))
        assert precision is not None
        return cls(cheap, dear, band_of_precision(examples, said, precision))

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """One prediction for each example, in their order."""
        for begin in range(0, len(examples), AT_A_TIME):
            yield from self._portion(examples[begin : begin + AT_A_TIME], progress)

    def _portion(self, examples: Sequence[Example], progress: bool) -> Iterator[Prediction]:
        first = list(self.cheap.predict_examples(examples, progress=progress))
        unsure = [example for example, said in zip(examples, first, strict=True) if self.band.asks(said)]
        second = iter(self.dear.predict_examples(unsure, progress=progress) if unsure else ())
        self.num_asked += len(unsure)
        for said in first:
            yield self._join(said, next(second)) if self.band.asks(said) else said

    def _join(self, cheap: Prediction, dear: Prediction) -> Prediction:
        if dear.label == UNPARSED:
            return replace(cheap, text=dear.text)
        share = float(dear.label == HALLUCINATED) if dear.score is None else dear.score
        return replace(dear, score=self.band.low + share * (self.band.high - self.band.low))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Says again what a detector has said before."""

    said: Mapping[str, Prediction]

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Finds the predictions by id."""
        yield from (self.said[example.id] for example in examples)


def band_of_budget(said: Sequence[Prediction], budget: float) -> Band:
    """Chooses the widest band around the detector's threshold that holds at most this share of its scores.

    It reaches as far to either side, in log-odds.
    """
    scores = _scores(said)
    chosen = f"for {budget:.0%} of {len(scores):,} rows"
    count = int(budget * len(scores) + 1e-9)
    if count == len(scores):
        return replace(EVERYTHING, chosen=chosen)
    middle = logit([_threshold(said, scores)])
    distances = np.sort(np.abs(logit(scores) - middle))
    while count and distances[count - 1] == distances[count]:  # rows of one score are asked together or not at all
        count -= 1
    if not count:
        return replace(NOTHING, chosen=chosen)
    reach = (distances[count - 1] + distances[count]) / 2
    low, high = apply_temperature(np.concatenate([middle - reach, middle + reach]), 1.0).tolist()
    return Band(low=low, high=high, chosen=chosen)


def band_of_precision(examples: Sequence[Example], said: Sequence[Prediction], precision: float) -> Band:
    """Chooses the narrowest band outside of which the calls of either label are right so often.

    On a side where no threshold has this precision everything is asked.
    """
    pairs = [(example, one) for example, one in zip(examples, said, strict=True) if example.label is not None]
    if not pairs:
        raise UserError("no row with a label to choose a cascade's band on", hint="name labelled rows")
    kept = [one for _, one in pairs]
    scores = _scores(kept)
    aim = f"precision>={precision:g}"
    gold = np.array([example.label == HALLUCINATED for example, _ in pairs])
    called = np.array([one.label == HALLUCINATED for one in kept])
    above, below = _edge(scores[called], gold[called], aim), _edge(1 - scores[~called], ~gold[~called], aim)
    # A band holds its ends, so it stops short of the scores at which the cheap detector decides.
    high = 1.0 if above is None else float(np.nextafter(max(above, scores[called].min()), -inf))
    low = 0.0 if below is None else float(np.nextafter(min(1 - below, scores[~called].max()), inf))
    return Band(low=low, high=high, chosen=f"for {precision:.0%} right outside, of {len(scores):,} rows")


def _edge(sureness: NDArray[np.float64], right: NDArray[np.bool_], aim: str) -> float | None:
    """Finds from which sureness on calls have the precision; None where they never have."""
    if not right.any():
        return None
    if right.all():
        return 0.0
    found = choose_threshold(sureness, right, aim)
    return found.value if found.reached else None


def _scores(said: Sequence[Prediction]) -> NDArray[np.float64]:
    scores = [one.score for one in said]
    if not scores:
        raise UserError("no row to choose a cascade's band on", hint="name rows that are not tested")
    if None in scores:
        problem = "the first detector of a cascade gives no scores, so nothing tells where it is unsure"
        raise UserError(problem, hint="put a critic or a tagger first")
    return np.array(scores, np.float64)


def _threshold(said: Sequence[Prediction], scores: NDArray[np.float64]) -> float:
    """Finds the threshold that gives the labels which the detector gave; of one label alone it lies at its scores."""
    called = np.array([one.label == HALLUCINATED for one in said])
    if called.all():
        return float(scores.min())
    if not called.any():
        return float(np.nextafter(scores.max(), inf))
    return choose_threshold(scores, called, "macro_f1").value
