"""Which responses are labelled next: as many as asked, each with the probability that is told."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.choices import RANDOM, SAMPLING_RULES, UNCERTAINTY
from faithkit.errors import UserError
from faithkit.statistics.label_sampling import (
    Wave,
    inclusion_probabilities,
    read_waves,
    sample_rows,
    write_waves,
)

SCORES = np.linspace(0.001, 0.999, 120)
NONE = np.zeros(120, bool)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=60),
    st.sampled_from(SAMPLING_RULES),
    st.integers(1, 60),
    st.integers(0, 1000),
)
def test_as_many_as_asked_are_chosen_each_once_and_none_again(scores, rule, count, seed):
    labelled = np.arange(len(scores)) % 3 == 1
    count = min(count, int((~labelled).sum()))
    chosen, wave = sample_rows(np.array(scores), labelled, count, rule, seed=seed)
    assert len(chosen) == len(set(chosen.tolist())) == count
    assert not labelled[chosen].any()
    chance = inclusion_probabilities([wave], np.array(scores))
    assert ((chance > 0) & (chance <= 1 + 1e-12)).all()
    assert chance[~labelled].sum() == pytest.approx(count, rel=1e-6) or count == (~labelled).sum()


@pytest.mark.parametrize("rule", SAMPLING_RULES)
def test_each_is_chosen_as_often_as_is_told(rule):
    taken = np.zeros(120)
    for seed in range(2000):
        chosen, wave = sample_rows(SCORES, NONE, 30, rule, seed=seed)
        taken[chosen] += 1
    chance = inclusion_probabilities([wave], SCORES)
    assert np.abs(taken / 2000 - chance).max() < 4 * np.sqrt(0.25 * 0.75 / 2000)
    assert (chance[60] > 1.5 * chance[0]) == (rule == UNCERTAINTY)


def test_after_two_waves_each_is_labelled_as_often_as_is_told():
    taken = np.zeros(120)
    for seed in range(2000):
        first, one = sample_rows(SCORES, NONE, 20, RANDOM, seed=seed)
        labelled = np.isin(np.arange(120), first)
        second, two = sample_rows(SCORES, labelled, 30, UNCERTAINTY, seed=seed + 10_000)
        taken[first] += 1
        taken[second] += 1
    assert np.abs(taken / 2000 - inclusion_probabilities([one, two], SCORES)).max() < 0.05


def test_the_first_of_the_chosen_are_a_sample_by_themselves():
    taken, places = np.zeros(120), []
    for seed in range(2000):
        chosen, _ = sample_rows(SCORES, NONE, 30, UNCERTAINTY, seed=seed)
        taken[chosen[:10]] += 1
        places.append(chosen[:10].mean())
    chance = inclusion_probabilities([sample_rows(SCORES, NONE, 30, UNCERTAINTY, seed=0)[1]], SCORES) / 3
    assert np.abs(taken / 2000 - chance).max() < 4 * np.sqrt(0.25 * 0.75 / 2000)
    assert abs(np.mean(places) - 59.5) < 1


def test_waves_are_read_as_they_were_written():
    waves = [Wave(RANDOM, 0.1), Wave(UNCERTAINTY, 1 / 3)]
    assert read_waves(write_waves(waves)) == waves
    for text in ("random", "guess 0.2", "random -1", "random x", ""):
        with pytest.raises(ValueError):
            read_waves(text)


def test_more_than_are_left_are_refused():
    with pytest.raises(UserError, match="121 responses are to be labelled, and 120 are left"):
        sample_rows(SCORES, NONE, 121, RANDOM, seed=0)
