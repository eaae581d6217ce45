"""Reads the control tokens off responses, with the settings that a generator was trained with."""

from collections.abc import Callable, Sequence

from faithkit.detector import Entailment
from faithkit.errors import UserError
from faithkit.records import Example
from generation.control.ctrl import Ctrl
from generation.control.features import ENTAILMENTS, Terciles, levels, overlap_of, tokens_of
from generation.control.names import check_controlled
from generation.settings import Settings


class FeatureReader:
    """Reads the control tokens of each example's response.

    Args:
        ctrl: Measures the features.
        terciles: Boundaries of the lexical overlap that training fitted.
    """

    def __init__(self, ctrl: Ctrl, terciles: Terciles | None):
        self.ctrl, self.terciles = ctrl, terciles

    @classmethod
    def of(cls, settings: Settings, *, entailment: str | None, load: Callable[[str], Entailment]) -> "FeatureReader":
        """Makes the reader for a trained generator.

        Args:
            entailment: A critic or an NLI model; None takes the one that it was trained with.
            load: Loads the model of that name.
        """
        groups = settings.layout.control
        overlap = overlap_of(groups)
        terciles = settings.thresholds.get(overlap) if overlap else None
        check_controlled(groups)
        if overlap and terciles is None:
            raise UserError("this model's sidecar lacks the terciles of lexical overlap", hint="train it again")
        if entailment is None and any(group in ENTAILMENTS for group in groups):
            trained = settings.origin.get("config", {}).get("control") or {}
            entailment = trained.get("entailment")
            if entailment is None:
                problem = "nothing says which model of entailment this one was trained with"
                raise UserError(problem, hint="give entailment=PATH of a critic or an NLI model")
        return cls(Ctrl(groups=groups, entailment=entailment, load=load), terciles and (terciles[0], terciles[1]))

    def __call__(self, examples: Sequence[Example]) -> list[tuple[str, ...]]:
        return tokens_of(self.ctrl.groups, levels(self.ctrl.measure(examples), self.terciles))
