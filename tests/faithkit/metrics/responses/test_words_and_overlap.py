"""Metrics of words and n-grams, worked out by hand and against the libraries that others use."""

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from faithkit.metrics.responses.ngrams import answer_f1, bleu, bleu_counts, corpus_bleu, knowledge_f1, rouge, tokenize
from faithkit.metrics.responses.q2 import clean_answer
from faithkit.statistics.bootstrap import Groups, bootstrap
from faithkit.statistics.metric import NUMBER

SENTENCES = st.lists(st.sampled_from("the The cat sat 3.5 on. mat, a-b 1,000 1990- &amp; -\n é ! don't".split(" ")))
TEXTS = SENTENCES.map(" ".join) | st.text(max_size=30)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6)


def test_knowledge_f1_counts_words_as_often_as_they_stand_on_both_sides():
    found = knowledge_f1(["cat cat dog", "the is", "Mat!", ""], ["a cat and a bird", "the is", "mat", "mat"])
    assert found.tolist() == pytest.approx([2 * 1 / 5, 0.0, 1.0, 0.0])


def test_answers_are_compared_without_articles_and_case():
    found = answer_f1(["The red river", "1990"], ["a red river", "in 1990"], clean_answer)
    assert found.tolist() == pytest.approx([1.0, 2 / 3])


@given(PAIRS)
def test_bleu_is_sacrebleus_for_the_corpus_and_for_every_sentence(pairs):
    said, gold = map(list, zip(*pairs, strict=True))
    counts = bleu_counts(said, gold)
    corpus = sacrebleu.corpus_bleu(said, [gold]).score
    assert bleu(counts.sum(axis=0, keepdims=True))[0] == pytest.approx(corpus, abs=1e-6)
    sentences = [sacrebleu.sentence_bleu(one, [other]).score for one, other in pairs]
    assert bleu(counts, effective_order=True).tolist() == pytest.approx(sentences, abs=1e-6)


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_many_texts_in_one_call_are_tokenised_as_each_alone(texts):
    assert tokenize(texts) == [Tokenizer13a()(text.rstrip()).split() for text in texts]


@given(PAIRS)
def test_rouge_is_rouge_scores(pairs):
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    found = rouge(*map(list, zip(*pairs, strict=True)))
    expected = [scorer.score(gold, said) for said, gold in pairs]
    for ours, theirs in (("rouge_1", "rouge1"), ("rouge_2", "rouge2"), ("rouge_l", "rougeL")):
        assert found[ours].tolist() == pytest.approx([scores[theirs].fmeasure for scores in expected], abs=1e-6)


def test_resampled_bleu_is_the_bleu_of_the_drawn_dialogues():
    said = ["the cat sat on the mat today", "a dog ran in the park there", "no match here at all friend"]
    gold = ["the cat sat on a mat today", "a dog ran in a park", "something quite different"]
    groups, counts = Groups.of(["a", "b", "b"]), bleu_counts(said, gold)
    drawn = corpus_bleu(groups, counts)(np.array([[2.0, 1.0], [0.0, 1.0]]))["bleu"]
    twice = sacrebleu.corpus_bleu([said[0], *said], [[gold[0], *gold]]).score
    alone = sacrebleu.corpus_bleu(said[1:], [gold[1:]]).score
    assert drawn.tolist() == pytest.approx([twice, alone], abs=1e-6)
    metric = bootstrap(groups, corpus_bleu(groups, counts), kinds=NUMBER, num_resamples=50).metrics["bleu"]
    assert metric.low <= metric.value <= metric.high
