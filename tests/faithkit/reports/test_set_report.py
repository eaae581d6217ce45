"""Benchmarks of several sets are scored as their leaderboards do, beside the figures of others."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from faithkit.baselines.simple_detectors import BaselineData
from faithkit.pages.page_tables import render_text
from faithkit.published.figures import set_figures
from faithkit.records import Example, Prediction, Span
from faithkit.reports.report import Report
from faithkit.reports.set_report import set_report

SETS = ("Wice", "Reveal", "Lfqa")


def rows(source: str, field: str, sets: tuple[str, ...], per_set: int = 40) -> list[Example]:
    made = []
    for number in range(per_set * len(sets)):
        values = {"id": str(number), "source": source, "split": "test", "group": f"g{number // 2}", "knowledge": "k"}
        label = "hallucinated" if number * 7 % 5 < 2 else "faithful"
        made.append(Example(**values, response="0123456789", label=label, meta={field: sets[number % len(sets)]}))  # type: ignore[arg-type]
    return made


def predict(examples: list[Example], seed: int = 0, threshold: float = 0.6) -> dict[str, Prediction]:
    scores = np.random.default_rng(seed).random(len(examples))
    scores = 0.7 * scores + [0.3 * (one.label == "hallucinated") for one in examples]
    return {
        one.id: Prediction(id=one.id, label="hallucinated" if score >= threshold else "faithful", score=float(score))
        for one, score in zip(examples, scores, strict=True)
    }


def values(report: Report | None) -> dict[str, float]:
    assert report is not None
    assert all(
        metric.low is not None and metric.low <= metric.value <= metric.high for metric in report.metrics.values()
    )  # type: ignore[operator]
    return {name: metric.value for name, metric in report.metrics.items()}


@pytest.mark.parametrize(
    ("source", "sets", "metric", "not_in_mean"),
    [("aggrefact", SETS, "balanced_accuracy", ()), ("true_sets", ("frank", "paws", "fever"), "auroc", ("fever",))],
)
def test_each_set_is_scored_and_their_mean(
    source: str, sets: tuple[str, ...], metric: str, not_in_mean: tuple[str, ...]
) -> None:
    examples = rows(source, "set", sets)
    found, expected = predict(examples), {}
    scored = values(set_report(examples, found, title="t", num_resamples=50))
    for name in sets:
        part = [one for one in examples if one.meta["set"] == name]
        gold, said = [one.label == "hallucinated" for one in part], [found[one.id] for one in part]
        called = [one.label == "hallucinated" for one in said]
        is_area = metric == "auroc"
        expected[name] = (
            roc_auc_score(gold, [one.score for one in said]) if is_area else balanced_accuracy_score(gold, called)
        )
        assert scored[f"set/{name}/{metric}"] == pytest.approx(expected[name])
    mean = np.mean([value for name, value in expected.items() if name not in not_in_mean])
    assert scored[f"mean/{metric}"] == pytest.approx(mean)


def test_a_threshold_of_other_rows_stands_beside_the_detectors_own() -> None:
    examples, others = rows("aggrefact", "set", SETS), rows("aggrefact", "set", SETS)
    fitting = BaselineData(rows=others, name="120 rows of dev", model_predictions=predict(others, seed=1))
    report = set_report(examples, predict(examples, threshold=0.999), title="t", fitting=fitting, num_resamples=50)
    scored = values(report)
    assert scored["fitted/mean/balanced_accuracy"] > scored["mean/balanced_accuracy"], "0.999 is far too high"
    assert report is not None and "best macro-F1 on 120 rows of dev" in report.notes[0]


def test_the_model_is_placed_among_the_systems_of_the_leaderboard() -> None:
    examples = rows("aggrefact", "set", SETS)
    right = {one.id: Prediction(id=one.id, label=one.label) for one in examples}
    report = set_report(examples, right, title="t", dataset="aggrefact", num_resamples=20)
    assert report is not None
    shown = render_text(*report.headline)
    best = max(row["Wice"] for row, _ in set_figures("aggrefact"))
    assert f"{best:.1f}" in next(line for line in shown.splitlines() if line.startswith(" Wice"))
    assert "place 1 of 40; the mean of 3 sets" in shown and "Tang et al. 2024" in shown
    without = set_report(examples, right, title="t", num_resamples=20)
    assert without is not None and "*" not in render_text(*without.headline), "embedded rows are not the leaderboard's"


def test_a_set_of_one_label_is_left_out_of_the_mean_and_named() -> None:
    examples = [one for one in rows("aggrefact", "set", SETS) if one.meta["set"] != "Lfqa" or one.label == "faithful"]
    report = set_report(examples, predict(examples), title="t", num_resamples=20)
    assert "set/Lfqa/balanced_accuracy" not in values(report)
    assert report is not None and report.notes == ("rows of one label, or without scores: Lfqa",)


def test_other_datasets_have_no_such_protocol() -> None:
    examples = rows("begin", "set", SETS)
    assert set_report(examples, predict(examples), title="t") is None


def test_overlap_of_characters_by_language() -> None:
    marked = {"0": [(0, 4)], "1": [], "2": [(2, 6)], "3": []}
    found = {"0": [(2, 6)], "1": [], "2": [(2, 6)], "3": [(0, 1)]}
    examples, predictions = [], {}
    for id_, spans in marked.items():
        values = {"id": id_, "source": "psiloqa", "split": "test", "group": id_, "knowledge": "k"}
        made = [Span(start=start, end=end, label="hallucination") for start, end in spans]
        examples.append(
            Example(
                **values,  # type: ignore[arg-type]
                response="0123456789",
                spans=tuple(made),
                label="hallucinated" if spans else "faithful",
                meta={"language": "en" if id_ < "2" else "fi"},
            )
        )
        theirs = tuple(Span(start=start, end=end, label="hallucination") for start, end in found[id_])
        predictions[id_] = Prediction(id=id_, label="faithful", spans=theirs)
    report = set_report(examples, predictions, title="t", num_resamples=20)
    assert report is not None
    scored = {name: metric.value for name, metric in report.metrics.items()}
    assert scored == pytest.approx({"set/en/iou": (2 / 6 + 1) / 2, "set/fi/iou": (1 + 0) / 2, "mean/iou": 7 / 12})
    unmarked = {id_: Prediction(id=id_, label="faithful") for id_ in marked}
    assert set_report(examples, unmarked, title="t") is None, "a critic marks nothing"
