"""A critic's judgement of one response, and the arguments that cut it into labels."""

from dataclasses import dataclass
from typing import Any

from faithkit import arguments


@dataclass(frozen=True, slots=True)
class Score:
    """The judgement of one response.

    Args:
        label: hallucinated or faithful; None where the critic cannot tell (`abstain_at`).
        probability: Calibrated P(hallucinated).
    """

    label: str | None
    probability: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for json.dumps."""
        return {"label": self.label, "probability": self.probability}


def read_cuts(threshold: Any, abstain_at: Any) -> tuple[float | None, float | None]:
    """Reads `threshold` and `abstain_at` of a call: probabilities, or None for what is stored and for never."""
    return (
        arguments.read_probability("threshold", threshold),
        arguments.read_probability("abstain_at", abstain_at),
    )
