from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from faithkit.errors import UserError
from faithkit.metrics.classification import score_outcomes
from faithkit.metrics.outcomes import Outcomes
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic, paired_difference
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import MAX_GROUPS, corrected_interval, measure_spreads


def mean_of(values, names):
    groups = Groups.of(names)
    return groups, mean_statistic(groups, {"mean": values})


def test_group_sums_are_those_of_a_loop():
    groups = Groups.of(["b", "a", "b", "c"])
    assert groups.sums([1, 2, 3, 4]).tolist() == [2, 4, 4]
    assert groups.sums(np.array([[1, 0], [2, 1], [3, 0], [4, 1]])).tolist() == [[2, 1], [4, 0], [4, 1]]


def test_the_same_seed_gives_the_same_interval_and_another_a_near_one():
    rng = np.random.default_rng(0)
    groups, statistic = mean_of(rng.random(1200), [str(row % 600) for row in range(1200)])
    first, again = (bootstrap(groups, statistic, seed=1).metrics["mean"] for _ in range(2))
    other = bootstrap(groups, statistic, seed=2).metrics["mean"]
    assert first == again
    assert first != other
    assert first.low == pytest.approx(other.low, abs=0.01)


def test_the_interval_is_the_textbook_one_where_rows_are_independent():
    values = np.random.default_rng(0).normal(size=2000)
    found = bootstrap(*mean_of(values, map(str, range(2000)))).metrics["mean"]
    error = 1.96 * values.std() / np.sqrt(2000)
    assert (found.low, found.high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.006)
    assert found.n == 2000


@pytest.mark.parametrize(("count", "is_student"), [(2, True), (MAX_GROUPS, True), (MAX_GROUPS + 1, False)])
def test_few_groups_have_the_interval_of_student(count, is_student):
    values = np.random.default_rng(0).normal(size=count)
    found = bootstrap(*mean_of(values, map(str, range(count))), num_resamples=200).metrics["mean"]
    half = stats.t.ppf(0.975, count - 1) * values.std(ddof=1) / np.sqrt(count)
    equals = (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), rel=1e-9)
    assert equals == is_student


def test_one_group_has_an_interval_without_width():
    found = bootstrap(*mean_of([0.2, 0.6], ["a", "a"]), num_resamples=50)
    assert (found.metrics["mean"].low, found.metrics["mean"].high) == (0.4, 0.4)
    assert "its intervals have no width" in found.notes[-1]


def test_a_debiased_value_is_below_its_own_and_not_below_zero():
    noise = np.random.default_rng(0).normal(size=600)
    noise -= noise.mean()
    groups = Groups.of(map(str, range(600)))

    def error(weights):
        return {"error": np.abs(weights @ noise / 600), "large": np.abs(weights @ (noise + 3) / 600)}

    found = bootstrap(groups, error, debiased=("error", "large"), num_resamples=400).metrics
    assert found["error_debiased"].value == 0 < found["error_debiased"].high
    assert found["large_debiased"].value == pytest.approx(found["large"].value, rel=0.01)


def test_rows_that_say_the_same_count_once():
    values = np.random.default_rng(0).normal(size=50)
    alone = bootstrap(*mean_of(values, map(str, range(50)))).metrics["mean"]
    copied = bootstrap(*mean_of(np.repeat(values, 40), np.repeat(np.arange(50), 40).astype(str))).metrics["mean"]
    apart = bootstrap(*mean_of(np.repeat(values, 40), map(str, range(2000)))).metrics["mean"]
    assert copied.high - copied.low == pytest.approx(alone.high - alone.low, rel=0.1)
    assert apart.high - apart.low < 0.3 * (copied.high - copied.low)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        shifts, names = rng.normal(size=60), rng.integers(60, size=240)
        found = bootstrap(*mean_of(shifts[names] + rng.normal(size=240), names.astype(str)), num_resamples=200)
        held += found.metrics["mean"].low <= 0 <= found.metrics["mean"].high
    assert 0.89 <= held / 200 <= 0.99


def test_what_is_not_defined_is_left_out_and_said():
    groups = Groups.of(["a", "b"])
    found = bootstrap(
        groups,
        lambda weights: {
            "never": np.full(len(weights), np.nan),
            "mostly": np.where(weights[:, 0] > 0, weights[:, 0], np.nan),
        },
        num_resamples=100,
    )
    assert set(found.metrics) == {"mostly"}
    assert "never is left out" in found.notes[0]
    assert "resamples do not define it" in found.notes[1]
    assert "only 2 groups" in found.notes[2]


def test_a_biased_statistic_still_lies_in_its_interval():
    groups = Groups.of(map(str, range(600)))
    found = bootstrap(groups, lambda weights: {"spread": np.abs(weights - 1).mean(axis=1)}).metrics["spread"]
    assert found.low == found.value == 0 < found.high


def test_a_paired_test_is_level_where_nothing_differs_and_sees_what_does():
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(150):
        names = np.arange(120).astype(str)
        both = rng.normal(size=120) * 5  # what is hard is hard for both: pairing takes it out
        groups, first = mean_of(both + rng.normal(size=120), names)
        _, second = mean_of(both + rng.normal(size=120), names)
        alarms += paired_difference(groups, first, second, num_resamples=200)["mean"].p_value < 0.05
    assert alarms <= 18  # 7.5 expected
    _, better = mean_of(both + 1 + rng.normal(size=120), names)
    found = paired_difference(groups, better, second, num_resamples=999)["mean"]
    assert found.p_value < 1e-9
    assert 0.5 < found.low < found.value < found.high < 1.5


def test_a_difference_over_many_groups_has_about_students_p_value():
    rng = np.random.default_rng(0)
    groups = Groups.of(map(str, range(600)))
    for shift in (0.0, 0.08, -0.08):
        values = rng.normal(size=600)
        values += shift - values.mean()
        both = [mean_statistic(groups, {"mean": column}) for column in (values, np.zeros(600))]
        found = paired_difference(groups, *both, num_resamples=2000)["mean"]
        assert found.value == pytest.approx(shift) and found.low < found.value < found.high
        assert found.p_value == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.03)
    never = paired_difference(groups, mean_statistic(groups, {"mean": np.ones(600)}), both[1], num_resamples=99)["mean"]
    assert never.p_value == pytest.approx(0.02), "twice 1 of 100: never 0"


def test_an_interval_is_cut_to_what_a_metric_can_be():
    assert Metric(value=0.5, low=-2.0, high=3.0).within(-1, 1) == Metric(value=0.5, low=-1, high=1)
    for plain in (Metric(value=5.0), Metric(value=0.5, low=0.25)):
        assert plain.within(-1, 1) == plain, "there is none to cut"


def test_of_many_groups_a_share_near_1_is_held_too():
    rng, held = np.random.default_rng(0), 0
    groups, truth = Groups.of(f"{row:03}" for row in range(600)), 0.99979  # two normals five deviations apart
    for _ in range(60):
        gold = (rng.random(600) < 0.3).astype(np.int8)
        scores = 1 / (1 + np.exp(2.5 - 5 * gold - rng.normal(size=600)))
        found = score_outcomes(Outcomes(gold=gold, called=gold, scores=scores, groups=groups), num_resamples=200)
        held += found.metrics["auroc"].low <= truth <= found.metrics["auroc"].high
    assert held >= 55, "percentiles hold it in 81% of all cases"


def test_mistakes_are_told():
    groups, statistic = mean_of([1.0], ["a"])
    with pytest.raises(UserError, match="num_resamples is 0"):
        bootstrap(groups, statistic, num_resamples=0)
    with pytest.raises(ValueError, match="finite"):
        Metric(value=float("nan"))


def test_as_many_groups_carry_an_error_as_move_the_value():
    def alike(weights):
        return {"alike": weights @ np.tile([1.0, -1.0], 10), "alone": weights @ np.eye(20)[0]}

    spreads = measure_spreads(alike, 20)
    assert spreads["alike"].num_carrying == pytest.approx(20)
    assert 1 < spreads["alone"].num_carrying < 1.2
    width = {name: np.subtract(*corrected_interval(0.5, replace(spread, error=1))) for name, spread in spreads.items()}
    assert -width["alike"] == pytest.approx(2 * 2.093, abs=1e-3) and -width["alone"] > 20
