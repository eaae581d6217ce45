"""Intervals for few groups are those of the textbook where it has one."""

import numpy as np
import pytest
from scipy import stats

from faithkit.metrics.classification import classification_statistic, score_outcomes
from faithkit.metrics.outcomes import Outcomes
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic, resample
from faithkit.statistics.spread import (
    Spread,
    Statistic,
    count_defining,
    measure_spreads,
    reduction_interval,
    share_interval,
    t_interval,
    two_sided_p,
)


def judged(gold: np.ndarray, called: np.ndarray) -> Outcomes:
    """Rows that are groups of their own, each called hallucinated or not."""
    groups = Groups.of(f"{row:05}" for row in range(len(gold)))
    return Outcomes(
        gold=gold.astype(np.int8), called=called.astype(np.int8), scores=np.full(len(gold), np.nan), groups=groups
    )


def of(outcomes: Outcomes) -> tuple[Groups, Statistic]:
    return outcomes.groups, classification_statistic(outcomes)


@pytest.mark.parametrize("count", [2, 3, 40])
def test_a_means_interval_and_p_value_are_students(count: int) -> None:
    values = np.random.default_rng(count).normal(0.5, size=count)
    spread = measure_spreads(mean_statistic(Groups.of(map(str, range(count))), {"mean": values}), count)["mean"]
    student = stats.ttest_1samp(values, 0)
    wanted = student.confidence_interval()
    assert t_interval(values.mean(), spread) == pytest.approx((wanted.low, wanted.high))
    assert two_sided_p(values.mean(), spread, count) == pytest.approx(student.pvalue)
    assert two_sided_p(-values.mean(), spread, count) == pytest.approx(student.pvalue)


@pytest.mark.parametrize("count", [2, 3, 20])
def test_a_share_of_nothing_or_of_all_has_clopper_and_pearsons_interval(count: int) -> None:
    exact = {hits: stats.binomtest(hits, count).proportion_ci(method="exact") for hits in (0, count)}
    none, every = (share_interval(value, Spread.alike(0.0, count), count) for value in (0.0, 1.0))
    assert none == pytest.approx((0.0, exact[0].high)) and every == pytest.approx((exact[count].low, 1.0))


def test_a_share_that_no_group_defines_alone_may_be_anything() -> None:
    assert share_interval(1.0, Spread.alike(0.0, 0), 9) == (pytest.approx(0.025), 1.0)
    assert (
        share_interval(0.5, Spread.alike(float("nan"), 9), 9)
        == share_interval(0.5, Spread.alike(0.1, 1), 1)
        == (0.0, 1.0)
    )


def test_a_shares_interval_is_students_on_the_log_odds_scale() -> None:
    low, high = share_interval(0.2, Spread.alike(0.1, 10), 10)
    reach = stats.t.ppf(0.975, 9) * 0.1 / (0.2 * 0.8)
    odds = [np.log(bound / (1 - bound)) for bound in (low, high)]
    assert odds == pytest.approx([np.log(0.25) - reach, np.log(0.25) + reach])
    both = share_interval(0.2, Spread.alike(0.1, 2), 2)
    assert 0 < both[0] < low and high < both[1] < 1, "two groups are enough, and say less"


def test_a_reductions_interval_is_students_on_the_log_scale_of_its_ratio() -> None:
    low, high = reduction_interval(0.4, Spread.alike(0.1, 10))
    reach = stats.t.ppf(0.975, 9) * 0.1 / 0.6
    assert [np.log(1 - low), np.log(1 - high)] == pytest.approx([np.log(0.6) + reach, np.log(0.6) - reach])
    assert reduction_interval(1.0, Spread.alike(0.1, 10)) == (1, 1), "nothing is left to reduce"


def test_groups_that_all_say_the_same_have_the_p_value_of_the_sign_test() -> None:
    assert two_sided_p(0.3, Spread.alike(0.0, 8), 8) == pytest.approx(stats.binomtest(8, 8).pvalue)
    assert two_sided_p(0.0, Spread.alike(0.0, 8), 8) == 1.0
    assert two_sided_p(0.3, Spread.alike(float("nan"), 8), 8) == two_sided_p(0.3, Spread.alike(0.1, 1), 1) == 1.0


def test_groups_without_what_is_measured_do_not_count_as_observations() -> None:
    groups = Groups.of("aabbccdd")
    found = np.array([1, 1, 1, 1, 0, 0, 0, 0.0])  # only a and b hold a positive, and both are found
    positives = groups.sums(found)

    def recall(weights: np.ndarray) -> dict[str, np.ndarray]:
        with np.errstate(invalid="ignore"):
            return {"recall": (weights @ positives) / (weights @ positives)}

    metric = bootstrap(groups, recall, shares=True, num_resamples=50).metrics["recall"]
    assert metric.low == pytest.approx(0.025**0.5) and metric.high == metric.value == 1


@pytest.mark.parametrize("count", [40, 600])
def test_a_perfect_detector_is_as_sure_as_its_rarer_class(count: int) -> None:
    gold = np.arange(count) % 8 == 0
    found = score_outcomes(judged(gold, gold), num_resamples=50).metrics
    assert found["accuracy"].low == pytest.approx(0.025 ** (1 / count))
    for name in ("macro_f1", "balanced_accuracy", "recall"):
        assert found[name].low == pytest.approx(0.025 ** (8 / count)), name


@pytest.mark.parametrize("count", [40, 600])
def test_two_rows_decide_nothing_however_many_others_there_are(count: int) -> None:
    gold = np.arange(count) < 2
    every, none = (resample(*of(judged(gold, called)), num_resamples=200) for called in (gold, gold & False))
    for name in ("recall", "macro_f1"):
        difference = every.minus(none)[name]
        assert difference.p_value >= 0.25, name
    assert every.minus(none)["recall"].low <= 2 * 0.025**0.5 - 1 + 1e-9


@pytest.mark.parametrize("agreeing", [3, 4, 5, 8])
@pytest.mark.parametrize("count", [300, 600])
def test_a_difference_in_few_rows_is_hardly_surer_than_the_sign_test(agreeing: int, count: int) -> None:
    gold = np.arange(count) < 150
    worse = np.where(np.arange(count) < agreeing, ~gold, gold)
    first, second = (resample(*of(judged(gold, called)), num_resamples=2000) for called in (gold, worse))
    difference = first.minus(second)["accuracy"]
    assert difference.p_value > 0.05 or agreeing == 8
    if count == 300:
        assert difference.p_value >= stats.binomtest(agreeing, agreeing).pvalue - 1e-9
    assert (difference.low > 0) == (agreeing > 5), "the interval says so too"


@pytest.mark.parametrize("agreeing", [12, 15, 19, 20])
def test_what_nearly_all_groups_say_is_sure(agreeing: int) -> None:
    gold = np.ones(20, bool)
    none = judged(gold, ~gold)
    first, second = (resample(*of(one), num_resamples=50) for one in (judged(gold, np.arange(20) < agreeing), none))
    difference = first.minus(second)["accuracy"]
    assert difference.p_value < 1e-4 and difference.low > 0


def test_an_outlier_does_not_stand_for_all_groups() -> None:
    values = np.append(np.random.default_rng(0).normal(5, 1, 299), 500.0)
    groups = Groups.of(f"{row:03}" for row in range(300))
    first, second = (
        resample(groups, mean_statistic(groups, {"length": each}), num_resamples=50) for each in (values, values * 0)
    )
    student = stats.ttest_1samp(values, 0)
    assert first.minus(second)["length"].p_value == pytest.approx(student.pvalue)


@pytest.mark.parametrize("count", [20, 500, 600])
def test_one_positive_row_tells_of_no_difference(count: int) -> None:
    gold = np.arange(count) < 1
    first, second = (resample(*of(judged(gold, called)), num_resamples=400) for called in (gold, gold & False))
    for name in ("recall", "balanced_accuracy"):
        difference = first.minus(second)[name]
        assert difference.p_value == 1 and difference.low < 0 < difference.value, name


@pytest.mark.parametrize("name", ["a", "z"])
def test_groups_of_both_classes_count_alike_wherever_they_stand(name: str) -> None:
    gold = np.append(np.arange(98) % 2, [0, 1])
    groups = Groups.of([*(f"m{row:02}" for row in range(98)), name, name])
    outcomes = Outcomes(gold=gold.astype(np.int8), called=gold.astype(np.int8), scores=gold * 0.8 + 0.1, groups=groups)
    found = score_outcomes(outcomes, num_resamples=50).metrics
    for metric in ("auroc", "macro_f1"):
        assert found[metric].low == pytest.approx(0.025 ** (1 / 50)), metric


def test_groups_that_define_a_metric_are_counted_in_a_fraction_of_the_resamples_time() -> None:
    gold, asked = np.arange(20_000) % 2000 == 0, []

    def recall(weights: np.ndarray) -> dict[str, np.ndarray]:
        asked.append(len(weights))
        with np.errstate(invalid="ignore"):
            return {"recall": (weights @ gold) / (weights @ gold), "rate": weights @ np.ones(20_000) * 0}

    assert count_defining(recall, 20_000, ["recall", "rate"]) == {"recall": 10, "rate": 20_000}
    assert sum(asked) <= 250


def test_a_slice_is_as_sure_as_its_own_groups_allow() -> None:
    groups = Groups.of(str(row // 10) for row in range(3000))
    own = groups.index < 3
    hits = own & (np.arange(3000) % 3 == 0)

    found, rows = groups.sums(hits * (1 + groups.index)), groups.sums(own * (1 + groups.index))

    def share(weights: np.ndarray) -> dict[str, np.ndarray]:
        with np.errstate(invalid="ignore"):
            return {"share": (weights @ found) / (weights @ rows)}

    spread = measure_spreads(share, groups.count)["share"]
    assert spread.num_moving <= 3
    alone = measure_spreads(lambda weights: share(np.pad(weights, ((0, 0), (0, 297)))), 3)["share"]
    whole = bootstrap(groups, share, shares=True, num_resamples=50).metrics["share"]
    assert whole.high - whole.low > 0.7 * np.ptp(share_interval(whole.value, alone, 3))


@pytest.mark.parametrize("count", [20, 600])
def test_a_share_corrected_for_its_bias_stays_a_share(count: int) -> None:
    groups = Groups.of(map(str, range(count)))
    values = np.linspace(0, 1, count)

    def ends(weights: np.ndarray) -> dict[str, np.ndarray]:
        seen = np.where(weights > 0, values, np.nan)
        return {"most": np.nanmax(seen, axis=1), "least": np.nanmin(seen, axis=1)}

    found = bootstrap(groups, ends, shares=True, debiased=("most", "least"), num_resamples=200).metrics
    assert found["most_debiased"].value == 1 and found["least_debiased"].value == 0
    for metric in found.values():
        assert 0 <= metric.low <= metric.value <= metric.high <= 1
    free = bootstrap(groups, ends, debiased=("most",), num_resamples=200).metrics
    assert free["most_debiased"].value > 1, "what is no share may lie anywhere above 0"


def test_shares_of_many_groups_stay_within_0_and_1() -> None:
    groups = Groups.of(map(str, range(600)))
    rare = mean_statistic(groups, {"share": np.arange(600) == 0})
    metric = bootstrap(groups, rare, shares=True, num_resamples=300).metrics["share"]
    assert 0 < metric.low < metric.value < metric.high < 0.02
    usual = mean_statistic(groups, {"share": np.arange(600) != 0})
    metric = bootstrap(groups, usual, shares=True, debiased=("share",), num_resamples=300).metrics["share"]
    assert 0.98 < metric.low < metric.value < metric.high == 1
    alike = bootstrap(groups, mean_statistic(groups, {"share": np.ones(600)}), shares=True, num_resamples=50).metrics[
        "share"
    ]
    assert alike.low == pytest.approx(0.025 ** (1 / 600)) and alike.value == alike.high == 1


def test_numbers_that_are_all_but_nothing_have_a_spread_too() -> None:
    sizes = np.array([1.0, 2.0, 3.0, 6.0])
    plain, tiny = (
        measure_spreads(lambda weights, scale=scale: {"mean": weights @ (sizes * scale)}, 4)["mean"]
        for scale in (1.0, 1e-109)
    )
    assert tiny.num_carrying == pytest.approx(plain.num_carrying) and tiny.error == pytest.approx(plain.error * 1e-109)
