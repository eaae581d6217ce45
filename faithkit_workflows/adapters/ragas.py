"""A metric for ragas, both for `evaluate(dataset, metrics=[...])` and for its newer `score` and `batch_score`.

FaithfulnessMetric().batch_score([{"user_input": question, "response": answer, "retrieved_contexts": passages}])
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.records import Prediction
from faithkit_workflows.adapters.scorer import DEFAULT, WARN, FaithfulnessScorer, describe, needs_tool, to_score

with needs_tool("ragas", "ragas"):
    from ragas.dataset_schema import SingleTurnSample
    from ragas.metrics.base import MetricOutputType, MetricType, SimpleBaseMetric, SingleTurnMetric
    from ragas.metrics.result import MetricResult


class FaithfulnessMetric(SingleTurnMetric, SimpleBaseMetric):  # type: ignore[misc, unused-ignore]
    """Scores `response` by `retrieved_contexts`; 1 is faithful, NaN a reply of a judge that cannot be read.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector.
        threshold: P(hallucinated) from which an answer is hallucinated: scores are then 1 or 0, not probabilities.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore.
    """

    def __init__(
        self,
        checkpoint: str = DEFAULT,
        threshold: float | None = None,
        *,
        name: str = "faithkit",
        on_language: str = WARN,
    ):
        self._scorer = FaithfulnessScorer(checkpoint, threshold, on_language)
        columns = {MetricType.SINGLE_TURN: {"response", "retrieved_contexts", "user_input:optional"}}
        SingleTurnMetric.__init__(self, _required_columns=columns, name=name)
        self.allowed_values, self.output_type = (0.0, 1.0), MetricOutputType.CONTINUOUS

    def init(self, run_config: Any) -> None:
        """Does nothing: the detector is loaded already."""

    async def _single_turn_ascore(self, sample: SingleTurnSample, callbacks: Any) -> float:
        found = await self._scorer.ascore_one(sample.response, sample.retrieved_contexts, sample.user_input)
        return float(self._to_result(found).value)

    def score(self, **kwargs: Any) -> MetricResult:
        """Scores one sample: `response`, `retrieved_contexts` and perhaps `user_input`."""
        return self.batch_score([kwargs])[0]

    async def ascore(self, **kwargs: Any) -> MetricResult:
        """Scores one sample in a thread."""
        return await asyncio.to_thread(self.score, **kwargs)

    def batch_score(self, inputs: Sequence[Mapping[str, Any]]) -> list[MetricResult]:
        """Scores samples in one batch."""
        names = ("response", "retrieved_contexts", "user_input")
        found = self._scorer.score(*([one.get(name) for one in inputs] for name in names))
        return [self._to_result(one) for one in found]

    async def abatch_score(self, inputs: Sequence[Mapping[str, Any]]) -> list[MetricResult]:
        """Scores samples in one batch, in a thread."""
        return await asyncio.to_thread(self.batch_score, inputs)

    def _to_result(self, found: Prediction) -> MetricResult:
        score = to_score(found, self._scorer.threshold)
        return MetricResult(float("nan") if score is None else score, reason=describe(found))
