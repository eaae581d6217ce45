"""An evaluator for LangSmith, and a guard for LangChain's chains.

client.evaluate(chain.invoke, data=dataset, evaluators=[FaithfulnessEvaluator()])
chain | FaithfulnessGuard()
"""

from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.errors import UserError
from faithkit.records import FAITHFUL, Prediction
from faithkit_workflows.adapters.scorer import (
    DEFAULT,
    WARN,
    FaithfulnessScorer,
    describe,
    needs_tool,
    to_dict,
    to_score,
)

with needs_tool("LangChain", "langchain_core"):
    from langchain_core.runnables import Runnable, RunnableConfig
    from langsmith.evaluation import EvaluationResult, RunEvaluator

KEYS = ("answer", "context", "question")
Values = Mapping[str, Any]


class FaithfulnessEvaluator(RunEvaluator):  # type: ignore[misc, unused-ignore]
    """Scores the answer of a run by its context; 1 is faithful.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector.
        threshold: P(hallucinated) from which an answer is hallucinated; None takes the detector's own.
        keys: The names of answer, context and question in the outputs of a run, its inputs, or those of the example.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore.
    """

    def __init__(
        self,
        checkpoint: str = DEFAULT,
        threshold: float | None = None,
        *,
        keys: Sequence[str] = KEYS,
        on_language: str = WARN,
    ):
        self._scorer, self.keys = FaithfulnessScorer(checkpoint, threshold, on_language), tuple(keys)

    def evaluate_run(self, run: Any, example: Any = None, evaluator_run_id: Any = None) -> EvaluationResult:
        """Scores a run."""
        values = {**(example.inputs or {} if example else {}), **(run.inputs or {}), **(run.outputs or {})}
        (found,) = score_values(self._scorer, [values], self.keys)
        score, comment = to_score(found), describe(found)
        return EvaluationResult(key="faithfulness", score=score, value=found.label, comment=comment)


class UnfaithfulAnswer(ValueError):
    """The guard stopped an answer that its context does not support."""


class FaithfulnessGuard(Runnable[Values, dict[str, Any]]):  # type: ignore[misc, unused-ignore]
    """Lets faithful answers pass, with the verdict under `faithfulness`; `batch` judges all answers at once.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector.
        threshold: P(hallucinated) from which an answer is stopped; None takes the detector's own.
        fallback: Replaces a stopped answer; None raises `UnfaithfulAnswer`.
        keys: The names of answer, context and question in its input.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore.
    """

    def __init__(
        self,
        checkpoint: str = DEFAULT,
        threshold: float | None = None,
        *,
        fallback: str | None = None,
        keys: Sequence[str] = KEYS,
        on_language: str = WARN,
    ):
        self._scorer = FaithfulnessScorer(checkpoint, threshold, on_language)
        self.fallback, self.keys = fallback, tuple(keys)

    def invoke(self, input: Values, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        """Checks one answer."""
        found: dict[str, Any] = self.batch([input], config)[0]
        return found

    def batch(
        self, inputs: list[Values], config: Any = None, *, return_exceptions: bool = False, **kwargs: Any
    ) -> list[Any]:
        """Checks answers in one batch."""
        try:
            predictions = score_values(self._scorer, inputs, self.keys)
        except UserError as error:  # of one row: the others are judged without it
            if not return_exceptions:
                raise
            alone = (self.batch([one], config, return_exceptions=True)[0] for one in inputs)
            return [error] if len(inputs) == 1 else list(alone)
        found: list[Any] = []
        for values, prediction in zip(inputs, predictions, strict=True):
            passed = {**values, "faithfulness": {"score": to_score(prediction), **to_dict(prediction)}}
            if prediction.label == FAITHFUL:
                found.append(passed)
            elif self.fallback is None:
                found.append(UnfaithfulAnswer(describe(prediction)))
            else:
                found.append(passed | {self.keys[0]: self.fallback})
        if not return_exceptions and (stopped := [one for one in found if isinstance(one, Exception)]):
            raise stopped[0]
        return found


def score_values(scorer: FaithfulnessScorer, rows: Sequence[Values], keys: Sequence[str]) -> list[Prediction]:
    """Scores rows by the names of answer, context and question; the answer may be a message."""
    answer, context, question = keys
    if missing := [key for row in rows for key in (answer, context) if key not in row]:
        has = ", ".join(map(str, rows[0])) or "nothing"
        hint = "name yours: keys=(ANSWER, CONTEXT, QUESTION)"
        raise UserError(f"there is no {missing[0]!r} among {has}", hint=hint)
    answers = [getattr(row[answer], "content", row[answer]) for row in rows]
    return scorer.score(answers, [row[context] for row in rows], [row.get(question) for row in rows])
