import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk
from torchmetrics.functional.classification import binary_calibration_error

from faithkit.errors import UserError
from faithkit.metrics.classification import (
    CLASSES,
    Outcomes,
    classification_metrics,
    classification_statistic,
    join_outcomes,
    score_validation,
)
from faithkit.records import LABELS, Prediction
from faithkit.statistics.bootstrap import Groups
from tests.data_modules.examples import example as make_example

# Few distinct values, so that ties are common; 1.0 apart, because torchmetrics gives it a bin of its own.
SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5000001, 0.73, 0.9, 0.99]) | st.floats(0, 1, exclude_max=True)
ROW = st.tuples(st.booleans(), st.integers(0, 2), SCORES, st.integers(0, 4))


def outcomes_of(rows):
    gold, called, scores, groups = (np.array(column) for column in zip(*rows, strict=True))
    names = Groups.of(f"group {group}" for group in groups)
    return Outcomes(gold.astype(np.int8), called.astype(np.int8), scores.astype(float), names)


def expected(gold, called, scores):
    """Asks scikit-learn and torchmetrics; None if the class balance does not define it."""
    gold = gold.astype(int)
    both = 0 < gold.sum() < len(gold)
    options = {"labels": [0, 1], "zero_division": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "macro_f1": sk.f1_score(gold, called, average="macro", **options),
            "f1": sk.f1_score(gold, called, average=None, **options)[1],
            "precision": sk.precision_score(gold, called, average=None, **options)[1],
            "recall": sk.recall_score(gold, called, average=None, **options)[1],
            "faithful_f1": sk.f1_score(gold, called, average=None, **options)[0],
            "mean_precision": sk.precision_score(gold, called, average="macro", **options),
            "mean_recall": sk.recall_score(gold, called, average="macro", **options),
            "accuracy": sk.accuracy_score(gold, called),
            "balanced_accuracy": sk.balanced_accuracy_score(gold, called) if both else None,
            "auroc": sk.roc_auc_score(gold, scores) if both else None,
            "average_precision": sk.average_precision_score(gold, scores) if both else None,
            "brier": sk.brier_score_loss(gold, scores, pos_label=1),
            "ece": float(binary_calibration_error(torch.tensor(scores), torch.tensor(gold), n_bins=15)),
            "unparsed_rate": np.mean(called == 2),
            "predicted_rate": np.mean(called == 1),
            "gold_rate": gold.mean(),
        }


def test_a_validation_has_the_cross_entropy_beside_its_metrics():
    found = score_validation([0.9, 0.2, 0.5], [1, 0, 0])
    assert found["loss"] == pytest.approx(-np.log([0.9, 0.8, 0.5]).mean())
    assert found["recall"] == 1 and found["precision"] == 0.5
    assert score_validation([0.0, 0.5], [1, 0])["loss"] < 100, "a certain mistake is bad, but no infinity"


@given(rows=st.lists(ROW, min_size=1, max_size=30))
def test_values_are_those_of_scikit_learn_and_torchmetrics(rows):
    outcomes = outcomes_of(rows)
    found = classification_metrics(outcomes, num_resamples=20).metrics
    for name, value in expected(outcomes.gold, outcomes.called, outcomes.scores).items():
        if value is None:
            assert name not in found
        else:
            assert found[name].value == pytest.approx(value, abs=1e-9), name
    majority = np.full(len(rows), int(outcomes.gold.mean() > 0.5))
    as_detector = expected(outcomes.gold, majority, outcomes.scores)
    assert found["majority_accuracy"].value == pytest.approx(as_detector["accuracy"], abs=1e-9)
    assert found["majority_macro_f1"].value == pytest.approx(as_detector["macro_f1"], abs=1e-9)
    for metric in found.values():
        assert metric.low <= metric.value <= metric.high
        assert metric.n == len(rows)


def undefined(name, outcomes, times):
    """Tells whether a resample leaves 0/0 where the data as a whole does not."""
    gold, called = outcomes.gold, outcomes.called
    whole = {"recall": gold == 1, "precision": called == 1, "f1": (gold == 1) | (called == 1)}
    whole |= {"faithful_recall": gold == 0, "faithful_precision": called == 0}
    whole["faithful_f1"] = (gold == 0) | (called == 0)
    lost = {short: rows.any() and not times[rows].sum() for short, rows in whole.items()}
    of_both = name.partition("_")[2] if name.startswith(("macro_", "mean_")) else ""
    return lost.get(name, False) or bool(of_both and (lost[of_both] or lost[f"faithful_{of_both}"]))


@given(rows=st.lists(ROW, min_size=1, max_size=15), drawn=st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_a_resample_is_worth_its_rows_written_out(rows, drawn):
    outcomes = outcomes_of(rows)
    weights = np.array(drawn[: outcomes.groups.count])
    times = weights[outcomes.groups.index]
    if not times.sum():
        return
    found = classification_statistic(outcomes)(np.stack([weights, weights]).astype(float))
    written_out = [np.repeat(array, times) for array in (outcomes.gold, outcomes.called, outcomes.scores)]
    for name, value in expected(*written_out).items():
        if name in found and not undefined(name, outcomes, times):
            first, second = found[name]
            assert first == pytest.approx(np.nan if value is None else value, abs=1e-9, nan_ok=True), name
            assert first == pytest.approx(second, abs=0, nan_ok=True)


def example(id_, label, group="g"):
    return make_example(id=id_, label=label, group=group)


def predicted(**labels):
    return {id_: Prediction(id=id_, label=label, score=None) for id_, label in labels.items()}


EXAMPLES = [example("a", "hallucinated", "1"), example("b", "faithful", "2"), example("c", "hallucinated", "3")]


def test_an_unparsed_reply_is_wrong_and_counted_but_no_label():
    found = classification_metrics(
        join_outcomes(EXAMPLES, predicted(a="hallucinated", b="unparsed", c="unparsed")), num_resamples=50
    )
    values = {name: metric.value for name, metric in found.metrics.items()}
    assert values["accuracy"] == pytest.approx(1 / 3)
    assert values["unparsed_rate"] == pytest.approx(2 / 3)
    assert (values["precision"], values["recall"]) == (1.0, 0.5)  # b is not a false alarm, c is missed
    assert values["macro_f1"] == pytest.approx((2 / 3 + 0) / 2)
    assert not {"auroc", "ece"} & set(values)
    assert "no prediction has a score" in found.notes[0]


def test_rows_without_a_score_are_left_out_of_the_ranking_and_said():
    predictions = predicted(a="hallucinated", b="faithful", c="unparsed")
    predictions["a"] = Prediction(id="a", label="hallucinated", score=0.9)
    predictions["b"] = Prediction(id="b", label="faithful", score=0.2)
    found = classification_metrics(join_outcomes(EXAMPLES, predictions), num_resamples=50)
    assert (found.metrics["auroc"].value, found.metrics["auroc"].n, found.metrics["accuracy"].n) == (1.0, 2, 3)
    assert found.notes[0].startswith("1 of 3 predictions have no score")
    assert found.metrics["brier"].value == pytest.approx((0.1**2 + 0.2**2) / 2)
    assert found.metrics["ece"].value == pytest.approx((0.1 + 0.2) / 2)


def test_one_class_alone_is_said_and_never_nan():
    found = classification_metrics(join_outcomes(EXAMPLES[1:2], predicted(b="faithful")), num_resamples=50)
    assert found.metrics["accuracy"].value == 1.0 and "balanced_accuracy" not in found.metrics
    notes = " / ".join(found.notes)
    assert "every example is faithful" in notes and "only 1 group" in notes


@pytest.mark.parametrize(
    ("examples", "predictions", "message"),
    [
        (
            EXAMPLES,
            predicted(a="faithful", x="faithful", y="faithful"),
            r"2 of 3 examples have no prediction \('b', 'c'\); 2 of 3 predictions have no example \('x', 'y'\)",
        ),
        (EXAMPLES[:1], predicted(a="faithful", x="faithful", y="faithful"), "2 of 3 predictions have no example"),
        (EXAMPLES, {}, r"3 of 3 examples have no prediction \('a', 'b', 'c'\)"),
        ([*EXAMPLES, example("d", "faithful", "4")], {}, r"4 of 4 .* \('a', 'b', 'c', \.\.\.\)"),
        ([], {}, "no examples"),
        ([EXAMPLES[0]] * 2, predicted(a="faithful"), "two examples have the id 'a'"),
        ([example("a", None)], predicted(a="faithful"), r"1 of 1 examples have no gold label \('a'\)"),
        (EXAMPLES[:1], {"a": Prediction(id="a", text="a response")}, "1 of 1 predictions have no label"),
    ],
)
def test_examples_and_predictions_that_do_not_belong_together_are_refused(examples, predictions, message):
    with pytest.raises(UserError, match=message):
        join_outcomes(examples, predictions)


def test_the_order_of_rows_changes_nothing():
    rng = np.random.default_rng(0)
    examples = [example(f"{row}", LABELS[rng.integers(2)], f"{row % 17}") for row in range(100)]
    predictions = {e.id: Prediction(id=e.id, label=CLASSES[rng.integers(3)], score=rng.random()) for e in examples}
    forward = classification_metrics(join_outcomes(examples, predictions), num_resamples=100).metrics
    backward = classification_metrics(join_outcomes(examples[::-1], predictions), num_resamples=100).metrics
    for name, metric in forward.items():
        assert backward[name].to_dict() == pytest.approx(metric.to_dict(), abs=1e-12)


@pytest.mark.parametrize(("rare", "count"), [("faithful", 29), ("hallucinated", 29), ("faithful", 30)])
def test_few_rows_of_a_class_are_said_whichever_it_is(rare, count):
    common = LABELS[1 - LABELS.index(rare)]
    examples = [example(f"{row}", rare if row < count else common, f"{row}") for row in range(100)]
    predictions = {e.id: Prediction(id=e.id, label=e.label) for e in examples}
    notes = " / ".join(classification_metrics(join_outcomes(examples, predictions), num_resamples=9).notes)
    assert (f"only {count} rows of the rarer class" in notes) == (count < 30)


@pytest.mark.parametrize("called", ["faithful", "hallucinated"])
def test_a_detector_that_calls_nothing_is_told_so(called):
    predictions = predicted(a=called, b="faithful", c="faithful")
    found = classification_metrics(join_outcomes(EXAMPLES, predictions), num_resamples=9)
    assert ("no row is called hallucinated: precision counts as 0" in found.notes) == (called == "faithful")
    assert (found.metrics["precision"].value == 0) == (called == "faithful")
