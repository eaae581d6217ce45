"""The tested rows of one domain, which the report over domains is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from faithkit.baselines.simple_detectors import Baseline
from faithkit.pages.tables import escape_terminal
from faithkit.records import Example, Prediction
from faithkit.statistics.metric import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTest:
    """The tested rows of one domain with a model's predictions and those of baselines.

    Args:
        title: As tables name it.
        beside: Shown, and left out of the means.
        kin: Names of the domains that share texts, corpora or authors with it.
        alone: What decides the set without the knowledge: AUROC by kind of features.
        telling: Words that speak for hallucinated, and words that speak for faithful.
        seen: Marks the rows that the model has seen [N]; None where it cannot be told.
    """

    name: str
    title: str
    examples: Sequence[Example]
    predictions: Mapping[str, Prediction]
    baselines: Sequence[Baseline] = ()
    beside: bool = False
    kin: frozenset[str] = frozenset()
    alone: Mapping[str, Metric] = field(default_factory=dict)
    telling: tuple[Sequence[str], Sequence[str]] = ((), ())
    seen: NDArray[np.bool_] | None = None

    @property
    def shown_name(self) -> str:
        """The title in a table, with a star where the domain is beside the others."""
        return escape_terminal(f"{self.title}{' *' if self.beside else ''}")
