"""A reward for TRL's trainers, such as GRPOTrainer: it pays for answers that their context supports.

GRPOTrainer(model, reward_funcs=FaithfulnessReward(), train_dataset=dataset, args=config)  # columns prompt, context
"""

from collections.abc import Sequence
from typing import Any

from faithkit.errors import UserError
from faithkit_workflows.adapters.scorer import DEFAULT, WARN, FaithfulnessScorer, to_score


class FaithfulnessReward:
    """Rewards completions by the dataset's column `context`: 1 is faithful, and an empty completion gets 0.

    A policy learns what its reward does not see. Combine this reward with one for the answer's use, and report
    another detector than the one that trained.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector.
        threshold: P(hallucinated) from which a completion gets 0, and otherwise 1; None gives 1 - P(hallucinated).
        context: The column with the context: texts, or lists of passages.
        question: The column with the question; a dataset need not have it.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore.
    """

    def __init__(
        self,
        checkpoint: str = DEFAULT,
        threshold: float | None = None,
        *,
        context: str = "context",
        question: str = "question",
        on_language: str = WARN,
    ):
        self._scorer = FaithfulnessScorer(checkpoint, threshold, on_language)
        self.context, self.question = context, question
        self.__name__ = "faithfulness"  # in TRL's logs

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Computes the reward of each completion, a text or messages; None where a judge gives no verdict."""
        if self.context not in columns:
            problem, names = f"the training data have no column {self.context!r}", ", ".join(columns) or "no other"
            raise UserError(problem, hint=f"add it, or name yours: context=...; they have {names}")
        answers = [one if isinstance(one, str) else str(one[-1].get("content") or "") for one in completions]
        questions = columns.get(self.question) or [None] * len(answers)
        rewards: list[float | None] = [0.0] * len(answers)
        places = [place for place, answer in enumerate(answers) if answer.strip()]
        rows = (answers, columns[self.context], questions)
        predictions = self._scorer.score(*([column[place] for place in places] for column in rows))
        for place, found in zip(places, predictions, strict=True):
            rewards[place] = to_score(found, self._scorer.threshold)
        return rewards
