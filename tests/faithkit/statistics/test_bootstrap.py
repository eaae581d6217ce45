from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from faithkit.errors import UserError
from faithkit.metrics.classification import Outcomes, classification_metrics
from faithkit.statistics.bootstrap import Evaluation, Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import CALIBRATION_ERROR, NUMBER, PROPORTION, Metric, average_runs
from faithkit.statistics.spread import MAX_GROUPS


def mean_of(values, names):
    groups = Groups.of(names)
    return groups, mean_statistic(groups, {"mean": values})


def interval_of(values, names, **options) -> Metric:
    return bootstrap(*mean_of(values, names), kinds=NUMBER, **options).metrics["mean"]


def test_the_same_seed_gives_the_same_interval_and_another_a_near_one():
    values, names = np.random.default_rng(0).random(1200), [str(row % 600) for row in range(1200)]
    first, again, other = (interval_of(values, names, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first.low == pytest.approx(other.low, abs=0.01)


def test_the_interval_is_the_textbook_one_where_rows_are_independent():
    values = np.random.default_rng(0).normal(size=2000)
    found = interval_of(values, map(str, range(2000)))
    error = 1.96 * values.std() / np.sqrt(2000)
    assert (found.low, found.high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.006)
    assert found.n == 2000


@pytest.mark.parametrize(("count", "is_exact"), [(2, True), (MAX_GROUPS, True), (MAX_GROUPS + 1, False)])
def test_few_groups_have_exactly_the_interval_of_student(count, is_exact):
    values = np.random.default_rng(0).normal(size=count)
    found = interval_of(values, map(str, range(count)), num_resamples=200)
    half = stats.t.ppf(0.975, count - 1) * values.std(ddof=1) / np.sqrt(count)
    expected = (values.mean() - half, values.mean() + half)
    assert ((found.low, found.high) == pytest.approx(expected, rel=1e-9)) == is_exact


def test_few_groups_are_noted_and_one_has_an_interval_without_width():
    found = bootstrap(*mean_of([0.2, 0.6], ["a", "a"]), kinds=NUMBER, num_resamples=50)
    assert (found.metrics["mean"].low, found.metrics["mean"].high) == (0.4, 0.4)
    assert "its intervals show nothing" in found.notes[-1]
    few, many = (
        bootstrap(*mean_of(np.arange(count), map(str, range(count))), kinds=NUMBER, num_resamples=9).notes
        for count in (29, 30)
    )
    assert "only 29 groups" in few[-1] and not many


def test_a_debiased_value_is_below_the_value_and_within_the_range():
    noise = np.random.default_rng(0).normal(size=600)
    noise -= noise.mean()
    groups = Groups.of(map(str, range(600)))

    def error(weights):
        return {"error": np.abs(weights @ noise / 600), "large": np.abs(weights @ (noise + 3) / 600)}

    free = replace(CALIBRATION_ERROR, high=float("inf"))
    found = bootstrap(groups, error, kinds=free, num_resamples=400).metrics
    assert found["error_debiased"].value == 0 < found["error_debiased"].high
    assert found["large_debiased"].value == pytest.approx(found["large"].value, rel=0.01)


@pytest.mark.parametrize("count", [20, 600])
def test_a_debiased_share_stays_a_share(count):
    groups, values = Groups.of(map(str, range(count))), np.linspace(0, 1, count)

    def ends(weights):
        seen = np.where(weights > 0, values, np.nan)
        return {"most": np.nanmax(seen, axis=1), "least": np.nanmin(seen, axis=1)}

    found = bootstrap(groups, ends, kinds=CALIBRATION_ERROR, num_resamples=200).metrics
    assert found["most_debiased"].value == 1 and found["least_debiased"].value == 0
    for metric in found.values():
        assert 0 <= metric.low <= metric.value <= metric.high <= 1
    free = bootstrap(groups, ends, kinds=replace(CALIBRATION_ERROR, high=float("inf")), num_resamples=200).metrics
    assert free["most_debiased"].value > 1


def test_proportions_of_many_groups_stay_within_0_and_1():
    groups = Groups.of(map(str, range(600)))

    def proportion(column):
        statistic = mean_statistic(groups, {"share": column})
        return bootstrap(groups, statistic, kinds=PROPORTION, num_resamples=300).metrics["share"]

    rare, usual, every = (proportion(column) for column in (np.arange(600) == 0, np.arange(600) != 0, np.ones(600)))
    assert 0 < rare.low < rare.value < rare.high < 0.02
    assert 0.98 < usual.low < usual.value < usual.high < 1
    assert every.low == pytest.approx(0.025 ** (1 / 600)) and every.value == every.high == 1


def test_rows_of_one_group_that_agree_count_once():
    values = np.random.default_rng(0).normal(size=50)
    alone = interval_of(values, map(str, range(50)))
    copied = interval_of(np.repeat(values, 40), np.repeat(np.arange(50), 40).astype(str))
    apart = interval_of(np.repeat(values, 40), map(str, range(2000)))
    assert copied.high - copied.low == pytest.approx(alone.high - alone.low, rel=0.1)
    assert apart.high - apart.low < 0.3 * (copied.high - copied.low)


def test_intervals_cover_the_truth_about_as_often_as_promised():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        shifts, names = rng.normal(size=60), rng.integers(60, size=240)
        found = interval_of(shifts[names] + rng.normal(size=240), names.astype(str), num_resamples=200)
        covered += found.low <= 0 <= found.high
    assert 0.89 <= covered / 200 <= 0.99


def test_of_many_groups_a_proportion_near_1_is_covered_too():
    rng, covered = np.random.default_rng(0), 0
    groups, truth = Groups.of(f"{row:03}" for row in range(600)), 0.99979  # two normals five deviations apart
    for _ in range(60):
        gold = (rng.random(600) < 0.3).astype(np.int8)
        scores = 1 / (1 + np.exp(2.5 - 5 * gold - rng.normal(size=600)))
        outcomes = Outcomes(gold=gold, called=gold, scores=scores, groups=groups)
        auroc = classification_metrics(outcomes, num_resamples=200).metrics["auroc"]
        covered += auroc.low <= truth <= auroc.high
    assert covered >= 55, "percentiles cover it in 81% of all cases"


def test_undefined_values_are_left_out_with_a_note():
    def statistic(weights):
        mostly = np.where(weights[:, 0] > 0, weights[:, 0], np.nan)
        return {"never": np.full(len(weights), np.nan), "mostly": mostly}

    found = bootstrap(Groups.of(["a", "b"]), statistic, kinds=NUMBER, num_resamples=100)
    assert set(found.metrics) == {"mostly"}
    assert "never is left out" in found.notes[0] and "resamples do not define it" in found.notes[1]


def subtract(groups, first, second, *, num_resamples):
    one, other = (Evaluation(groups=groups, statistic=each, kinds=NUMBER) for each in (first, second))
    return one.subtract(other, num_resamples=num_resamples)


def test_a_paired_test_is_level_where_nothing_differs_and_finds_differences():
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(150):
        names = np.arange(120).astype(str)
        both = rng.normal(size=120) * 5  # hard rows are hard for both: pairing removes this
        groups, first = mean_of(both + rng.normal(size=120), names)
        _, second = mean_of(both + rng.normal(size=120), names)
        alarms += subtract(groups, first, second, num_resamples=200)["mean"].p_value < 0.05
    assert alarms <= 18  # 7.5 expected
    _, better = mean_of(both + 1 + rng.normal(size=120), names)
    found = subtract(groups, better, second, num_resamples=999)["mean"]
    assert found.p_value < 1e-9
    assert 0.5 < found.low < found.value < found.high < 1.5


def test_a_difference_over_many_groups_has_about_students_p_value():
    rng = np.random.default_rng(0)
    groups = Groups.of(map(str, range(600)))
    for shift in (0.0, 0.08, -0.08):
        values = rng.normal(size=600)
        values += shift - values.mean()
        both = [mean_statistic(groups, {"mean": column}) for column in (values, np.zeros(600))]
        found = subtract(groups, *both, num_resamples=2000)["mean"]
        assert found.value == pytest.approx(shift) and found.low < found.value < found.high
        assert found.p_value == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.03)


def test_several_trainings_have_students_interval_and_one_has_none():
    assert average_runs([0.7]) == Metric(value=0.7)
    found = average_runs([0.5, 0.9, 1.0])
    assert found.value == pytest.approx(0.8) and found.high == 1.0, "shares stay within 0 and 1"
    expected = stats.t.interval(0.95, 2, loc=2.0, scale=stats.sem([1, 2, 3]))
    found = average_runs([1, 2, 3])
    assert (found.low, found.high) == pytest.approx(expected)


def test_mistakes_are_refused():
    groups, statistic = mean_of([1.0], ["a"])
    with pytest.raises(UserError, match="num_resamples is 0"):
        bootstrap(groups, statistic, kinds=NUMBER, num_resamples=0)
    with pytest.raises(ValueError, match="finite"):
        Metric(value=float("nan"))
