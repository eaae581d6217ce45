"""Whether one text follows from another: what metrics and control features ask of a model, whichever it is."""

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2  # columns of the probabilities


class Entailment(Protocol):
    """Any model of natural language inference."""

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[Any]:
        """Probabilities [N, 3] of entailment, neutral and contradiction of each pair, equal in any batch."""
        ...
