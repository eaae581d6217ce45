"""Gives a detector another threshold than the one that is stored with it, for all that it judges from then on."""

from dataclasses import replace

from critic.sequence.scorer import Critic
from critic.tagger.predictor import Tagger
from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit_workflows.detectors.loading import Loaded
from judge.judge import Judge


def with_threshold(loaded: Loaded, threshold: float | None, place: str) -> Loaded:
    """Sets the probability from which on a response is called hallucinated; None leaves the stored one.

    Args:
        place: The checkpoint, as an error names it.

    Raises:
        UserError: The labels of this detector do not come of a threshold.
    """
    if threshold is None:
        return loaded
    _set(loaded.detector, threshold, place)
    told = f"{threshold:.4g}, set by the command"
    return replace(loaded, models=[replace(model, threshold=told) for model in loaded.models])


def _set(detector: Detector, threshold: float, place: str) -> None:
    if isinstance(detector, Tagger):
        detector.calibration = replace(detector.calibration, response_threshold=threshold)
        return
    if isinstance(detector, Critic) or (isinstance(detector, Judge) and detector.weighs):
        detector.calibration = replace(detector.calibration, threshold=threshold)
        return
    if isinstance(detector, Judge):
        problem = "threshold: this judge writes its verdicts, and cuts no probability"
        raise UserError(problem, place=place, hint="leave threshold out, or ask for a verdict: judge: {ask: verdict}")
    problem = "threshold is for one critic, tagger or judge, and this detector is of several"
    raise UserError(problem, place=place, hint="leave threshold out, or name one of its detectors as checkpoint")
