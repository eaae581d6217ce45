"""Conclusions follow from paired differences, and no interval leaves the range of its metric."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.baselines.simple_detectors import BaselineData
from faithkit.metrics.classification import Outcomes, classification_metrics, evaluate_labels
from faithkit.metrics.responses.measure_responses import MetricModels, measure_responses
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.reports.label_tables import label_report
from faithkit.scores.measures import kind_of
from faithkit.statistics.bootstrap import Decision, Difference, Groups, Test, conclude
from faithkit.statistics.metric import Metric, average_runs
from tests.data_modules.examples import example


def rows(count: int) -> list[Example]:
    """Rows of two labels; of the hallucinated ones every second has unknown words, as have a tenth of the others."""
    found = []
    for place in range(count):
        wrong = place % 2 == 0
        unknown = place % 4 == 0 or place % 20 == 1
        label = HALLUCINATED if wrong else FAITHFUL
        text = "zinc fish tower" if unknown else "kiwi bird egg"
        names = {"id": f"r{place}", "group": f"g{place}"}
        found.append(example(**names, knowledge="a kiwi bird egg", response=text, label=label))
    return found


def verdict_of(examples: list[Example], right: int, *, fits_tested: bool = True) -> tuple[Decision, str]:
    """Concludes on a model that is right about so many of ten rows, with scores that rank no row."""
    predictions = {}
    for place, row in enumerate(examples):
        is_right = place % 10 < right
        label = HALLUCINATED if (row.label == HALLUCINATED) == is_right else FAITHFUL
        predictions[row.id] = Prediction(id=row.id, label=label, score=0.5)
    data = BaselineData(rows=rows(40), name="40 rows of made", fits_tested=fits_tested)
    found = label_report(examples, predictions, title="t", baseline_data=data, num_resamples=50, num_examples=0)
    assert found.conclusion is not None
    return found.conclusion.verdict, found.conclusion.text


@pytest.mark.parametrize(("right", "verdict"), [(10, Decision.BETTER), (3, Decision.WORSE)])
def test_the_interval_of_the_difference_decides(right: int, verdict: Decision) -> None:
    found, text = verdict_of(rows(100), right)
    assert found is verdict
    beginning = f"the model is {verdict} word overlap, the strongest simple baseline, on 100 rows: macro-F1 "
    assert text.startswith(beginning)


def difference(low: float, high: float, n: int = 200) -> Difference:
    numbers = {"p_value": 0.5, "n": n, "num_groups": n, "higher_is_better": True}
    return Difference(value=(low + high) / 2, low=low, high=high, **numbers)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.218, 0.187, Decision.TOO_FEW),  # neither direction is excluded, nor a difference of interest
        (-0.051, 0.02, Decision.TOO_FEW),
        (-0.05, 0.05, Decision.LEVEL),
        (0.001, 0.03, Decision.BETTER),
        (-0.3, -0.001, Decision.WORSE),
    ],
)
def test_only_an_interval_within_the_smallest_difference_of_interest_shows_equivalence(
    low: float, high: float, verdict: Decision
) -> None:
    test = Test(metric="macro-F1", other="b", difference=difference(low, high))
    found = conclude("a", test)
    assert test.verdict is found.verdict is verdict and test.text in found.text
    assert ("within 5 points" in found.text) == (verdict is Decision.LEVEL)
    perplexity = Test(metric="perplexity", other="b", difference=difference(low, high), scale=1)
    assert perplexity.verdict is not Decision.LEVEL, "its smallest difference of interest is not known"


def test_a_wide_interval_is_no_equivalence_of_a_model_and_a_baseline() -> None:
    found, text = verdict_of(rows(100), 7)
    assert found is Decision.TOO_FEW and text.startswith("too few rows to decide whether the model is better than ")
    assert "100 rows; macro-F1 " in text


def test_few_rows_or_groups_decide_nothing() -> None:
    found, text = verdict_of(rows(20), 10)
    assert found is Decision.TOO_FEW and "20 rows; at least 30 rows in 10 groups are needed" in text
    found, text = verdict_of([replace(row, group="a" if row.id[-1] > "4" else "b") for row in rows(100)], 10)
    assert found is Decision.TOO_FEW and "100 rows in 2 groups" in text


def test_with_a_threshold_from_other_data_the_ranking_must_be_better_too() -> None:
    found, text = verdict_of(rows(100), 10, fits_tested=False)
    assert found is Decision.WORSE and "macro-F1 +" in text and "AUROC, without a threshold, -" in text


def test_of_perplexity_the_lower_is_better() -> None:
    lower = Difference(value=-2, low=-3, high=-1, p_value=0.01, n=100, num_groups=50, higher_is_better=False)
    assert conclude("a", Test(metric="perplexity", other="b", difference=lower, scale=1)).text == (
        "a is better than b, on 100 rows in 50 groups: perplexity -2.0 [-3.0, -1.0]"
    )


def check(name: str, metric: Metric) -> None:
    kind = kind_of(name)
    assert kind is not None and metric.low is not None and metric.high is not None, name
    assert kind.low - 1e-9 <= metric.low <= metric.value <= metric.high <= kind.high + 1e-9, (name, metric)


CALLS = st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2), st.sampled_from([0, 0.3, 1]), st.integers(0, 3))


@settings(max_examples=40, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=9))
def test_no_figure_of_few_labels_leaves_its_range(drawn: list[tuple[bool, int, int, float, int]]) -> None:
    gold, first, second, scores, groups = map(np.array, zip(*drawn, strict=True))
    one = Outcomes(gold.astype(np.int8), first.astype(np.int8), scores, Groups.of(map(str, groups)))
    other = replace(one, called=second.astype(np.int8), scores=1 - scores)
    for name, metric in classification_metrics(one, num_resamples=20).metrics.items():
        check(name.removesuffix("_debiased"), metric)
    for name, difference in evaluate_labels(one).subtract(evaluate_labels(other), num_resamples=20).items():
        check(f"difference/{name}", difference.metric)


TEXTS = st.lists(
    st.sampled_from(["", "red fox", "red red", "the fox is red .", "i do not know"]), min_size=1, max_size=5
)


@settings(max_examples=20, deadline=None)
@given(TEXTS)
def test_no_figure_of_few_responses_leaves_its_range(texts: list[str]) -> None:
    examples = rows(len(texts))
    first, second = (measure_responses(examples, each, MetricModels()) for each in (texts, texts[::-1]))
    for name, metric in first.evaluation().score(num_resamples=20).metrics.items():
        check(name, metric)
    for name, difference in first.evaluation().subtract(second.evaluation(), num_resamples=20).items():
        check(f"difference/{name}", difference.metric)


@pytest.mark.parametrize("name", ["test/a/perplexity", "test/a/bleu", "test/a/macro_f1", "test/a/difference/length_f1"])
def test_no_mean_of_two_trainings_leaves_its_range(name: str) -> None:
    for values in ([0.9, 0.1], [1, 1], [0, 1]):
        check(name, average_runs(values, kind=kind_of(name)))
