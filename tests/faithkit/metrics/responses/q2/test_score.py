"""The protocol of Q2, branch by branch, with models that answer from tables."""

import numpy as np
import pytest

from faithkit.detector import CONTRADICTION, ENTAILMENT, NEUTRAL
from faithkit.metrics.responses.q2 import Q2, CachedCalls, Q2Rules

RESPONSE, KNOWLEDGE = "The red river is in France.", "The blue river is in Spain."


class Fake:
    """All four models: tables of what they say, and lists of what they were asked."""

    def __init__(self, candidates=None, questions=None, answers=None, verdicts=None):
        self.tables = {"c": candidates or {}, "q": questions or {}, "a": answers or {}, "v": verdicts or {}}
        self.asked = {"c": [], "q": [], "a": [], "v": []}

    def candidates(self, texts):
        self.asked["c"].append(list(texts))
        return [tuple(self.tables["c"].get(text, ())) for text in texts]

    def questions(self, answers, contexts):
        self.asked["q"].append(list(zip(answers, contexts, strict=True)))
        return [tuple(self.tables["q"][answer]) for answer in answers]

    def answers(self, questions, contexts):
        keys = list(zip(questions, contexts, strict=True))
        self.asked["a"].append(keys)
        return [self.tables["a"].get(key) for key in keys]

    def entailment(self, premises, hypotheses):
        keys = list(zip(premises, hypotheses, strict=True))
        self.asked["v"].append(keys)
        return np.eye(3)[[self.tables["v"][key] for key in keys]]

    def score(self, responses=(RESPONSE,), knowledge=(KNOWLEDGE,)):
        return Q2(self.candidates, self.questions, self.answers, self).score(list(responses), list(knowledge))


def one_question(answer, verdict=None):
    """A single candidate with a single valid question, answered so on the knowledge."""
    verdicts = {(f"Which river? {answer}.", "Which river? The red river."): verdict}
    answers = {("Which river?", RESPONSE): "red river", ("Which river?", KNOWLEDGE): answer}
    return Fake({RESPONSE: ["The red river"]}, {"The red river": ["Which river?"]}, answers, verdicts)


@pytest.mark.parametrize(
    ("answer", "verdict", "f1", "nli"),
    [
        ("the red river", None, 1.0, 1.0),  # equal but for the article: NLI is not asked
        ("blue river", ENTAILMENT, 0.5, 1.0),
        ("blue river", NEUTRAL, 0.5, 0.5),
        ("blue river", CONTRADICTION, 0.5, 0.0),
        ("Spain", ENTAILMENT, 0.0, 1.0),
        ("Spain", NEUTRAL, 0.0, 0.0),
        (None, None, 0.0, 0.0),  # no answer on the knowledge: NLI is not asked
    ],
)
def test_a_question_scores_what_the_knowledge_answers(answer, verdict, f1, nli):
    fake = one_question(answer, verdict)
    found = fake.score()
    assert (found.f1[0], found.nli[0]) == pytest.approx((f1, nli))
    assert len(fake.asked["v"]) == (verdict is not None)


@pytest.mark.parametrize(("verdict", "score"), [(ENTAILMENT, 1.0), (NEUTRAL, 0.5), (CONTRADICTION, 0.0)])
@pytest.mark.parametrize(
    "fake",
    [
        Fake(),  # no candidate
        Fake({RESPONSE: ["France"]}, {"France": []}),  # no question
        Fake({RESPONSE: ["France"]}, {"France": ["Where do you live?", ""]}),  # personal or empty
        Fake({RESPONSE: ["France"]}, {"France": ["Where?"]}, {("Where?", RESPONSE): "in the red river"}),
        Fake({RESPONSE: ["France"]}, {"France": ["Where?"]}, {}),  # no answer on the response
    ],
)
def test_without_a_valid_question_the_knowledge_entails_the_response_or_not(fake, verdict, score):
    fake.tables["v"] = {(KNOWLEDGE, RESPONSE): verdict}
    found = fake.score()
    assert found.f1.tolist() == found.nli.tolist() == [score] and found.asked == [[]]


def test_of_each_candidate_the_first_valid_question_counts_and_the_response_has_their_mean():
    fake = Fake(
        {RESPONSE: ["The red river", "France"]},
        {"The red river": ["What is wet?", "Which river?", "Never asked?"], "France": ["Where is it?"]},
        {
            ("What is wet?", RESPONSE): "France",
            ("Which river?", RESPONSE): "The red river",
            ("Which river?", KNOWLEDGE): "a red river",
            ("Where is it?", RESPONSE): "France",
            ("Where is it?", KNOWLEDGE): "Spain",
        },
        {("Where is it? Spain.", "Where is it? France."): CONTRADICTION},
    )
    found = fake.score()
    assert found.f1[0] == found.nli[0] == pytest.approx(1 / 2)
    assert [(one.question, one.candidate, one.answer) for one in found.asked[0]] == [
        ("Which river?", "The red river", "a red river"),
        ("Where is it?", "France", "Spain"),
    ]
    assert not any(question == "Never asked?" for batch in fake.asked["a"] for question, _ in batch)


def test_models_are_asked_in_batches_over_all_responses_and_each_thing_once():
    fake = one_question("the red river")
    q2 = Q2(fake.candidates, fake.questions, fake.answers, fake)
    first = q2.score([RESPONSE] * 3, [KNOWLEDGE] * 3)
    assert first.f1.tolist() == [1.0] * 3
    assert [len(batch) for batch in fake.asked["a"]] == [1, 1]  # on the response, on the knowledge
    q2.score([RESPONSE], [KNOWLEDGE])
    assert [len(fake.asked[name]) for name in "cqa"] == [1, 1, 2]


def test_the_empty_response_is_scored_by_entailment():
    fake = Fake(verdicts={(KNOWLEDGE, ""): NEUTRAL})
    assert fake.score([""], [KNOWLEDGE]).f1.tolist() == [0.5]
    assert Fake().score([], []).f1.tolist() == []


def test_personal_questions_are_not_asked():
    personal = ["What do you like?", "Who is my friend?", "I?", ""]
    assert Q2Rules().usable([*personal, "Where is Iowa?"]) == [False] * 4 + [True]


def test_once_keeps_order_and_repetitions():
    calls = []
    once = CachedCalls(lambda keys: [calls.append(key) or key.upper() for key in keys])
    assert once(["b", "a", "b"]) == ["B", "A", "B"] and once(["a", "c"]) == ["A", "C"] and calls == ["b", "a", "c"]
