"""Where a detector may say nothing: accuracy against coverage, and whether conformal sets keep their promise."""

from dataclasses import replace

import numpy as np
import pytest

from faithkit.pages.tables import render_text
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit_workflows.domains.abstaining import abstaining
from faithkit_workflows.domains.tested import DomainTest


def domain(name: str, gold: list[bool], scores: list[float]) -> DomainTest:
    examples = [
        Example(
            id=f"{name}/{i}", source="s", split="t", group=f"{i}", knowledge="k", response="r",
            label=HALLUCINATED if wrong else FAITHFUL,
        )
        for i, wrong in enumerate(gold)
    ]  # fmt: skip
    said = {
        one.id: Prediction(id=one.id, label=HALLUCINATED if score > 0.5 else FAITHFUL, score=score)
        for one, score in zip(examples, scores, strict=True)
    }
    return DomainTest(name=name, title=name.title(), examples=examples, predictions=said)


def drawn(name: str, *, shift: float = 0.0, num: int = 400) -> DomainTest:
    """A domain whose scores tell the classes apart, the same way in each; `shift` moves all log-odds."""
    generator = np.random.default_rng(sum(map(ord, name)))
    gold = generator.random(num) < 0.5
    odds = np.where(gold, 1.0, -1.0) + generator.normal(0, 1, num) + shift
    return domain(name, gold.tolist(), (1 / (1 + np.exp(-odds))).tolist())


def test_accuracy_is_that_of_the_surest_rows_and_of_those_that_are_sure_enough() -> None:
    gold, scores = [True, False, True, False], [0.95, 0.08, 0.4, 0.7]  # the two surest are right, the others wrong
    metrics, tables, notes = abstaining([domain("one", gold, scores)], title="t", num_resamples=50)
    assert {name.removeprefix("one/"): metric.value for name, metric in metrics.items()} == {
        "accuracy_at_100": 0.5,
        "accuracy_at_80": 0.5,
        "accuracy_at_50": 1.0,
        "judged_at_90": 0.5,
        "accuracy_judged_at_90": 1.0,
    }
    assert "judged at 0.9" in render_text(*tables, width=200) and "100.0" in render_text(*tables, width=200)
    assert notes == ["conformal sets: no domain has enough rows of others to calibrate on"]


def test_rows_that_are_equally_sure_are_judged_together() -> None:
    metrics, _, _ = abstaining([domain("one", [True, False], [0.9, 0.9])], title="t", num_resamples=50)
    assert metrics["one/accuracy_at_50"].value == 0.5


def test_conformal_sets_keep_their_promise_where_domains_are_alike() -> None:
    metrics, _, notes = abstaining([drawn("a"), drawn("b"), drawn("c")], title="t", num_resamples=200)
    for name in "abc":
        for label in (FAITHFUL, HALLUCINATED):
            assert metrics[f"{name}/conformal_{label}"].value == pytest.approx(0.9, abs=0.06)
        assert 0.3 < metrics[f"{name}/conformal_single"].value < 0.9
        assert metrics[f"{name}/conformal_single_accuracy"].value > metrics[f"{name}/accuracy_at_100"].value
    assert notes == ["conformal sets at 90% hold a class clearly less often on 0 of 3 domains"]


def test_a_domain_where_they_break_is_named() -> None:
    _, _, notes = abstaining([drawn("a"), drawn("b"), drawn("other", shift=3.0)], title="t", num_resamples=200)
    assert "Other" in notes[0]


def test_neither_kin_nor_twins_nor_seen_rows_calibrate() -> None:
    one, two = drawn("a"), drawn("b")
    changes = [{"kin": frozenset({"a", "b"})}, {"beside": True}, {"seen": np.ones(len(two.examples), bool)}]
    for change in changes:
        metrics, _, _ = abstaining([one, replace(two, **change)], title="t", num_resamples=50)
        assert not [name for name in metrics if name.startswith("a/conformal")], change
    metrics, _, _ = abstaining([one, two], title="t", num_resamples=50)
    assert "a/conformal_single" in metrics


def test_a_detector_without_probabilities_has_no_such_table() -> None:
    one = drawn("a")
    said = {id_: replace(prediction, score=None) for id_, prediction in one.predictions.items()}
    assert abstaining([replace(one, predictions=said)], title="t", num_resamples=50) == ({}, [], [])
