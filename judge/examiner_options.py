"""The block `examiner`: one language model questions another."""

from dataclasses import dataclass
from typing import Annotated

from faithkit.settings.check import check_fields
from faithkit.settings.types import Count, Hint, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminerOptions:
    """The block `examiner` of evaluate.py; without turns there is none.

    Args:
        turns: Of questions and answers before it decides.
        examinee: The model that answers, run as engine.model is; None takes engine.model itself.
        num_questions: In a turn, at most.
        max_new_tokens: Of the questions of a turn, and of its answers.
    """

    turns: Annotated[Count | None, Hint("use 1 or more, or null for no examiner")] = None
    examinee: Text | None = None
    num_questions: Count = 3
    max_new_tokens: Count = 160

    def __post_init__(self) -> None:
        check_fields(self, "examiner")
