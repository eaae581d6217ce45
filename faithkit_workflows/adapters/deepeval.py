"""A metric for DeepEval.

evaluate([LLMTestCase(input=question, actual_output=answer, retrieval_context=passages)], [FaithfulnessMetric()])
"""

from typing import Any

from faithkit.arguments import read_probability
from faithkit.records import FAITHFUL
from faithkit_workflows.adapters.scorer import (
    DEFAULT,
    WARN,
    FaithfulnessScorer,
    describe,
    needs_tool,
    stored_threshold,
    to_score,
)

with needs_tool("DeepEval", "deepeval"):
    from deepeval.errors import MissingTestCaseParamsError
    from deepeval.metrics import BaseMetric
    from deepeval.test_case import LLMTestCase, SingleTurnParams


class FaithfulnessMetric(BaseMetric):  # type: ignore[misc, unused-ignore]
    """Scores the answer by `retrieval_context`, or else `context`; 1 is faithful.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector.
        threshold: As DeepEval has it, the lowest score that passes; None takes 1 - the detector's threshold.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore.
    """

    _required_params = (SingleTurnParams.ACTUAL_OUTPUT, SingleTurnParams.RETRIEVAL_CONTEXT)
    __name__ = "Faithfulness (faithkit)"

    def __init__(self, checkpoint: str = DEFAULT, threshold: float | None = None, *, on_language: str = WARN):
        self._scorer = FaithfulnessScorer(checkpoint, on_language=on_language)
        if threshold is None:
            stored = stored_threshold(self._scorer.checkpoint)
            threshold = None if stored is None else 1 - stored
        self.checkpoint, self.threshold = self._scorer.checkpoint, read_probability("threshold", threshold)
        self.evaluation_model = f"faithkit {self.checkpoint}"

    def measure(self, test_case: LLMTestCase, *args: Any, **kwargs: Any) -> float:
        """Scores a test case.

        Raises:
            MissingTestCaseParamsError: It has no answer or no context.
        """
        self.error, context = None, test_case.retrieval_context or test_case.context
        for name, value in {"actual_output": test_case.actual_output, "retrieval_context": context}.items():
            if not value:
                self.error = f"'{name}' of a test case cannot be empty for the metric '{self.__name__}'"
                raise MissingTestCaseParamsError(self.error)
        found = self._scorer.score_one(test_case.actual_output, context, test_case.input)
        score, self.reason = to_score(found), describe(found)
        self.score = score
        if score is None:
            raise ValueError(f"the detector gave no verdict: {self.reason}")
        self.success = found.label == FAITHFUL if self.threshold is None else score >= self.threshold
        return score

    async def a_measure(self, test_case: LLMTestCase, *args: Any, **kwargs: Any) -> float:
        """Scores a test case; a detector computes, so there is nothing to wait for."""
        return self.measure(test_case)

    def is_successful(self) -> bool:
        """Reports whether the last test case passed."""
        return self.error is None and bool(self.success)
