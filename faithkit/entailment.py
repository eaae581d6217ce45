"""Entailment: the interface of models that predict whether one text follows from another."""

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2  # columns of the probabilities


class Entailment(Protocol):
    """Scores pairs of texts: any model of natural language inference."""

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[Any]:
        """Returns the probabilities [N, 3] of entailment, neutral and contradiction, independent of the batch."""
        ...
