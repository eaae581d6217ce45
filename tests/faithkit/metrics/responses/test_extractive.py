"""Fragments, subsequences, distinct n-grams: quick ways against naive ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.metrics.responses.ngrams import distinct_n, extractive_fragments
from faithkit.statistics.bootstrap import Groups, bootstrap
from faithkit.statistics.metric import SIMILARITY
from faithkit.token_overlap import greedy_runs, lcs_length

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


def test_the_interval_of_distinct_lies_around_its_value():
    rng = np.random.default_rng(0)
    responses = [" ".join(f"w{i}" for i in rng.zipf(1.5, 12) % 500) for _ in range(300)]
    metric = bootstrap(
        groups := Groups.of(map(str, range(300))), distinct_n(groups, responses), kinds=SIMILARITY
    ).metrics["distinct_2"]
    assert metric.low < metric.value - 0.002 and metric.high > metric.value + 0.002


def test_responses_without_words_have_no_distinct_share():
    groups = Groups.of(["a", "b"])
    assert np.isnan(distinct_n(groups, ["", "!"])(np.ones((1, 2)))["distinct_1"]).all()
