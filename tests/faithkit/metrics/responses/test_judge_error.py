"""A corrected rate is the share that people would find, with an interval that holds the error of both samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from faithkit.errors import UserError
from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction


def names(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def error_of(found: int, missed: int, alarms: int, passed: int) -> JudgeError:
    gold = [1] * (found + missed) + [0] * (alarms + passed)
    called = [1] * found + [0] * missed + [1] * alarms + [0] * passed
    return JudgeError.of_rows(gold, called, names(len(gold)))


def column(called: int, passed: int) -> np.ndarray:
    return np.array([1.0] * called + [0.0] * passed)


cells = st.integers(1, 60)


@given(cells, cells, cells, cells, st.integers(0, 60), st.integers(1, 60))
def test_the_value_solves_the_equation_and_the_interval_holds_it(found, missed, alarms, passed, called, others):
    judge = error_of(found, missed, alarms, passed)
    recall, false = found / (found + missed), alarms / (alarms + passed)
    got = corrected_rate(column(called, others), names(called + others), judge, num_resamples=100)
    rate = called / (called + others)
    if recall <= false:
        assert got.metric is None and "as often" in got.note
        return
    exact = (rate - false) / (recall - false)
    if got.metric is None:
        assert not 0 <= exact <= 1 and "no share" in got.note
        return
    assert got.metric.value == pytest.approx(min(max(exact, 0), 1))
    assert 0 <= got.metric.low <= got.metric.value <= got.metric.high <= 1
    if not -1e-9 <= exact <= 1 + 1e-9:
        assert "bound" in got.note or "everything" in got.note


def test_a_judges_rates_count_the_rows_that_they_stand_on():
    found = error_of(45, 5, 8, 32).metrics(num_resamples=20)
    assert (found["recall"].value, found["recall"].n) == (0.9, 50)
    assert (found["false_alarms"].value, found["false_alarms"].n) == (0.2, 40)


def test_of_few_groups_the_interval_reaches_as_far_as_students():
    """Hesterberg 2015: percentiles at the level of a normal that reaches sqrt(n / (n - 1)) t."""
    shares = np.array([0.2, 0.3, 0.35, 0.5, 0.55, 0.7])
    called = np.concatenate([column(round(100 * share), 100 - round(100 * share)) for share in shares])
    groups = [str(row // 100) for row in range(600)]
    got = corrected_rate(called, groups, error_of(100, 0, 0, 100), num_resamples=10_000).metric
    assert got is not None
    draws = np.random.default_rng(1).choice(shares, size=(10_000, 6)).mean(axis=1)
    level = stats.norm.cdf(np.sqrt(6 / 5) * stats.t.ppf(0.025, 5))
    error = shares.std() / np.sqrt(6)
    assert (got.low, got.high) == pytest.approx(np.quantile(draws, (level, 1 - level)), abs=0.15 * error)


def test_what_no_resample_shows_is_uncertain_all_the_same():
    got = corrected_rate(column(0, 20), names(20), error_of(50, 0, 0, 50)).metric
    assert got is not None and got.value == got.low == 0 and 0.05 < got.high < 0.2


def test_a_rate_that_no_share_explains_is_not_corrected():
    judge = error_of(80, 20, 60, 140)  # calls 30 to 80% hallucinated, whatever the truth
    got = corrected_rate(column(0, 100), names(100), judge)
    assert got.metric is None and "no share of hallucinated responses explains 0.0%" in got.note
    near = corrected_rate(column(28, 72), names(100), judge)
    assert near.metric is not None and near.metric.value == 0 == near.metric.low < near.metric.high
    assert "-4.0 before it was put on the bound" in near.note


def test_verdicts_that_could_not_be_parsed_do_not_count():
    judge = error_of(45, 5, 10, 40)
    whole = corrected_rate(column(30, 20), names(50), judge).metric
    holes = corrected_rate(np.append(column(30, 20), [np.nan] * 10), names(60), judge).metric
    assert whole is not None and holes is not None and holes.value == whole.value and holes.n == 50


def test_a_judge_without_a_verdict_or_rows_of_both_labels_is_refused():
    fields = {"source": "x", "split": "test", "group": "g", "knowledge": "Ice.", "response": "Fire."}
    rows = [Example(id="1", label=HALLUCINATED, **fields)]
    with pytest.raises(UserError, match="none of the judge's 1 verdicts"):
        JudgeError.of(rows, {rows[0].id: Prediction(id=rows[0].id, label=UNPARSED)})
    with pytest.raises(UserError, match="every labelled row is faithful"):
        JudgeError.of_rows([0, 0], [0, 1], ["a", "b"])


@pytest.mark.slow
@pytest.mark.parametrize(("share", "rows", "labelled"), [(0.3, 300, 300), (0.6, 300, 100), (0.1, 200, 200)])
def test_the_interval_holds_the_truth_as_often_as_it_says(share, rows, labelled):
    draw, held, draws = np.random.default_rng(0), 0, 400

    def sample(count):
        groups = draw.integers(count // 3, size=count)
        gold = draw.random(count) < share
        called = np.where(gold, draw.random(count) < 0.9, draw.random(count) < 0.25)
        return gold, called, [str(number) for number in groups]

    for _ in range(draws):
        gold, called, groups = sample(labelled)
        judge = JudgeError.of_rows(gold, called, groups)
        _, called, groups = sample(rows)
        got = corrected_rate(called.astype(float), groups, judge, num_resamples=300).metric
        held += got is not None and got.low <= share <= got.high
    assert 0.92 <= held / draws <= 0.985
