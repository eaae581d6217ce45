"""An evaluator for Haystack's pipelines, with the inputs and outputs of Haystack's own FaithfulnessEvaluator.

pipeline.add_component("faithfulness", FaithfulnessEvaluator())
Pipeline.loads(text, allowed_modules=["faithkit_workflows.adapters.haystack"])  # of a saved pipeline
"""

from statistics import fmean
from typing import Any

from faithkit_workflows.adapters.scorer import DEFAULT, WARN, FaithfulnessScorer, needs_tool, to_dict, to_score

with needs_tool("Haystack", "haystack"):
    from haystack import component, default_from_dict, default_to_dict


@component
class FaithfulnessEvaluator:
    """Scores answers by their contexts in one batch; 1 is faithful.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector.
        threshold: P(hallucinated) from which an answer is hallucinated; None takes the detector's own.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore.
    """

    def __init__(self, checkpoint: str = DEFAULT, threshold: float | None = None, on_language: str = WARN):
        self._scorer = FaithfulnessScorer(checkpoint, threshold, on_language)

    @component.output_types(score=float, individual_scores=list[float], results=list[dict[str, Any]])  # type: ignore[untyped-decorator, unused-ignore]
    def run(
        self, contexts: list[list[str]], predicted_answers: list[str], questions: list[str] | None = None
    ) -> dict[str, Any]:
        """Scores answers.

        Returns:
            The mean `score`, `individual_scores` (NaN for a reply of a judge that cannot be read), and `results` with
            label, probability and marked spans of each answer.
        """
        found = self._scorer.score(predicted_answers, contexts, questions or [None] * len(predicted_answers))
        scores = [to_score(one) for one in found]
        known = [score for score in scores if score is not None]
        return {
            "score": fmean(known) if known else float("nan"),
            "individual_scores": [float("nan") if score is None else score for score in scores],
            "results": [to_dict(one) for one in found],
        }

    def to_dict(self) -> dict[str, Any]:
        """Converts to the form in which a pipeline is saved."""
        options = {name: getattr(self._scorer, name) for name in ("checkpoint", "threshold", "on_language")}
        found: dict[str, Any] = default_to_dict(self, **options)
        return found

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "FaithfulnessEvaluator":
        """Reverses `to_dict`."""
        found: FaithfulnessEvaluator = default_from_dict(cls, data)
        return found
