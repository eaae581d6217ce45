"""Ways of choosing an answer that exclude each other."""

from faithkit.errors import UserError
from faithkit.inference.decoding import NUCLEUS, Decoding


def check_strategy(decoding: Decoding, detector: str | None, resample: int | None = None) -> None:
    """Refuses settings that contradict each other, before anything is loaded."""
    if decoding.num_samples > 1 and not detector:
        raise UserError(f"best_of={decoding.num_samples} needs a judge", hint="detector=PATH of a critic or a tagger")
    if resample is not None and detector:
        hint = "leave one of them out; evaluate.py judges what was resampled"
        raise UserError(f"resample={resample} chooses by features, and detector= by a detector's score", hint=hint)
    if resample is not None and decoding.strategy != NUCLEUS:
        raise UserError(f"{decoding.strategy} decoding writes the same again", hint="use decoding=nucleus")
