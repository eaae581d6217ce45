"""Abstention: accuracy against coverage, and the guarantee of conformal sets."""

from dataclasses import replace

import numpy as np
import pytest

from faithkit.pages.page_tables import render_text
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit_workflows.domains.abstention import measure_abstention
from faithkit_workflows.domains.scores import DomainTest


def domain(name: str, gold: list[bool], scores: list[float]) -> DomainTest:
    examples = [
        Example(
            id=f"{name}/{i}", source="s", split="t", group=f"{i}", knowledge="k", response="r",
            label=HALLUCINATED if wrong else FAITHFUL,
        )
        for i, wrong in enumerate(gold)
    ]  # fmt: skip
    predictions = {
        one.id: Prediction(id=one.id, label=HALLUCINATED if score > 0.5 else FAITHFUL, score=score)
        for one, score in zip(examples, scores, strict=True)
    }
    return DomainTest(name=name, title=name.title(), examples=examples, predictions=predictions)


def drawn(name: str, *, shift: float = 0.0, num: int = 400) -> DomainTest:
    """Draws a domain whose scores separate the classes; `shift` is added to all log-odds."""
    generator = np.random.default_rng(sum(map(ord, name)))
    gold = generator.random(num) < 0.5
    odds = np.where(gold, 1.0, -1.0) + generator.normal(0, 1, num) + shift
    return domain(name, gold.tolist(), (1 / (1 + np.exp(-odds))).tolist())


def test_accuracy_is_measured_over_the_most_confident_rows() -> None:
    gold, scores = (
        [True, False, True, False],
        [0.95, 0.08, 0.4, 0.7],
    )  # the two most confident are right, the others wrong
    metrics, tables, notes = measure_abstention([domain("one", gold, scores)], title="t", num_resamples=50)
    assert {name.removeprefix("one/"): metric.value for name, metric in metrics.items()} == {
        "accuracy_at_100": 0.5,
        "accuracy_at_80": 0.5,
        "accuracy_at_50": 1.0,
        "judged_at_90": 0.5,
        "accuracy_judged_at_90": 1.0,
    }
    assert "judged at 0.9" in render_text(*tables, width=200) and "100.0" in render_text(*tables, width=200)
    assert notes == ["conformal sets: no domain has enough rows of others to calibrate on"]


def test_rows_of_equal_confidence_are_judged_together() -> None:
    metrics, _, _ = measure_abstention([domain("one", [True, False], [0.9, 0.9])], title="t", num_resamples=50)
    assert metrics["one/accuracy_at_50"].value == 0.5


def test_conformal_sets_keep_the_guarantee_where_domains_are_alike() -> None:
    metrics, _, notes = measure_abstention([drawn("a"), drawn("b"), drawn("c")], title="t", num_resamples=200)
    for name in "abc":
        for label in (FAITHFUL, HALLUCINATED):
            assert metrics[f"{name}/conformal_{label}"].value == pytest.approx(0.9, abs=0.06)
        assert 0.3 < metrics[f"{name}/conformal_single"].value < 0.9
        assert metrics[f"{name}/conformal_single_accuracy"].value > metrics[f"{name}/accuracy_at_100"].value
    assert notes == ["conformal sets at 90% contain a class clearly less often on 0 of 3 domains"]


def test_a_domain_without_the_guarantee_is_named() -> None:
    _, _, notes = measure_abstention([drawn("a"), drawn("b"), drawn("other", shift=3.0)], title="t", num_resamples=200)
    assert "Other" in notes[0]


def test_related_and_extra_domains_and_seen_rows_do_not_calibrate() -> None:
    one, two = drawn("a"), drawn("b")
    changes = [
        {"related_domains": frozenset({"a", "b"})},
        {"extra": True},
        {"seen": np.ones(len(two.examples), bool)},
    ]
    for change in changes:
        metrics, _, _ = measure_abstention([one, replace(two, **change)], title="t", num_resamples=50)
        assert not [name for name in metrics if name.startswith("a/conformal")], change
    metrics, _, _ = measure_abstention([one, two], title="t", num_resamples=50)
    assert "a/conformal_single" in metrics


def test_predictions_without_probabilities_are_left_out() -> None:
    one = drawn("a")
    predictions = {id_: replace(prediction, score=None) for id_, prediction in one.predictions.items()}
    assert measure_abstention([replace(one, predictions=predictions)], title="t", num_resamples=50) == ({}, [], [])
