"""Baselines are fitted as the model is, and the model stands beside each of them."""

import random
from dataclasses import replace

import pytest

from faithkit.baselines.simple_detectors import (
    MEDIAN,
    BaselineData,
    baseline_thresholds,
    cross_fit_baselines,
    fit_counted_features_by_folds,
    predict_baselines,
    read_baseline_thresholds,
    refit_threshold,
)
from faithkit.baselines.word_features import fit_counted_features, fit_length, fit_overlap, overlap_predictions
from faithkit.metrics.classification import classification_metrics, join_outcomes
from faithkit.pages.page_tables import render_text
from faithkit.records import Example, Prediction
from faithkit.reports.label_tables import label_report
from tests.data_modules.examples import example

WORDS = "kiwi bird small zealand island green forest night egg feather fly swim eats fish nest".split()


def corpus(seed: int, count: int, first: str) -> list[Example]:
    """Faithful responses that take most words from their knowledge, and hallucinated ones that take few."""
    draw, examples = random.Random(seed), []
    for number in range(count):
        known = draw.sample(WORDS, 7)
        others = [word for word in WORDS if word not in known]
        wrong = draw.random() < 0.25
        taken = draw.randint(0, 2) if wrong else draw.randint(2, 5)
        response = draw.sample(known, taken) + draw.sample(others, 5 - taken)
        values = {"source": "made", "knowledge": " ".join(known), "response": " ".join(response)}
        names = {"id": f"{first}{number}", "group": f"{first}{number // 2}"}
        examples.append(example(**names, **values, label="hallucinated" if wrong else "faithful"))
    return examples


TESTED, ROWS = corpus(1, 300, "t"), corpus(2, 200, "r")


def judged(examples: list[Example], seed: int = 0, bias: float = 0.0) -> dict[str, Prediction]:
    """A detector of some skill; a bias moves all of its scores."""
    draw = random.Random(seed)
    scores = {
        e.id: min(1.0, max(0.0, draw.gauss(0.65 if e.label == "hallucinated" else 0.35, 0.15) + bias)) for e in examples
    }
    return {
        id_: Prediction(id=id_, label="hallucinated" if s >= 0.5 else "faithful", score=s) for id_, s in scores.items()
    }


def macro_f1(predictions: dict[str, Prediction]) -> float:
    return classification_metrics(join_outcomes(TESTED, predictions), num_resamples=2).metrics["macro_f1"].value


def test_word_overlap_takes_the_threshold_of_the_rows_and_gains_by_it() -> None:
    unfitted, fitted = (
        next(one for one in predict_baselines(TESTED, fitting, judged(TESTED)) if one.key == "overlap")
        for fitting in (BaselineData(), BaselineData(rows=ROWS, name="200 rows"))
    )
    assert (unfitted.fitted_on, fitted.fitted_on) == (MEDIAN, "200 rows")
    assert fitted.predictions == overlap_predictions(TESTED, threshold=fit_overlap(ROWS))
    assert macro_f1(fitted.predictions) > macro_f1(unfitted.predictions)


def test_the_majority_is_that_of_the_tested_rows_and_trees_are_fitted_where_they_are_asked_for() -> None:
    few = sorted(TESTED, key=lambda row: row.label != "hallucinated")[:100]  # about three of four are hallucinated
    for rows, wanted in ((TESTED, "faithful"), (few, "hallucinated"), (few[:60] + TESTED[:100], None)):
        found = {one.key: one for one in predict_baselines(rows, BaselineData(rows=ROWS), judged(rows))}
        assert "counted" not in found
        common = sum(row.label == "hallucinated" for row in rows) * 2 > len(rows)
        expected = wanted or ("hallucinated" if common else "faithful")
        assert {said.label for said in found["majority"].predictions.values()} == {expected}


def test_a_score_at_the_threshold_is_called_hallucinated() -> None:
    rows = [replace(row, label="hallucinated" if place % 2 else "faithful") for place, row in enumerate(ROWS[:40])]
    scores = {row.id: place % 2 * 0.5 + 0.25 for place, row in enumerate(rows)}
    own = {id_: Prediction(id=id_, label="faithful", score=score) for id_, score in scores.items()}
    at_it = {id_: Prediction(id=id_, label=label, score=0.5) for id_, label in (("x", "faithful"), ("y", "unparsed"))}
    moved = refit_threshold(at_it, BaselineData(rows=rows, model_predictions=own))
    assert moved is not None and moved.threshold == 0.5
    labels = {name: one.label for name, one in moved.predictions.items()}
    assert labels == {"x": "hallucinated", "y": "unparsed"}


def test_the_thresholds_that_a_folder_keeps_are_those_of_its_rows() -> None:
    kept = read_baseline_thresholds(baseline_thresholds(ROWS))
    assert kept.fit_overlap() == fit_overlap(ROWS) and kept.fit_overlap("f1") == fit_overlap(ROWS, "f1")
    assert kept.name == "200 validation rows of the training on made" and kept.length == fit_length(ROWS)
    for strange in ({}, {"baselines": 5}, {"baselines": {"word_overlap": [1]}}, {"baselines": {"word_overlap": {}}}):
        assert read_baseline_thresholds(strange).fit_overlap() is None
    assert read_baseline_thresholds(baseline_thresholds([])).fit_overlap() is None


def test_counted_features_choose_their_threshold_on_rows_that_they_have_not_learnt() -> None:
    found = fit_counted_features_by_folds(ROWS)
    assert found is not None and macro_f1(found.predictions(TESTED)) > 0.75
    # A pair of which every row has its own label by chance: trees that knew these rows would be sure of all of them.
    draw = random.Random(3)
    noise = [replace(row, label=draw.choice(["faithful", "hallucinated"])) for row in ROWS]
    guessed = fit_counted_features_by_folds(noise)
    assert guessed is not None and macro_f1(guessed.predictions(TESTED)) < 0.65
    assert fit_counted_features_by_folds(ROWS[:10]) is None


def test_the_model_is_fitted_on_the_named_rows_as_its_baselines_are() -> None:
    said = judged(TESTED, bias=0.3)  # in order, but its threshold is far off
    fitting = BaselineData(rows=ROWS, name="200 rows", learn=True, model_predictions=judged(ROWS, seed=5, bias=0.3))
    found = {one.key: one for one in predict_baselines(TESTED, fitting, said)}
    assert list(found) == ["majority", "overlap", "length", "random", "counted", "refitted"]
    assert macro_f1(found["refitted"].predictions) > macro_f1(said) + 0.1
    unscored = replace(fitting, model_predictions={row.id: Prediction(id=row.id, label="faithful") for row in ROWS})
    assert "refitted" not in {one.key for one in predict_baselines(TESTED, unscored, said)}


def test_the_report_gives_what_the_model_has_over_each_baseline() -> None:
    said = judged(TESTED)
    data = BaselineData(rows=ROWS, name="200 rows", counted=fit_counted_features(ROWS))
    report = label_report(TESTED, said, title="test/made", baseline_data=data, num_resamples=200)
    found = report.metrics
    for key in ("majority", "overlap", "length", "counted"):
        difference = found[f"difference/{key}_macro_f1"]
        expected = found["macro_f1"].value - found[f"{key}_macro_f1"].value
        assert difference.value == pytest.approx(expected) and difference.low < difference.value < difference.high
        assert 0 < found[f"p_value/{key}_macro_f1"].value <= 1
    shown = render_text(*report.headline, *report.tables)
    unfitted = label_report(TESTED, said, title="t", num_resamples=5).metrics
    assert "boosted trees" in shown and not any("counted" in name for name in unfitted)
    assert "model - baseline" in shown and "200 rows" in shown and all(len(line) <= 80 for line in shown.splitlines())


def test_a_coin_is_thrown_for_each_row_by_itself() -> None:
    found, again = (
        next(one.predictions for one in predict_baselines(rows, BaselineData(), judged(rows)) if one.key == "random")
        for rows in (TESTED, TESTED[::2])
    )
    assert again == {example.id: found[example.id] for example in TESTED[::2]}
    assert 0.3 < sum(one.label == "hallucinated" for one in found.values()) / len(found) < 0.7
    assert 0.3 < macro_f1(found) < 0.7


def test_the_cross_fitted_majority_is_one_label_for_all_rows() -> None:
    # Five groups of four: the majority of each fold is its own, that of all 20 rows (12 faithful) is one.
    labels = ["ffff", "fffh", "hhhf", "hhhf", "ffhf"]
    letters = {"f": "faithful", "h": "hallucinated"}
    names = [(group, place) for group in range(5) for place in range(4)]
    rows = [
        replace(one, id=f"{group}{place}", group=str(group), label=letters[labels[group][place]])
        for one, (group, place) in zip(ROWS, names, strict=False)
    ]
    found, shown = cross_fit_baselines(rows)
    assert shown["majority"] == "majority"
    assert {one.label for one in found["majority"].values()} == {"faithful"}
    scored = classification_metrics(join_outcomes(rows, found["majority"])).metrics
    assert scored["macro_f1"].value == pytest.approx((2 * 12 / (20 + 12) + 0) / 2)
    assert scored["macro_f1"].value == pytest.approx(scored["majority_macro_f1"].value)
