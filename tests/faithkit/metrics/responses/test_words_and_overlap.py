"""Metrics of words and n-grams, worked out by hand and against the libraries that others use."""

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from faithkit.metrics.responses.ngrams import (
    bleu,
    bleu_counts,
    corpus_bleu,
    distinct_n,
    extractive_fragments,
    knowledge_f1,
    rouge,
    tokenize,
)
from faithkit.statistics.bootstrap import Groups, bootstrap
from faithkit.statistics.metric import NUMBER, SIMILARITY
from faithkit.words import greedy_runs, lcs_length

TOKENS = st.lists(st.sampled_from("abcd"), max_size=24)


def naive_runs(response, knowledge):
    """Tries every place of the knowledge for every place of the response."""
    runs, i = [], 0
    while i < len(response):
        longest = 0
        for j in range(len(knowledge)):
            n = 0
            while i + n < len(response) and j + n < len(knowledge) and response[i + n] == knowledge[j + n]:
                n += 1
            longest = max(longest, n)
        if longest:
            runs.append(longest)
        i += max(1, longest)
    return runs


def naive_lcs(first, second):
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(TOKENS, TOKENS)
def test_fragments_are_the_longest_from_the_left(response, knowledge):
    assert greedy_runs(response, knowledge) == naive_runs(response, knowledge)


@given(TOKENS, TOKENS)
def test_the_common_subsequence_is_the_longest(first, second):
    assert lcs_length(first, second) == naive_lcs(first, second)


def test_density_and_coverage_by_hand():
    knowledge = "The Danube flows through ten countries."
    found = extractive_fragments(["the danube flows far", knowledge, "nothing else", ""], [knowledge] * 4)
    assert found["density"].tolist() == pytest.approx([9 / 4, 7.0, 0.0, 0.0])
    assert found["coverage"].tolist() == pytest.approx([3 / 4, 1.0, 0.0, 0.0])


def test_distinct_counts_each_ngram_once_over_all_responses():
    groups = Groups.of(["a", "b", "b"])
    statistic = distinct_n(groups, ["a b a", "a b", "c"])
    values = statistic(np.ones((1, 2)))
    assert values["distinct_1"][0] == pytest.approx(3 / 6) and values["distinct_2"][0] == pytest.approx(2 / 3)
    without_first = statistic(np.array([[0.0, 1.0]]))  # "a b", "c": no n-gram of the rest is lost but "b a"
    assert without_first["distinct_1"][0] == pytest.approx(3 / 3)
    assert without_first["distinct_2"][0] == pytest.approx(1 / 1)
    assert np.isnan(distinct_n(groups, ["", "!", ""])(np.ones((1, 2)))["distinct_1"]).all(), "without any word"


def test_the_interval_of_distinct_lies_around_its_value():
    rng = np.random.default_rng(0)
    responses = [" ".join(f"w{i}" for i in rng.zipf(1.5, 12) % 500) for _ in range(300)]
    groups = Groups.of(map(str, range(300)))
    metric = bootstrap(groups, distinct_n(groups, responses), kinds=SIMILARITY).metrics["distinct_2"]
    assert metric.low < metric.value - 0.002 and metric.high > metric.value + 0.002


SENTENCES = st.lists(st.sampled_from("the The cat sat 3.5 on. mat, a-b 1,000 1990- &amp; -\n é ! don't".split(" ")))
TEXTS = SENTENCES.map(" ".join) | st.text(max_size=30)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6)


def test_knowledge_f1_counts_words_as_often_as_they_stand_on_both_sides():
    found = knowledge_f1(["cat cat dog", "the is", "Mat!", ""], ["a cat and a bird", "the is", "mat", "mat"])
    assert found.tolist() == pytest.approx([2 * 1 / 5, 0.0, 1.0, 0.0])


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
