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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from faithkit.entailment import CONTRADICTION, ENTAILMENT, Entailment
from faithkit.metrics.responses.knowledge_f1 import answer_f1
from faithkit.metrics.responses.q2.answers import Answers
from faithkit.metrics.responses.q2.candidates import Candidates
from faithkit.metrics.responses.q2.once import Once
from faithkit.metrics.responses.q2.questions import Questions
from faithkit.metrics.responses.q2.rules import Pair, Rules
from faithkit.statistics.intervals import Values

NLI_SCORES = {ENTAILMENT: 1.0, CONTRADICTION: 0.0}


@dataclass(slots=True)
class Asked:
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
    asked: list[list[Asked]]
    num_candidates: list[int]


@dataclass(slots=True)
class _Open:
    """A candidate with its questions, of which none is known to be valid yet."""

    response: int
    candidate: str
    questions: Sequence[str]
    found: Asked | None = field(default=None)


class Q2:
    """Scores responses with its models; no model is asked the same thing twice.

    Args:
        rules: Those of another protocol, such as `official.official_q2`; the defaults are ours.
    """

    def __init__(
        self,
        candidates: Candidates,
        questions: Questions,
        answers: Answers,
        entailment: Entailment,
        rules: Rules | None = None,
    ):
        self.rules = rules or Rules()
        self.usable: Once[str, bool] = Once(self.rules.usable)
        self.candidates: Once[str, tuple[str, ...]] = Once(candidates.candidates)
        self.questions: Once[Pair, tuple[str, ...]] = Once(lambda keys: questions.questions(*_columns(keys)))
        self.answers: Once[Pair, str | None] = Once(lambda keys: answers.answers(*_columns(keys)))
        self.nli_labels: Once[Pair, int] = Once(lambda keys: entailment.entailment(*_columns(keys)).argmax(1).tolist())

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> Q2Scores:
        """Scores each response against its knowledge."""
        candidates = self.candidates(responses)
        asked = self._ask(responses, candidates)
        self._answer(asked, knowledge)
        f1 = np.array([_mean([one.f1 for one in questions]) for questions in asked])
        nli = np.array([_mean([one.nli for one in questions]) for questions in asked])
        silent = [row for row, questions in enumerate(asked) if not questions]
        written = self.rules.fallback
        labels = self.nli_labels([(written(knowledge[row]), written(responses[row])) for row in silent])
        f1[silent] = nli[silent] = [NLI_SCORES.get(label, 0.5) for label in labels]
        return Q2Scores(f1, nli, asked, [len(found) for found in candidates])

    def _ask(self, responses: Sequence[str], candidates: Sequence[Sequence[str]]) -> list[list[Asked]]:
        """Finds for each response the first valid question of each candidate that has one."""
        keys = [(candidate, responses[row]) for row, found in enumerate(candidates) for candidate in found]
        rows = [row for row, found in enumerate(candidates) for _ in found]
        generated = self.questions(keys)
        usable = iter(self.usable([question for questions in generated for question in questions]))
        opened = [
            _Open(row, candidate, [question for question in questions if next(usable)])
            for row, (candidate, _), questions in zip(rows, keys, generated, strict=True)
        ]
        clean = self.rules.clean
        rank = 0
        while waiting := [one for one in opened if one.found is None and rank < len(one.questions)]:
            answers = self.answers([(one.questions[rank], responses[one.response]) for one in waiting])
            for one, answer in zip(waiting, answers, strict=True):
                if answer is not None and clean(answer) == clean(one.candidate):
                    one.found = Asked(one.questions[rank], one.candidate)
            rank += 1
        asked: list[list[Asked]] = [[] for _ in responses]
        for one in opened:
            if one.found is not None:
                asked[one.response].append(one.found)
        return asked

    def _answer(self, asked: Sequence[Sequence[Asked]], knowledge: Sequence[str]) -> None:
        """Answers the questions on the knowledge and scores the answers."""
        every = [(one, known) for questions, known in zip(asked, knowledge, strict=True) for one in questions]
        answers = self.answers([(one.question, known) for one, known in every])
        answered = []
        for (one, _), answer in zip(every, answers, strict=True):
            one.answer = answer
            if answer is not None:
                answered.append(one)
        given = [one.answer or "" for one in answered]
        scores = answer_f1([one.candidate for one in answered], given, self.rules.clean)
        for one, score in zip(answered, scores.tolist(), strict=True):
            one.f1 = one.nli = score
        compared = [
            (one, pair)
            for one in answered
            if one.f1 < 1 and (pair := self.rules.comparison(one.question, one.answer or "", one.candidate))
        ]
        for (one, _), label in zip(compared, self.nli_labels([pair for _, pair in compared]), strict=True):
            one.nli = NLI_SCORES.get(label, one.f1)


def _columns(keys: Iterable[Pair]) -> tuple[list[str], list[str]]:
    first, second = zip(*keys, strict=True)
    return list(first), list(second)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
