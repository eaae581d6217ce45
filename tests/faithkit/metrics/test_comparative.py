"""Comparative judging by pairs worked out by hand, and the agreement of two annotators."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from faithkit.metrics.judging import comparison_metrics, make_both_orders, measure_agreement, predict_pair_baselines
from faithkit.pages.page_tables import render_text
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.used_model import TRAINED, SeenRows, UsedModel
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.judging_report import comparison_report
from faithkit.reports.report import Provenance
from tests.data_modules.examples import example as make_example

LABEL = st.sampled_from(["accurate", "inaccurate", "unparsed"])


@given(rows=st.lists(st.tuples(LABEL, LABEL, st.sampled_from("abcd")), min_size=1, max_size=30))
def test_kappa_is_scikit_learns(rows):
    first, second, groups = zip(*rows, strict=True)
    found = measure_agreement(first, second, groups, num_resamples=20).metrics
    assert found["agreement"].value == pytest.approx(sum(a == b for a, b, _ in rows) / len(rows))
    if len({*first, *second}) == 1:
        assert "kappa" not in found, "both always say the same: chance explains it as well"
    else:
        assert found["kappa"].value == pytest.approx(cohen_kappa_score(first, second), abs=1e-9)
        assert -1 <= found["kappa"].low <= found["kappa"].value <= found["kappa"].high <= 1


def example(id_: str, response: str, label: str, **changes: object) -> Example:
    values = {"id": id_, "source": "halueval", "group": id_, "knowledge": "It has ten.", **changes}
    return make_example(response=response, label=label, **values)


def pairs(number: int) -> list[Example]:
    rows = []
    for i in range(number):
        tasks = {"meta": {"task": ("qa", "dialogue")[i % 2]}}
        right = example(f"{i}:right", "It has ten.", FAITHFUL, **tasks)
        rows += make_both_orders(right, example(f"{i}:wrong", "It has twelve, they say.", HALLUCINATED, **tasks))
    return rows


def said(rows: list[Example], *labels: str, scores: tuple[float, ...] = ()) -> dict[str, Prediction]:
    given = scores or (None,) * len(labels)
    every = zip(rows, labels, given, strict=True)
    return {row.id: Prediction(id=row.id, label=label, score=score) for row, label, score in every}


def values(rows: list[Example], predictions: dict[str, Prediction]) -> dict[str, float]:
    return {n: m.value for n, m in comparison_metrics(rows, predictions, num_resamples=20).metrics.items()}


def test_a_judge_that_always_says_one_is_right_half_the_time_and_biased() -> None:
    rows = pairs(3)
    found = values(rows, said(rows, *[HALLUCINATED] * 6, scores=(0.9, 0.8) * 3))
    assert (found["accuracy_first"], found["accuracy_last"], found["accuracy"]) == (1, 0, 0.5)
    assert (found["position_bias"], found["both_orders"], found["invalid_rate"]) == (1, 0, 0)
    assert found["combined_accuracy"] == 1, "it was surer where the hallucinated reply stood first"


def test_what_names_neither_is_wrong_and_counted() -> None:
    rows = pairs(2)
    found = values(rows, said(rows, HALLUCINATED, FAITHFUL, UNPARSED, FAITHFUL))
    assert (found["accuracy_first"], found["accuracy_last"]) == (0.5, 1)
    assert (found["invalid_rate"], found["both_orders"], found["position_bias"]) == (0.25, 0.5, -0.25)
    assert "combined_accuracy" not in found


def test_baselines_read_nothing_and_have_no_bias_but_for_equals() -> None:
    rows = pairs(2)
    for baseline in predict_pair_baselines(rows).values():
        found = values(rows, baseline)
        assert (found["accuracy"], found["position_bias"]) == (1, 0)
    equal = [example("r", "aaa", FAITHFUL), example("w", "bbb", HALLUCINATED)]
    tied = list(make_both_orders(*equal))
    assert values(tied, predict_pair_baselines(tied)["longer reply"])["position_bias"] == 1


def test_the_report_has_parts_baselines_and_the_papers_systems() -> None:
    rows = pairs(4)
    labels = [HALLUCINATED, FAITHFUL, HALLUCINATED, HALLUCINATED] * 2
    report = comparison_report(rows, said(rows, *labels), title="t", dataset="halludial", num_resamples=20)
    assert report.metrics["task/qa/accuracy"].value == 1 and report.metrics["task/dialogue/accuracy"].value == 0.5
    assert report.metrics["task/qa/length_accuracy"].value == 1
    shown = render_text(*report.tables)
    assert "GPT-4-1106-preview *" in shown and "88.2" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert report.metrics["accuracy"].value == pytest.approx(0.75)
    assert "75.0" in shown and "4 pairs, each in both orders" in shown


def test_a_dataset_is_divided_by_its_first_field_alone() -> None:
    rows = []
    for i in range(4):
        meta = {"meta": {"domain": ("task", "chit-chat")[i % 2], "model": ("a", "b")[i // 2]}}
        right = example(f"{i}:right", "It has ten.", FAITHFUL, source="diahalu", **meta)
        rows += make_both_orders(right, example(f"{i}:wrong", "It has twelve.", HALLUCINATED, source="diahalu", **meta))
    labels = [HALLUCINATED, FAITHFUL] * 4
    found = comparison_report(rows, said(rows, *labels), title="t", num_resamples=5).metrics
    assert {name.partition("/")[0] for name in found if name.count("/") == 2} == {"domain"}


def test_pairs_of_which_a_model_has_seen_a_row_are_left_out() -> None:
    rows = pairs(3)
    predictions = said(rows, *[FAITHFUL, HALLUCINATED], *[HALLUCINATED, FAITHFUL] * 2)

    def report(seen: list[Example]) -> dict[str, float]:
        model = UsedModel(role="judge", path="runs/x", find_seen=lambda: SeenRows.of({TRAINED: [row_keys(seen)]}))
        origin = Provenance.of("halueval", rows, [model])
        found = comparison_report(rows, predictions, title="t", origin=origin, num_resamples=20)
        return {name: metric.value for name, metric in found.metrics.items()}

    # The wrong one is seen; all rows have the same knowledge but for the first pair's.
    rows[:2] = [replace(row, knowledge="It has many.") for row in rows[:2]]
    found = report(rows[:1])
    assert found["accuracy"] == pytest.approx(2 / 3) and found["without_leaked/accuracy"] == 1
    assert not any(name.startswith("without_leaked") for name in report(rows))
