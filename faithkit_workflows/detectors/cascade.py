"""A cascade of two detectors: the expensive one judges only the responses that the cheap one is unsure about.

    from faithkit import Cascade, Critic, Judge
    cascade = Cascade.fit(Critic.load("runs/..."), Judge.load("smollm2-135m"), validation_rows, budget=0.2)
    list(cascade.predict_examples(rows))

Where the cheap detector's score lies in a band, the expensive detector's verdict counts. The band is chosen on rows
that are not tested: by a budget, the fraction of rows that the expensive detector judges, which needs no labels; or
by a precision, which needs labels. On other rows the fraction differs as far as the score distributions differ.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from faithkit.calibration import apply_temperature, choose_threshold, logit
from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.languages import ANY, languages_of
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction

GIVEN = "as given"
CHUNK_SIZE = 2048  # examples that are judged together


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The scores of the cheap detector, both ends included, at which the expensive detector judges.

    Args:
        chosen: How it was chosen, as shown in tables.
    """

    low: float
    high: float
    chosen: str = GIVEN

    @property
    def is_empty(self) -> bool:
        """Whether the expensive detector judges nothing."""
        return self.low > self.high

    def contains(self, prediction: Prediction) -> bool:
        """Returns whether the expensive detector judges a row that has this prediction by the cheap detector."""
        if self.is_empty:
            return False
        return prediction.score is None or prediction.label == UNPARSED or self.low <= prediction.score <= self.high


NOTHING = Band(low=1.0, high=0.0, chosen="it judges nothing")


@dataclass(slots=True)
class Cascade:
    """Judges with the cheap detector, and with the expensive one where the cheap score lies in the band.

    The expensive detector's probability is mapped into the band, so that the scores of all rows are comparable: rows
    that the cheap detector is sure about stay below or above. If the expensive detector's reply cannot be parsed, the
    cheap detector's verdict stays.

    Attributes:
        num_asked: Rows that the expensive detector judged.
    """

    cheap: Detector
    expensive: Detector
    band: Band
    num_asked: int = field(default=0, init=False)

    @classmethod
    def fit(
        cls,
        cheap: Detector,
        expensive: Detector,
        examples: Sequence[Example],
        *,
        budget: float | None = None,
        precision: float | None = None,
    ) -> "Cascade":
        """Chooses the band on examples that are not tested; the expensive detector does not judge them.

        Args:
            budget: The fraction of rows that the expensive detector judges.
            precision: Or the cheap detector's precision outside the band, for either label; the examples have labels.

        Raises:
            UserError: Both or neither is given, or there are no examples, or none has a label.
        """
        if (budget is None) == (precision is None):
            raise UserError("a cascade needs a budget or a precision", hint="budget=0.2, or precision=0.9")
        predictions = list(cheap.predict_examples(examples))
        if budget is not None:
            return cls(cheap, expensive, choose_band_by_budget(predictions, budget))
        assert precision is not None
        return cls(cheap, expensive, choose_band_by_precision(examples, predictions, precision))

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that both detectors read."""
        cheap, expensive = languages_of(self.cheap), languages_of(self.expensive)
        if ANY in cheap or ANY in expensive:
            return expensive if ANY in cheap else cheap
        return tuple(code for code in cheap if code in expensive)

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example, in their order."""
        for begin in range(0, len(examples), CHUNK_SIZE):
            chunk = examples[begin : begin + CHUNK_SIZE]
            first = list(self.cheap.predict_examples(chunk, progress=progress))
            unsure = [example for example, found in zip(chunk, first, strict=True) if self.band.contains(found)]
            second = iter(self.expensive.predict_examples(unsure, progress=progress) if unsure else ())
            self.num_asked += len(unsure)
            for found in first:
                if not self.band.contains(found):
                    yield found
                elif (other := next(second)).label == UNPARSED:
                    yield replace(found, text=other.text)
                else:
                    probability = float(other.label == HALLUCINATED) if other.score is None else other.score
                    yield replace(other, score=self.band.low + probability * (self.band.high - self.band.low))


@dataclass(frozen=True, slots=True)
class RecordedPredictions:
    """A detector that returns predictions which were made before."""

    predictions: Mapping[str, Prediction]

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions by id."""
        yield from (self.predictions[example.id] for example in examples)


def choose_band_by_budget(predictions: Sequence[Prediction], budget: float) -> Band:
    """Chooses the widest band around the detector's threshold that contains at most this fraction of its scores.

    The band is symmetric around the threshold in log-odds.
    """
    scores = _read_scores(predictions)
    chosen = f"for {budget:.0%} of {len(scores):,} rows"
    count = int(budget * len(scores) + 1e-9)
    if count == len(scores):
        return Band(low=0.0, high=1.0, chosen=chosen)
    # The threshold follows from labels and scores; with a single label it is at the end of the scores.
    called = np.array([prediction.label == HALLUCINATED for prediction in predictions])
    if called.all():
        threshold = float(scores.min())
    elif not called.any():
        threshold = float(np.nextafter(scores.max(), inf))
    else:
        threshold = choose_threshold(scores, called, "macro_f1").value
    middle = logit([threshold])
    distances = np.sort(np.abs(logit(scores) - middle))
    # Rows with equal scores are judged together or not at all.
    while count and distances[count - 1] == distances[count]:
        count -= 1
    if not count:
        return replace(NOTHING, chosen=chosen)
    reach = (distances[count - 1] + distances[count]) / 2
    low, high = apply_temperature(np.concatenate([middle - reach, middle + reach]), 1.0).tolist()
    return Band(low=low, high=high, chosen=chosen)


def choose_band_by_precision(examples: Sequence[Example], predictions: Sequence[Prediction], precision: float) -> Band:
    """Chooses the narrowest band outside of which both labels have this precision.

    On a side where no threshold reaches the precision, the expensive detector judges every row.
    """
    pairs = [(example, one) for example, one in zip(examples, predictions, strict=True) if example.label is not None]
    if not pairs:
        raise UserError("no labelled row to choose a cascade's band on", hint="name labelled rows")
    kept = [one for _, one in pairs]
    scores = _read_scores(kept)
    aim = f"precision>={precision:g}"
    gold = np.array([example.label == HALLUCINATED for example, _ in pairs])
    called = np.array([one.label == HALLUCINATED for one in kept])
    ends: list[float | None] = []  # the lowest confidence from which labels have the precision; None if there is none
    for confidence, correct in ((scores[called], gold[called]), (1 - scores[~called], ~gold[~called])):
        if not correct.any():
            ends.append(None)
        elif correct.all():
            ends.append(0.0)
        else:
            found = choose_threshold(confidence, correct, aim)
            ends.append(found.value if found.reached else None)
    above, below = ends
    # A band includes its ends, so it stops just before the scores at which the cheap detector decides.
    high = 1.0 if above is None else float(np.nextafter(max(above, scores[called].min()), -inf))
    low = 0.0 if below is None else float(np.nextafter(min(1 - below, scores[~called].max()), inf))
    return Band(low=low, high=high, chosen=f"for {precision:.0%} precision outside, of {len(scores):,} rows")


def _read_scores(predictions: Sequence[Prediction]) -> NDArray[np.float64]:
    scores = [prediction.score for prediction in predictions]
    if not scores:
        raise UserError("no rows to choose a cascade's band on", hint="name rows that are not tested")
    if None in scores:
        problem = "the first detector of a cascade has no scores, so its unsure rows are unknown"
        raise UserError(problem, hint="use a critic or a tagger as the first detector")
    return np.array(scores, np.float64)
