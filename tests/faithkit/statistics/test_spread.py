"""Standard errors, intervals and p-values are those of the textbook where it has them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special, stats

from faithkit.metrics.classification import Outcomes, classification_metrics, classification_statistic
from faithkit.scores.measures import CLASSIFICATION
from faithkit.statistics.bootstrap import Groups, Resamples, bootstrap, mean_statistic
from faithkit.statistics.metric import (
    CALIBRATION_ERROR,
    NUMBER,
    PROPORTION,
    REDUCTION,
    beta_cdf,
    beta_quantile,
    student_cdf,
    student_quantile,
)
from faithkit.statistics.spread import (
    Spread,
    compute_interval,
    count_group_kinds,
    difference_from_zero,
    exact_interval,
    proportion_from_counts,
    proportion_interval,
)

NAN = float("nan")


def judged(gold: np.ndarray, called: np.ndarray) -> Outcomes:
    """Makes rows that are groups by themselves, each called hallucinated or not."""
    groups = Groups.of(f"{row:05}" for row in range(len(gold)))
    called = called.astype(np.int8)
    return Outcomes(gold=gold.astype(np.int8), called=called, scores=np.full(len(gold), np.nan), groups=groups)


def resampled(gold: np.ndarray, called: np.ndarray, num_resamples: int = 200) -> Resamples:
    outcomes = judged(gold, called)
    return Resamples(outcomes.groups, classification_statistic(outcomes), num_resamples=num_resamples)


@pytest.mark.parametrize("count", [2, 3, 40])
def test_a_mean_has_students_interval_and_p_value(count: int) -> None:
    values = np.random.default_rng(count).normal(0.5, size=count)
    groups = Groups.of(map(str, range(count)))
    left_out = mean_statistic(groups, {"mean": values})(1.0 - np.eye(count))["mean"]
    spread = Spread.from_leave_one_out(left_out, float(values.mean()))
    student = stats.ttest_1samp(values, 0)
    expected = student.confidence_interval()
    assert compute_interval(NUMBER, values.mean(), spread) == pytest.approx((expected.low, expected.high))
    both = (expected.low, expected.high, student.pvalue), (-expected.high, -expected.low, student.pvalue)
    for sign, found in zip((1, -1), both, strict=True):
        assert difference_from_zero(sign * values.mean(), spread, count) == pytest.approx(found)


@pytest.mark.parametrize(("hits", "count"), [(0, 2), (2, 2), (0, 20), (20, 20), (3, 20)])
def test_exact_intervals_are_clopper_and_pearsons(hits: int, count: int) -> None:
    expected = stats.binomtest(hits, count).proportion_ci(method="exact")
    assert exact_interval(hits / count, count) == pytest.approx((expected.low, expected.high))
    if hits in (0, count):
        assert proportion_interval(hits / count, 0.0, count) == pytest.approx((expected.low, expected.high))


def test_a_proportion_that_one_group_carries_may_be_anything_and_one_that_no_group_moves_has_no_width() -> None:
    everything_faithful = Spread.from_leave_one_out(np.full(40, 1 / 3), 1 / 3)  # macro-F1 of the majority class
    assert compute_interval(PROPORTION, 1 / 3, everything_faithful) == pytest.approx((1 / 3, 1 / 3))
    assert proportion_interval(1.0, 0.0, 9, 0) == (pytest.approx(0.025), 1.0)
    assert proportion_interval(0.5, NAN, 9) == proportion_interval(0.5, 0.1, 1) == (0.0, 1.0)


@pytest.mark.parametrize(("names", "alike"), [("aabb", 2), ("aaaa", 1), ("aabbccdd", 4)])
def test_half_of_the_rows_in_each_of_a_few_groups_is_not_certain(names: str, alike: int) -> None:
    groups = Groups.of(names)
    column = [0, 1] * (len(names) // 2)
    found = bootstrap(groups, mean_statistic(groups, {"accuracy": column}), kinds=PROPORTION, num_resamples=50)
    other = stats.binomtest(0, alike).proportion_ci(method="exact").high  # the share of groups that may be different
    expected = (pytest.approx(0.5 - other / 2), pytest.approx(0.5 + other / 2))
    assert (found.metrics["accuracy"].low, found.metrics["accuracy"].high) == expected
    counted = proportion_from_counts(count_group_kinds(list(names), column), num_resamples=50)
    assert counted is not None and (counted.low, counted.high) == expected


def test_intervals_of_proportions_and_reductions_are_students_on_their_scales() -> None:
    low, high = proportion_interval(0.2, 0.1, 10)
    margin = stats.t.ppf(0.975, 9) * 0.1 / (0.2 * 0.8)
    odds = [np.log(bound / (1 - bound)) for bound in (low, high)]
    assert odds == pytest.approx([np.log(0.25) - margin, np.log(0.25) + margin])
    two = proportion_interval(0.2, 0.1, 2)
    assert 0 < two[0] < low and high < two[1] < 1, "two groups are enough, with a wider interval"
    low, high = compute_interval(REDUCTION, 0.4, Spread.uniform(0.1, 10))
    margin = stats.t.ppf(0.975, 9) * 0.1 / 0.6
    assert [np.log(1 - low), np.log(1 - high)] == pytest.approx([np.log(0.6) + margin, np.log(0.6) - margin])
    assert compute_interval(REDUCTION, 1.0, Spread.uniform(0.1, 10)) == (1, 1), "nothing is left to reduce"


def test_groups_that_all_agree_have_the_p_value_of_the_sign_test() -> None:
    low, high, p_value = difference_from_zero(0.3, Spread.uniform(0.0, 8), 8)
    assert p_value == pytest.approx(stats.binomtest(8, 8).pvalue) and 0 < low < high == 0.3
    assert difference_from_zero(0.0, Spread.uniform(0.0, 8), 8) == (0.0, 0.0, 1.0)
    low, high, p_value = difference_from_zero(0.3, Spread.uniform(NAN, 8), 8)
    assert low < 0 < high and p_value == 1.0


def test_the_interval_follows_from_the_declared_kind_and_not_from_the_name() -> None:
    groups = Groups.of(map(str, range(40)))
    column = np.arange(40) < 2
    found = {
        (name, kind): bootstrap(groups, mean_statistic(groups, {name: column}), kinds={name: kind}, num_resamples=50)
        for name in ("asks_back", "asks_back_rate")
        for kind in (PROPORTION, NUMBER)
    }
    bounds = {key: (one.metrics[key[0]].low, one.metrics[key[0]].high) for key, one in found.items()}
    assert bounds["asks_back", PROPORTION] == bounds["asks_back_rate", PROPORTION]
    assert bounds["asks_back", PROPORTION] == pytest.approx((0.012, 0.189), abs=0.001)
    assert bounds["asks_back", NUMBER] == bounds["asks_back_rate", NUMBER] and bounds["asks_back", NUMBER][0] < 0
    with pytest.raises(KeyError):
        bootstrap(groups, mean_statistic(groups, {"undeclared": column}), kinds={}, num_resamples=50)


def test_groups_without_what_is_measured_do_not_count_as_observations() -> None:
    groups = Groups.of("aabbccdd")
    positives = groups.sums(np.array([1, 1, 1, 1, 0, 0, 0, 0.0]))  # only a and b have positives, and both are found

    def recall(weights: np.ndarray) -> dict[str, np.ndarray]:
        with np.errstate(invalid="ignore"):
            return {"recall": (weights @ positives) / (weights @ positives)}

    metric = bootstrap(groups, recall, kinds=PROPORTION, num_resamples=50).metrics["recall"]
    assert metric.low == pytest.approx(0.025**0.5) and metric.high == metric.value == 1


@pytest.mark.parametrize("count", [40, 600])
def test_a_perfect_detector_is_as_certain_as_its_rarer_class(count: int) -> None:
    gold = np.arange(count) % 8 == 0
    found = classification_metrics(judged(gold, gold), num_resamples=50).metrics
    assert found["accuracy"].low == pytest.approx(0.025 ** (1 / count))
    for name in ("macro_f1", "balanced_accuracy", "recall"):
        assert found[name].low == pytest.approx(0.025 ** (8 / count)), name


@pytest.mark.parametrize("name", ["a", "z"])
def test_groups_of_both_classes_count_equally_at_any_position(name: str) -> None:
    gold = np.append(np.arange(98) % 2, [0, 1])
    groups = Groups.of([*(f"m{row:02}" for row in range(98)), name, name])
    outcomes = Outcomes(gold=gold.astype(np.int8), called=gold.astype(np.int8), scores=gold * 0.8 + 0.1, groups=groups)
    found = classification_metrics(outcomes, num_resamples=50).metrics
    for metric in ("auroc", "macro_f1"):
        assert found[metric].low == pytest.approx(0.025 ** (1 / 50)), metric


@pytest.mark.parametrize("count", [20, 40, 500, 600])
@pytest.mark.parametrize("positives", [1, 2])
def test_few_positive_rows_decide_nothing_however_many_others_there_are(positives: int, count: int) -> None:
    gold = np.arange(count) < positives
    differences = resampled(gold, gold).subtract(resampled(gold, gold & False), CLASSIFICATION)
    for name in ("recall", "macro_f1" if positives == 2 else "balanced_accuracy"):
        assert differences[name].p_value >= 0.5 ** (positives - 1) - 1e-9, name
    assert differences["recall"].low <= 2 * 0.025**0.5 - 1 + 1e-9


@pytest.mark.parametrize("agreeing", [3, 4, 5, 8])
@pytest.mark.parametrize("count", [300, 600])
def test_a_difference_in_few_rows_is_hardly_more_certain_than_the_sign_test(agreeing: int, count: int) -> None:
    gold = np.arange(count) < 150
    worse = np.where(np.arange(count) < agreeing, ~gold, gold)
    difference = resampled(gold, gold, 2000).subtract(resampled(gold, worse, 2000), CLASSIFICATION)["accuracy"]
    assert difference.p_value > 0.05 or agreeing == 8
    assert difference.p_value >= stats.binomtest(agreeing, agreeing).pvalue / (1 if count == 300 else 4)
    assert (difference.low > 0) == (agreeing > 5), "the interval agrees"


@pytest.mark.parametrize("agreeing", [12, 15, 19, 20])
def test_a_difference_in_most_groups_is_certain(agreeing: int) -> None:
    gold = np.ones(20, bool)
    difference = resampled(gold, np.arange(20) < agreeing).subtract(resampled(gold, ~gold), CLASSIFICATION)["accuracy"]
    assert difference.p_value < 1e-4 and difference.low > 0


def test_an_outlier_does_not_replace_all_groups() -> None:
    values = np.append(np.random.default_rng(0).normal(5, 1, 299), 500.0)
    groups = Groups.of(f"{row:03}" for row in range(300))
    first, second = (
        Resamples(groups, mean_statistic(groups, {"length": each}), num_resamples=50) for each in (values, values * 0)
    )
    assert first.subtract(second, NUMBER)["length"].p_value == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


def test_the_error_is_carried_by_as_many_groups_as_move_the_value() -> None:
    def statistic(weights: np.ndarray) -> dict[str, np.ndarray]:
        return {"alike": weights @ np.tile([1.0, -1.0], 10), "alone": weights @ np.eye(20)[0]}

    whole, left_out = statistic(np.ones(20)), statistic(1.0 - np.eye(20))
    spreads = {name: Spread.from_leave_one_out(left_out[name], float(whole[name])) for name in whole}
    assert spreads["alike"].num_carrying == pytest.approx(20) and 1 < spreads["alone"].num_carrying < 1.2
    low, high = compute_interval(CALIBRATION_ERROR, 0.5, Spread(0.1, 20, spreads["alike"].num_carrying, 20, 20))
    assert high - low == pytest.approx(0.2 * 2.093, abs=1e-3)
    assert compute_interval(CALIBRATION_ERROR, 0.5, Spread(0.1, 20, spreads["alone"].num_carrying, 20, 20)) == (0, 1)


PARAMETERS = st.floats(0.5, 1e6)
PROBABILITIES = st.floats(0.001, 0.999)


@given(probability=PROBABILITIES, a=PARAMETERS, b=PARAMETERS)
@example(probability=0.975, a=1.0, b=1.0)
@example(probability=0.025, a=0.5, b=1e6)
def test_the_beta_distribution(probability: float, a: float, b: float) -> None:
    quantile = float(special.betaincinv(a, b, probability))
    assert beta_quantile(probability, a, b) == pytest.approx(quantile, rel=1e-6, abs=1e-9)
    assert beta_cdf(quantile, a, b) == pytest.approx(float(special.betainc(a, b, quantile)), abs=1e-7)
    assert (beta_cdf(0.0, a, b), beta_cdf(1.0, a, b)) == (0, 1)


@given(freedom=st.floats(1, 1e7), t=st.floats(-40, 40))
@example(freedom=1.0, t=0.0)
def test_students_t(freedom: float, t: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(float(special.stdtrit(freedom, 0.975)), rel=1e-7)
    assert student_cdf(t, freedom) == pytest.approx(float(special.stdtr(freedom, t)), rel=1e-5, abs=1e-12)
