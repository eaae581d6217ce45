"""Benchmarks of several sets are scored as their leaderboards do; figures by conversation follow from its turns."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from faithkit.baselines.simple_detectors import BaselineData
from faithkit.pages.page_tables import render_text
from faithkit.published.figures import set_figures
from faithkit.records import Example, Prediction, Span
from faithkit.reports.part_reports import REPEATED, conversation_report, set_report
from faithkit.reports.report import Report
from tests.data_modules.examples import example

SETS = ("Wice", "Reveal", "Lfqa")


def rows(source: str, field: str, sets: tuple[str, ...], per_set: int = 40) -> list[Example]:
    made = []
    for number in range(per_set * len(sets)):
        values = {"id": str(number), "source": source, "group": f"g{number // 2}"}
        label = "hallucinated" if number * 7 % 5 < 2 else "faithful"
        made.append(example(**values, response="0123456789", label=label, meta={field: sets[number % len(sets)]}))
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
    for metric in report.metrics.values():
        assert metric.low is not None and metric.high is not None and metric.low <= metric.value <= metric.high
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
        scores = [one.score for one in said]
        expected[name] = roc_auc_score(gold, scores) if is_area else balanced_accuracy_score(gold, called)
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
        gold, theirs = (
            tuple(Span(start=start, end=end, label="hallucination") for start, end in each)
            for each in (spans, found[id_])
        )
        label, meta = "hallucinated" if spans else "faithful", {"language": "en" if id_ < "2" else "fi"}
        examples.append(example(id=id_, source="psiloqa", response="0123456789", spans=gold, label=label, meta=meta))
        predictions[id_] = Prediction(id=id_, label="faithful", spans=theirs)
    report = set_report(examples, predictions, title="t", num_resamples=20)
    assert report is not None
    scored = {name: metric.value for name, metric in report.metrics.items()}
    assert scored == pytest.approx({"set/en/iou": (2 / 6 + 1) / 2, "set/fi/iou": (1 + 0) / 2, "mean/iou": 7 / 12})
    unmarked = {id_: Prediction(id=id_, label="faithful") for id_ in marked}
    assert set_report(examples, unmarked, title="t") is None, "a critic marks nothing"


# By conversation: the labels of its turns, and what a detector calls them: h hallucinated, f faithful, u unparsed.
CONVERSATIONS = {
    "right": ("ffh", "ffh"),
    "early": ("fhf", "hhf"),
    "late": ("hff", "fhf"),
    "never": ("fh", "ff"),
    "alarm": ("fff", "fhf"),
    "quiet": ("ff", "ff"),
    "unread": ("ff", "fu"),
}
LABELS = {"h": "hallucinated", "f": "faithful", "u": "unparsed"}
SCORES = {"h": 0.9, "f": 0.1, "u": 0.5}


def report(conversations: dict[str, tuple[str, str]] = CONVERSATIONS) -> Report:
    examples, predictions = [], {}
    for name, (gold, called) in conversations.items():
        for turn, (label, call) in enumerate(zip(gold, called, strict=True), start=1):
            id_ = f"{name}:{turn}"
            examples.append(example(id=id_, group=name, label=LABELS[label], meta={"turn": turn}))
            predictions[id_] = Prediction(id=id_, label=LABELS[call], score=SCORES[call])
    found = conversation_report(examples[::-1], predictions, title="test/t", num_resamples=20)
    assert found is not None
    return found


def test_conversations_and_turns_have_their_own_figures() -> None:
    found = report()
    values = {name: metric.value for name, metric in found.metrics.items()}
    assert values["conversation/recall"] == 3 / 4 and values["conversation/precision"] == 3 / 4, "any turn decides"
    assert values["conversation/gold_rate"] == 4 / 7 and values["conversation/unparsed_rate"] == 1 / 7
    # Of 4 x 3 pairs, one hallucinated conversation ties with a faithful one, and one is below two of them.
    assert values["conversation/auroc"] == pytest.approx((3 * 2.5 + 0.5) / 12)
    assert found.metrics["conversation/macro_f1"].n == 7
    assert "every conversation" in str(found.headline[1].columns[0]._cells)
    shares = {name: (one.value, one.n) for name, one in found.metrics.items() if name.startswith("first_turn/")}
    assert shares == {  # of the four hallucinated conversations
        "first_turn/right": (1 / 4, 4),
        "first_turn/early": (1 / 4, 4),
        "first_turn/late": (2 / 4, 4),
    }
    assert [found.metrics[f"turn/{turn}/accuracy"].n for turn in (1, 2, 3)] == [7, 7, 4]
    assert values["turn/1/gold_rate"] == 1 / 7 and values["turn/3/accuracy"] == 1


def test_without_hallucinated_conversations_there_is_no_first_turn() -> None:
    found = report({"quiet": ("ff", "ff"), "alarm": ("ff", "fh")})
    assert not any(name.startswith("first_turn/") for name in found.metrics)


def test_other_rows_have_no_conversations() -> None:
    for meta in ({}, {"turn": 1}):  # without turns, or only first ones
        examples = [example(group="1", meta=meta) for _ in "ab"]
        predictions = {one.id: Prediction(id=one.id, label="faithful") for one in examples}
        assert conversation_report(examples, predictions, title="t") is None


def test_several_responses_to_a_turn_have_figures_by_turn_alone() -> None:
    for has_model in (False, True):
        examples = [
            example(group="1", meta={"turn": turn} | ({"model": model} if has_model else {}))
            for turn in (1, 2)
            for model in "ab"
        ]
        predictions = {one.id: Prediction(id=one.id, label="faithful") for one in examples}
        found = conversation_report(examples, predictions, title="t", num_resamples=20)
        assert found is not None and "turn/2/accuracy" in found.metrics
        assert (found.notes == (REPEATED,)) is not has_model
        assert ("conversation/accuracy" in found.metrics) is has_model
