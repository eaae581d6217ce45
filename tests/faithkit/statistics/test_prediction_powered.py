"""Rates from a detector's verdicts and a few labels: as PPI++ has them, and right as often as they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.settings.config_files import RANDOM, SAMPLING_RULES, UNCERTAINTY
from faithkit.statistics.prediction_powered import (
    LabelSums,
    Verdicts,
    Wave,
    estimate_rate,
    inclusion_probabilities,
    plan_labels,
    read_waves,
    sample_rows,
    write_waves,
)
from tests.faithkit.statistics.estimate_coverage import coverage, responses

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
def test_each_is_chosen_as_often_as_is_told_also_among_the_first_of_the_chosen(rule):
    taken, first, places = np.zeros(120), np.zeros(120), []
    for seed in range(2000):
        chosen, wave = sample_rows(SCORES, NONE, 30, rule, seed=seed)
        taken[chosen] += 1
        first[chosen[:10]] += 1
        places.append(chosen[:10].mean())
    chance, error = inclusion_probabilities([wave], SCORES), np.sqrt(0.25 * 0.75 / 2000)
    assert np.abs(taken / 2000 - chance).max() < 4 * error and np.abs(first / 2000 - chance / 3).max() < 4 * error
    assert (chance[60] > 1.5 * chance[0]) == (rule == UNCERTAINTY) and abs(np.mean(places) - 59.5) < 1


def test_after_two_waves_each_is_labelled_as_often_as_is_told():
    taken = np.zeros(120)
    for seed in range(2000):
        first, one = sample_rows(SCORES, NONE, 20, RANDOM, seed=seed)
        labelled = np.isin(np.arange(120), first)
        second, two = sample_rows(SCORES, labelled, 30, UNCERTAINTY, seed=seed + 10_000)
        taken[first] += 1
        taken[second] += 1
    assert np.abs(taken / 2000 - inclusion_probabilities([one, two], SCORES)).max() < 0.05


def test_waves_are_read_as_they_were_written():
    waves = [Wave(RANDOM, 0.1), Wave(UNCERTAINTY, 1 / 3)]
    assert read_waves(write_waves(waves)) == waves
    for text in ("random", "guess 0.2", "random -1", "random x", ""):
        with pytest.raises(ValueError):
            read_waves(text)


# Of ppi_mean_pointestimate and ppi_mean_ci of ppi-python 0.2.3 on the rows of `sample`, by the weight of the detector.
PPI = {
    0.0: (0.3333333333333333, 0.21095503605791083, 0.4557116306087558),
    0.4: (0.32864105160861345, 0.2141954424609681, 0.4430866607562588),
    1.0: (0.3216026290215334, 0.2062708403844446, 0.43693441765862223),
}
PPI_TUNED = 0.3264869940185532


def sample():
    """400 responses with scores and labels of 57."""
    random = np.random.default_rng(7)
    truth = (random.random(400) < 0.3).astype(float)
    scores = np.round(np.clip(0.25 + 0.3 * truth + random.normal(0, 0.3, 400), 0, 1), 3)
    labelled = np.arange(400) % 7 == 3
    return truth, scores, labelled


def verdicts(truth, scores, labelled, groups=None, probability=None):
    names = [f"{row:04d}" for row in range(len(truth))] if groups is None else groups
    return Verdicts.of(scores, np.where(labelled, truth, np.nan), names, probability)


@pytest.mark.parametrize("weight", PPI)
def test_the_rate_is_that_of_ppi_python(weight):
    truth, scores, labelled = sample()
    theirs, low, high = PPI[weight]
    # Theirs weighs the detector's mean over the others, ours over all responses: the same estimate at l N / (N - n).
    found = estimate_rate(verdicts(truth, scores, labelled), power=weight * 400 / (400 - labelled.sum()))
    assert found.metric.value == pytest.approx(theirs, abs=1e-12)
    # Theirs is a normal interval, ours Student's t on the log-odds scale: near it, and no narrower.
    assert found.metric.high - found.metric.low == pytest.approx(high - low, rel=0.06)
    assert found.metric.high - found.metric.low > high - low


def test_the_tuned_rate_is_that_of_ppi_python():
    found = estimate_rate(verdicts(*sample()))
    assert found.metric.value == pytest.approx(PPI_TUNED, abs=1e-4)
    assert not found.is_exact and 0 < found.power < 1


def test_a_detector_that_follows_the_labels_makes_the_interval_narrower():
    truth, _, labelled = sample()
    widths = []
    for noise in (0.1, 0.5, 5.0):
        scores = np.clip(truth + np.random.default_rng(0).normal(0, noise, 400), 0, 1)
        metric = estimate_rate(verdicts(truth, scores, labelled)).metric
        widths.append(metric.high - metric.low)
    alone = estimate_rate(verdicts(truth, truth, labelled), power=0.0).metric
    assert widths == sorted(widths)
    assert widths[0] < 0.6 * (alone.high - alone.low)
    assert widths[2] < 1.1 * (alone.high - alone.low)


def test_labels_of_the_same_dialogues_count_for_less():
    truth, scores, _ = sample()
    truth = np.repeat(truth[::10], 10)  # ten responses of a dialogue are alike
    labelled = np.arange(400) < 300
    alone = estimate_rate(verdicts(truth, scores, labelled)).metric
    together = estimate_rate(verdicts(truth, scores, labelled, [f"{row // 10:03d}" for row in range(400)])).metric
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert together.value == alone.value


@pytest.mark.parametrize(("hallucinated", "faithful"), [(4, 40), (40, 4), (0, 30), (30, 0), (9, 10)])
def test_few_labels_get_an_exact_interval_of_themselves(hallucinated, faithful):
    labels = np.concatenate([np.ones(hallucinated), np.zeros(faithful), np.full(500, np.nan)])
    scores = np.nan_to_num(labels, nan=0.4)
    found = estimate_rate(Verdicts.of(scores, labels, [f"{row:04d}" for row in range(len(labels))]))
    assert found.is_exact and found.power == 0
    assert found.metric.value == pytest.approx(hallucinated / (hallucinated + faithful))
    assert 0 <= found.metric.low < found.metric.high <= 1
    if not hallucinated:
        assert found.metric.high == pytest.approx(1 - 0.025 ** (1 / faithful))  # Clopper and Pearson's


def far_off(share: float) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """100 labels of 2,000 responses, of which a detector says far more on the labelled ones than on the others."""
    random = np.random.default_rng(0)
    scores, labels = random.beta(0.5, 0.5, 2000), np.full(2000, np.nan)
    chosen = random.permutation(2000)[:100]
    labels[chosen] = np.arange(100) < 100 * share
    scores[chosen] = np.minimum(1, scores[chosen] + (0.2 if share < 0.5 else -0.2)).clip(0)
    return scores, labels, [f"{row:04d}" for row in range(2000)]


@pytest.mark.parametrize("share", [0.05, 0.95])
def test_an_estimate_beyond_0_or_1_is_the_labels_alone_with_their_own_interval(share):
    rows = Verdicts.of(*far_off(share))
    found, alone = estimate_rate(rows, power=1.0), estimate_rate(rows, power=0.0)
    assert found.is_beyond and not found.is_exact and found.power == 0
    assert found.metric == alone.metric and found.metric.value == pytest.approx(share)
    assert not alone.is_beyond and found.metric.low < share < found.metric.high


def test_labels_chosen_by_uncertainty_give_no_bias_where_their_chance_is_told():
    random = np.random.default_rng(1)
    truth, scores, _ = responses(random, 0.3, "over-eager")
    chance = None
    told, untold = [], []
    for seed in range(100):
        chosen, wave = sample_rows(scores, np.zeros(len(truth), bool), 200, UNCERTAINTY, seed=seed)
        labelled = np.isin(np.arange(len(truth)), chosen)
        chance = inclusion_probabilities([wave], scores)
        told.append(estimate_rate(verdicts(truth, scores, labelled, probability=chance), power=0.0).metric.value)
        untold.append(estimate_rate(verdicts(truth, scores, labelled), power=0.0).metric.value)
    assert abs(np.mean(told) - truth.mean()) < 0.006
    assert abs(np.mean(untold) - truth.mean()) > 0.02


@pytest.mark.parametrize("width", [0.15, 0.1])
def test_as_many_labels_as_planned_give_the_width_that_was_wanted(width):
    random = np.random.default_rng(2)
    truth, scores, _ = responses(random, 0.3, "middling")
    order = random.permutation(len(truth))
    first = np.isin(np.arange(len(truth)), order[:80])
    plan = plan_labels(LabelSums.of(verdicts(truth, scores, first)), width)
    then = np.isin(np.arange(len(truth)), order[: plan.num_labels])
    metric = estimate_rate(verdicts(truth, scores, then)).metric
    assert metric.high - metric.low == pytest.approx(width, rel=0.2)


def test_a_width_that_no_number_of_labels_reaches_is_said():
    plan = plan_labels(LabelSums.of(verdicts(*sample())), 0.01)
    assert plan.num_labels is None
    assert 0.07 < plan.least_width < 0.11  # of 400 responses


def test_wrong_chances_no_labels_and_too_few_rows_are_refused():
    with pytest.raises(UserError, match="121 responses are to be labelled, and 120 are left"):
        sample_rows(SCORES, NONE, 121, RANDOM, seed=0)
    truth, scores, labelled = sample()
    with pytest.raises(UserError, match="needs a probability above 0"):
        verdicts(truth, scores, labelled, probability=np.zeros(400))
    with pytest.raises(UserError, match="no response is labelled"):
        estimate_rate(verdicts(truth, scores, np.zeros(400, bool)))


@pytest.mark.slow
@pytest.mark.parametrize("num_labels", [20, 50, 200])
@pytest.mark.parametrize("detector", ["good", "over-eager", "useless"])
def test_the_interval_holds_the_truth_as_often_as_it_says(detector, num_labels):
    found = coverage(0.3, detector, num_labels, rounds=400)
    assert found["detector alone"][0] < 0.92
    for way in ("prediction-powered", "labels by uncertainty"):
        share, width, _ = found[way]
        assert share >= 0.925, way  # 95% less 2.3 standard errors of 400 rounds
        assert width <= 1.1 * found["labels alone"][1], way
    if detector == "good" and num_labels >= 50:
        assert found["prediction-powered"][1] < 0.6 * found["labels alone"][1]
