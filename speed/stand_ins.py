"""Q2's models by rule: they answer at once and take every branch of the protocol, so their words need make no sense."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

OPENINGS = (
    "What do you say of: {}",
    "Who is my friend's: {}",
    "Which one is: {}",
    "What do I know of: {}",
    "Where was your: {}",
    "When was: {}",
)
NO_ANSWER = "[CLS]"


def draw(*texts: str, sides: int) -> int:
    """Draws a number below `sides` that depends on the texts alone."""
    return int.from_bytes(sha256("\n".join(texts).encode()).digest()[:4]) % sides


class StandIns:
    """A question writer, a reader and an NLI model in one."""

    def questions(self, answers: Sequence[str], contexts: Sequence[str]) -> list[tuple[str, ...]]:
        """Begins with another of the openings each time; some ask about persons."""
        firsts = [draw(answer, context, sides=len(OPENINGS)) for answer, context in zip(answers, contexts, strict=True)]
        return [
            tuple(OPENINGS[(first + i) % len(OPENINGS)].format(answer) for i in range(5))
            for first, answer in zip(firsts, answers, strict=True)
        ]

    def answers(self, questions: Sequence[str], contexts: Sequence[str]) -> list[str | None]:
        """Answers with what the question names, changed or not, or with nothing."""
        return [self._answer(question, context) for question, context in zip(questions, contexts, strict=True)]

    def _answer(self, question: str, context: str) -> str | None:
        wanted = question.partition(": ")[2].lower()
        first, *rest = wanted.split()
        choices = (
            None,
            "",
            wanted,
            f"the {wanted}",
            "".join(letter for letter in wanted if letter.isalnum() or letter == " "),
            " ".join(rest) or first,
            f"{first} {context.lower().split()[0]}",
            f"{NO_ANSWER} {wanted}",
            "null",
            f"our {wanted}!",
        )
        return choices[draw(question, context, sides=len(choices))]

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        """Draws one of the three labels for each pair."""
        return np.eye(3)[[draw(*pair, sides=3) for pair in zip(premises, hypotheses, strict=True)]]
