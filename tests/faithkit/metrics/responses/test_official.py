"""The official protocol against the values of the q-squared scripts for 50 pairs.

`official_figures.json` was written by `speed/official_metrics.py` of commit 11bf9ef; the scripts ran unchanged in the
versions that they require (spaCy 2.3.2, sacrebleu 1.4.14, transformers 3.2.0, ...), with rule-based models. It holds
their values and every question with its answer, so that no model is needed here.
"""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from faithkit.metrics.responses.bert_score import BASELINES, BertScore, RescaledBertScore
from faithkit.metrics.responses.official import (
    OfficialMetrics,
    clean_official_answer,
    official_candidates,
    official_rules,
)
from faithkit.metrics.responses.q2 import Q2

FIGURES = json.loads((Path(__file__).parent / "official_figures.json").read_text(encoding="utf-8"))
PAIRS = FIGURES["pairs"]
RESPONSES, KNOWLEDGE = [one["response"] for one in PAIRS], [one["knowledge"] for one in PAIRS]
NLI_CLASSES = ("entailment", "neutral", "contradiction")


def scripts(name):
    return pytest.approx([one[name] for one in PAIRS], abs=1e-9)


def test_f1_and_bleu_are_the_scripts():
    found, asked = OfficialMetrics().score(RESPONSES, KNOWLEDGE)
    assert asked is None and set(found) == {"official_f1", "official_bleu"}
    assert found["official_f1"].tolist() == scripts("official_f1")
    assert found["official_bleu"].tolist() == scripts("official_bleu")


class Recorded:
    """A spaCy pipeline, the writer and reader, and the NLI model, as they answered the scripts."""

    def __init__(self):
        self.asked = {(answer, context): tuple(texts) for answer, context, texts in FIGURES["questions"]}
        self.answered = {(question, text): answer for question, text, answer in FIGURES["answers"]}
        self.labels = {(premise, hypothesis): label for premise, hypothesis, label in FIGURES["labels"]}

    def pipe(self, texts):
        return [Document(FIGURES["parses"].get(text, {"entities": [], "chunks": [], "tokens": []})) for text in texts]

    def questions(self, answers, contexts):
        return [self.asked[pair] for pair in zip(answers, contexts, strict=True)]

    def answers(self, questions, contexts):
        said = [self.answered[pair] for pair in zip(questions, contexts, strict=True)]
        return [None if answer == "[CLS]" else answer for answer in said]

    def entailment(self, premises, hypotheses):
        chosen = [self.labels[pair] for pair in zip(premises, hypotheses, strict=True)]
        return np.eye(3)[[NLI_CLASSES.index(label) for label in chosen]]


class Document(list):
    """A document of spaCy's, as far as it is read."""

    def __init__(self, found):
        super().__init__(SimpleNamespace(text=text, dep_=dependency) for text, dependency in found["tokens"])
        self.ents = [SimpleNamespace(text=text) for text in found["entities"]]
        self.noun_chunks = [SimpleNamespace(text=text) for text in found["chunks"]]


def test_q2_asks_answers_and_scores_as_the_scripts():
    models = Recorded()
    q2 = Q2(
        partial(official_candidates, models), models.questions, models.answers, models, official_rules(models, "[CLS]")
    )
    columns, found = OfficialMetrics(q2=q2).score(RESPONSES, KNOWLEDGE)
    assert found is not None and len(found.asked) == 50
    assert columns["official_q2_f1"].tolist() == scripts("official_q2_f1")
    assert columns["official_q2_nli"].tolist() == scripts("official_q2_nli")
    assert columns["official_f1"].tolist() == scripts("official_f1")


def test_answers_are_compared_without_marks_articles_in_and_our():
    left = {"the U.S.": "us", "US": "us", "An apple in our garden": "apple garden", "Don't": "dont", "in the": ""}
    left["theory"] = "theory"
    assert {text: clean_official_answer(text) for text in left} == left


def rules_over(dependencies):
    """Official rules over a pipeline that gives every word of a text the next of some dependencies."""

    def pipe(texts):
        for text in texts:
            tokens = [list(pair) for pair in zip(text.split(), dependencies, strict=True)]
            yield Document({"tokens": tokens, "entities": [], "chunks": []})

    return official_rules(SimpleNamespace(pipe=pipe), "[CLS]")


@pytest.mark.parametrize(
    ("question", "dependencies", "usable"),
    [
        ("What do You like", ["dobj", "aux", "nsubj", "ROOT"], False),
        ("Who met my dog", ["nsubj", "ROOT", "poss", "dobj"], False),
        ("Who likes you", ["nsubj", "ROOT", "dobj"], True),  # no subject
        ("Is it yours", ["ROOT", "nsubj", "attr"], True),  # ours drops it
    ],
)
def test_a_question_is_personal_by_its_parse(question, dependencies, usable):
    assert rules_over(dependencies).usable([question]) == [usable]


def test_nli_compares_answers_unless_they_are_none_or_read_back_as_missing():
    compare = rules_over([]).comparison
    assert compare("Who?", "a king", "the King") == ("Who? a king.", "Who? the King.")
    assert compare("Who?", "a king", "NA") == ("Who? a king.", "Who? nan.")
    assert [compare("Who?", answer, "a king") for answer in ("", "[CLS] who", "null", "nan")] == [None] * 4


def test_entities_are_asked_about_as_often_as_they_stand_and_chunks_once():
    found = {"entities": ["Paris", "Paris"], "chunks": ["paris", "I", "me", "a dog", "A dog"], "tokens": []}
    pipeline = SimpleNamespace(pipe=lambda texts: [Document(found) for _ in texts])
    assert official_candidates(pipeline, ["x"]) == [("Paris", "Paris", "me", "a dog")]


def test_tokens_are_those_of_the_spacy_that_the_scripts_ask_for():
    tokens = "32-bit machine state art"  # "is", "n't", "of" and "the" are stop words
    columns, _ = OfficialMetrics().score(["The 32-bit machine isn't state-of-the-art!"], [tokens])
    assert columns["official_f1"].tolist() == [1.0]
    columns, _ = OfficialMetrics().score(["", "the", "river"], ["river", "the", ""])
    assert columns["official_f1"].tolist() == [0, 0, 0], "texts without tokens share nothing"


def test_bleu_without_any_match_is_smoothed_and_short_responses_have_none():
    zero, smoothed = OfficialMetrics().score(["x y", "x y z w"], ["a b c d"] * 2)[0]["official_bleu"]
    assert zero == 0 and smoothed == pytest.approx(7.986788803078408)  # sacrebleu 1.4.14's


def test_bertscore_is_rescaled_and_every_word_begins_with_a_space(tiny_bert):
    plain = BertScore.load(str(tiny_bert), device="cpu")
    scaled = RescaledBertScore.of(plain, 0.2)
    texts, others = ["the river is long", ""], ["a long river", "music"]
    f1 = plain.score(texts, others)["bertscore_f1"]
    assert scaled.score(texts, others) == pytest.approx((f1 - 0.2) / 0.8)
    assert scaled.scorer.prefix == " " and plain.prefix == ""


def test_the_published_baseline_is_bert_scores():
    folder = Path(pytest.importorskip("bert_score").__file__).parent / "rescale_baseline" / "en"
    for (encoder, layer), f1 in BASELINES.items():
        lines = (folder / f"{encoder}.tsv").read_text().splitlines()
        assert float(lines[layer + 1].split(",")[3]) == f1 and lines[layer + 1].startswith(f"{layer},")
