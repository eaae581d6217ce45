"""Which way of answering a configuration asks for."""

from collections.abc import Sequence

from faithkit.errors import UserError
from faithkit.inference.decoding import Decoding
from generation.generator import Generator
from generation.resample import Features, Resampling
from workflows.answering import Answerer, Plain
from workflows.best_of import BestOf, Detector


def check_strategy(decoding: Decoding, detector: str | None, resample: int | None = None) -> None:
    """Refuses what does not go together, before anything is loaded."""
    if decoding.num_samples > 1 and not detector:
        raise UserError(f"best_of={decoding.num_samples} needs a judge", hint="detector=PATH of a critic or a tagger")
    if resample is not None and detector:
        hint = "leave one of them out; evaluate.py judges what was resampled"
        raise UserError(f"resample={resample} chooses by features, and detector= by a detector's score", hint=hint)


def build_answerer(
    generator: Generator,
    decoding: Decoding,
    control: Sequence[str] | None,
    *,
    detector: Detector | None = None,
    features: Features | None = None,
    resample: int | None = None,
) -> Answerer:
    """The generator alone, the best of several answers by a detector, or answers drawn again by their features.

    Args:
        control: Names of control tokens; None for those of a faithful answer.
        features: Reads the control tokens off responses, where `resample` says how often at most.
    """
    if resample is not None:
        assert features is not None, "resampling reads features"
        return Resampling(generator, features, decoding, resample, control)
    if detector is not None:
        return BestOf(generator, detector, decoding, control)
    return Plain(generator, decoding, control)
