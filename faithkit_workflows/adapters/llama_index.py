"""An evaluator for LlamaIndex.

FaithfulnessEvaluator().evaluate_response(query=question, response=engine.query(question)).passing
"""

from collections.abc import Sequence
from typing import Any

from faithkit.records import FAITHFUL
from faithkit_workflows.adapters.scorer import DEFAULT, WARN, FaithfulnessScorer, describe, needs_tool, to_score

with needs_tool("LlamaIndex", "llama_index"):
    from llama_index.core.evaluation import BaseEvaluator, EvaluationResult


class FaithfulnessEvaluator(BaseEvaluator):  # type: ignore[misc, unused-ignore]
    """Scores a response by the retrieved contexts; a score of 1 is faithful.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector.
        threshold: P(hallucinated) from which a response does not pass; None takes the detector's own.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore.
    """

    def __init__(self, checkpoint: str = DEFAULT, threshold: float | None = None, on_language: str = WARN):
        self._scorer = FaithfulnessScorer(checkpoint, threshold, on_language)

    async def aevaluate(
        self,
        query: str | None = None,
        response: str | None = None,
        contexts: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Scores a response; a reply of a judge that cannot be read is an invalid result."""
        found = await self._scorer.ascore_one(response, contexts, query)
        score, feedback = to_score(found), describe(found)
        return EvaluationResult(
            query=query,
            response=response,
            contexts=list(contexts) if isinstance(contexts, Sequence) and not isinstance(contexts, str) else None,
            passing=found.label == FAITHFUL,
            score=score,
            feedback=feedback,
            invalid_result=score is None,
            invalid_reason=feedback if score is None else None,
        )

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts_dict: Any) -> None:
        """Does nothing: a detector has no prompt."""
