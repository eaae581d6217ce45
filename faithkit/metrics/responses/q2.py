"""Q2: asks about each part of a response, and compares the knowledge's answers (Honovich et al. 2021, section 3).

1. Candidate answers are taken from the response, and questions are generated for each, personal ones dropped.
2. The first question that the response itself answers with the candidate is valid.
3. That question is answered on the knowledge. Its score is 0 without an answer, else the token F1 of candidate and
   answer; the NLI variant replaces an F1 below 1 by 1 (entailment) or 0 (contradiction).
4. A response's score is the mean over its questions. Without a valid question it is 1, 0.5 or 0, as the knowledge
   entails the response, leaves it open or contradicts it.

Use it where no trained critic fits the domain. Its value depends on the three models, so compare only under the same
ones; opinions and small talk give no question. Every model is asked in batches over all responses.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from faithkit.detector import CONTRADICTION, ENTAILMENT, Entailment
from faithkit.metrics.responses.ngrams import count_shared_grams
from faithkit.statistics.spread import Values
from faithkit.words import answer_words, apostrophe_words, word_set

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class CachedCalls(Generic[Key, Value]):
    """Answers from memory, and from the model, in one batch, what it has not been asked before.

    Args:
        ask: From distinct keys to their values, in the same order.
    """

    def __init__(self, ask: Callable[[Sequence[Key]], Sequence[Value]]):
        self._ask = ask
        self._known: dict[Key, Value] = {}

    def __call__(self, keys: Sequence[Key]) -> list[Value]:
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        if new:
            self._known.update(zip(new, self._ask(new), strict=True))
        return [self._known[key] for key in keys]


TextPair = tuple[str, str]  # premise, hypothesis


def make_statements(question: str, answer: str, candidate: str) -> TextPair:
    """Makes of two answers to a question the two statements that the NLI model compares."""
    return f"{question} {answer}.", f"{question} {candidate}."


# A question with one of these asks the reader or the speaker about themselves: no text answers it.
PERSONAL = word_set("i me my mine myself you your yours yourself yourselves")


def _find_usable(questions: Sequence[str]) -> list[bool]:
    return [bool(text) and PERSONAL.isdisjoint(apostrophe_words(text)) for text in questions]


def clean_answer(text: str) -> str:
    """Leaves of an answer its words in lower case, without articles and punctuation."""
    return " ".join(answer_words(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Q2Rules:
    """The rules of a protocol; the defaults are ours.

    Args:
        usable: Which questions are asked at all.
        clean: What is left of an answer when two are compared.
        comparison: The premise and hypothesis of (question, answer, candidate); None keeps their F1.
        fallback: How response and knowledge are written where the NLI model compares them themselves.
    """

    usable: Callable[[Sequence[str]], list[bool]] = _find_usable
    clean: Callable[[str], str] = clean_answer
    comparison: Callable[[str, str, str], TextPair | None] = make_statements
    fallback: Callable[[str], str] = str


NLI_SCORES = {ENTAILMENT: 1.0, CONTRADICTION: 0.0}


@dataclass(slots=True)
class AskedQuestion:
    """One valid question about a response, and what became of it."""

    question: str
    candidate: str
    answer: str | None = None
    f1: float = 0.0
    nli: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Q2Scores:
    """`f1` and `nli` of each response [N], its questions, and how many candidates it had."""

    f1: Values
    nli: Values
    asked: list[list[AskedQuestion]]
    num_candidates: list[int]


@dataclass(slots=True)
class _OpenCandidate:
    """A candidate with its questions, of which none is known to be valid yet."""

    response: int
    candidate: str
    questions: Sequence[str]
    found: AskedQuestion | None = field(default=None)


class Q2:
    """Scores responses with its models; no model is asked the same thing twice.

    Args:
        candidates: Finds the answers to ask about in each text.
        questions: Gives several questions for each answer in its context, the likeliest first.
        answers: Answers each question on its context; None where it has no answer there.
        rules: Those of another protocol, such as `official.official_q2`; the defaults are ours.
    """

    def __init__(
        self,
        candidates: Callable[[Sequence[str]], Sequence[tuple[str, ...]]],
        questions: Callable[[Sequence[str], Sequence[str]], Sequence[tuple[str, ...]]],
        answers: Callable[[Sequence[str], Sequence[str]], Sequence[str | None]],
        entailment: Entailment,
        rules: Q2Rules | None = None,
    ):
        self.rules = rules or Q2Rules()
        self.usable: CachedCalls[str, bool] = CachedCalls(self.rules.usable)
        self.candidates: CachedCalls[str, tuple[str, ...]] = CachedCalls(candidates)
        self.questions: CachedCalls[TextPair, tuple[str, ...]] = CachedCalls(lambda keys: questions(*_columns(keys)))
        self.answers: CachedCalls[TextPair, str | None] = CachedCalls(lambda keys: answers(*_columns(keys)))
        self.nli_labels: CachedCalls[TextPair, int] = CachedCalls(
            lambda keys: entailment.entailment(*_columns(keys)).argmax(1).tolist()
        )

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> Q2Scores:
        """Scores each response against its knowledge."""
        candidates, clean = self.candidates(responses), self.rules.clean
        keys = [(candidate, responses[row]) for row, found in enumerate(candidates) for candidate in found]
        rows = [row for row, found in enumerate(candidates) for _ in found]
        generated = self.questions(keys)
        usable = iter(self.usable([question for questions in generated for question in questions]))
        opened = [
            _OpenCandidate(row, candidate, [question for question in questions if next(usable)])
            for row, (candidate, _), questions in zip(rows, keys, generated, strict=True)
        ]
        # The first question of each candidate that the response answers with it is valid.
        rank = 0
        while waiting := [one for one in opened if one.found is None and rank < len(one.questions)]:
            answers = self.answers([(one.questions[rank], responses[one.response]) for one in waiting])
            for one, answer in zip(waiting, answers, strict=True):
                if answer is not None and clean(answer) == clean(one.candidate):
                    one.found = AskedQuestion(one.questions[rank], one.candidate)
            rank += 1
        asked: list[list[AskedQuestion]] = [[] for _ in responses]
        for one in opened:
            if one.found is not None:
                asked[one.response].append(one.found)
        # They are answered on the knowledge, and these answers are scored.
        every = [(question, known) for of, known in zip(asked, knowledge, strict=True) for question in of]
        for (question, _), answer in zip(every, self.answers([(q.question, known) for q, known in every]), strict=True):
            question.answer = answer
        answered = [question for question, _ in every if question.answer is not None]
        words = [clean(question.candidate).split() for question in answered]
        [shared] = count_shared_grams(words, [clean(question.answer or "").split() for question in answered])
        for question, score in zip(answered, shared.f1.tolist(), strict=True):
            question.f1 = question.nli = score
        compared = [
            (question, pair)
            for question in answered
            if question.f1 < 1
            and (pair := self.rules.comparison(question.question, question.answer or "", question.candidate))
        ]
        for (question, _), label in zip(compared, self.nli_labels([pair for _, pair in compared]), strict=True):
            question.nli = NLI_SCORES.get(label, question.f1)
        f1, nli = (
            np.array([float(np.nan) if not of else sum(getattr(one, name) for one in of) / len(of) for of in asked])
            for name in ("f1", "nli")
        )
        # Without a valid question the knowledge is compared with the response.
        silent, written = [row for row, of in enumerate(asked) if not of], self.rules.fallback
        labels = self.nli_labels([(written(knowledge[row]), written(responses[row])) for row in silent])
        f1[silent] = nli[silent] = [NLI_SCORES.get(label, 0.5) for label in labels]
        return Q2Scores(f1, nli, asked, [len(found) for found in candidates])


def _columns(keys: Iterable[TextPair]) -> tuple[list[str], list[str]]:
    first, second = zip(*keys, strict=True)
    return list(first), list(second)
