"""Asks questions that have two answers: which of two replies is hallucinated, whether a judgement is right.

Where the engine tells how probable an answer's first word is, nothing is written: the likelier answer is taken, from
one pass over the prompt. Elsewhere, or with `written`, the model writes, and an answer is read strictly: another one
than the two is none.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm.auto import tqdm

from faithkit.inference.decoding import Decoding
from faithkit.inference.text import Form, TextEngine
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from judge.judge import AT_A_TIME
from judge.prompt import write_history
from judge.questions import Answered, read_text_prompt, weigh_or_write
from judge.reply import CHOICES, MARKS, NO, YES, read_verdict, without_thoughts

OF_EXAMPLE = ("knowledge", "history")
FIRST, SECOND = "1", "2"
NEW_TOKENS = 4  # of an answer
_NUMBER = re.compile(
    rf"^[{MARKS}]*(?:(?:the\s+)?(?:reply|response|answer)[{MARKS}:]*(?:is[{MARKS}:]*)?)?"
    r"([12])(?!\w|[.,]\d|\s*(?:and|or|&)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with two answers.

    Args:
        prompt: The name of its prompt, whose fields are those of an example and `fields`.
        read: Gives the choice that a reply makes; None where it makes neither.
    """

    prompt: str
    fields: tuple[str, ...]
    choices: tuple[str, str]
    read: Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a model.

    Args:
        choice: None where its reply gives neither.
        probability: Of the first of both choices, where the engine tells.
        text: The reply, or why there is none; empty where nothing was written.
    """

    choice: str | None
    probability: float | None = None
    text: str = ""


def read_number(text: str) -> str | None:
    """Reads 1 or 2 at the beginning of a reply.

    >>> read_number("Reply 2."), read_number("**1**"), read_number("12"), read_number("1 and 2"), read_number("Both")
    ('2', '1', None, None, None)
    """
    found = _NUMBER.match(without_thoughts(text))
    return found[1] if found else None


def read_yes_no(text: str) -> str | None:
    """Reads Yes or No at the beginning of a reply."""
    return {HALLUCINATED: YES, FAITHFUL: NO}.get(read_verdict(text))


COMPARATIVE = Question(prompt="comparative", fields=("first", "second"), choices=(FIRST, SECOND), read=read_number)
META = Question(prompt="meta", fields=("response", "judgement"), choices=CHOICES, read=read_yes_no)


class Asker:
    """Asks one question about many examples.

    Args:
        prompts: A folder with prompts of one's own.
        written: Answers are written and read, whatever the engine tells of their probabilities.
        max_new_tokens: Of an answer; None takes few.
    """

    def __init__(
        self,
        engine: TextEngine,
        question: Question,
        *,
        prompts: str | None = None,
        written: bool = False,
        max_new_tokens: int | None = None,
    ):
        self.engine, self.question, self.written = engine, question, written
        self.max_new_tokens = max_new_tokens or NEW_TOKENS
        fields = (*OF_EXAMPLE, *question.fields)
        self.prompt = read_text_prompt(question.prompt, *fields, folder=prompts, kept=question.fields)

    def answers(self, rows: Sequence[tuple[Example, Mapping[str, str]]], *, progress: bool = False) -> Iterator[Answer]:
        """Answers in the rows' order, each an example with what its other fields hold."""
        with tqdm(total=len(rows), desc=self.question.prompt, disable=not progress, unit="row") as bar:
            for begin in range(0, len(rows), AT_A_TIME):
                yield from self._portion(rows[begin : begin + AT_A_TIME], bar)

    def _portion(self, rows: Sequence[tuple[Example, Mapping[str, str]]], bar: Any) -> list[Answer]:
        found = weigh_or_write(
            self.engine,
            [
                self.prompt.messages(knowledge=example.knowledge, history=write_history(example.history), **others)
                for example, others in rows
            ],
            self.question.choices,
            Decoding(max_new_tokens=self.max_new_tokens),
            None if self.written else Form(choices=self.question.choices),
            always_write=self.written,
            advance=bar.update,
        )
        return [self._answer(one) for one in found]

    def _answer(self, answered: Answered) -> Answer:
        weighed, written = answered
        first, second = self.question.choices
        probability = weighed.probabilities.get(first) if weighed else None
        if written is not None:
            said = written.texts[0] if written.texts else written.problem
            return Answer(
                choice=self.question.read(said) if written.texts else None, probability=probability, text=said
            )
        assert weighed is not None, "every question gets a reply"
        if probability is None:
            return Answer(choice=None, text=weighed.problem)
        return Answer(choice=first if probability >= 0.5 else second, probability=probability)
