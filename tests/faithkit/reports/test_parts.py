"""A detector's figures by part of a test set, with baselines of each part and the papers' figures."""

import random

import pytest

from faithkit.baselines.simple_detectors import BaselineData
from faithkit.metrics.classification import classification_metrics, join_outcomes
from faithkit.pages.page_tables import render_text
from faithkit.published.figures import judge_figures
from faithkit.records import Example, Prediction
from faithkit.reports.label_tables import divide, label_report
from tests.data_modules.examples import example


def rows(source: str = "halueval") -> list[Example]:
    """Long hallucinated answers to questions; summaries that are all of one length."""
    draw, found = random.Random(0), []
    for number in range(80):
        wrong, task = number % 2 == 1, ("qa", "summarization")[number // 2 % 2]
        size = 30 if task == "summarization" else draw.randint(40, 60) if wrong else draw.randint(5, 15)
        types = {"type": ("a", "b")[number // 8 % 2]} if wrong and source == "diahalu" else {}
        meta = {"task": task, "domain": task, "scenario": task} | types
        values = {"id": str(number), "source": source, "group": str(number // 2), "response": "x" * size}
        found.append(example(**values, label="hallucinated" if wrong else "faithful", meta=meta))
    return found


def said(examples: list[Example]) -> dict[str, Prediction]:
    """Right about summaries, and calling every answer faithful."""
    wrong = {e.id: e.label == "hallucinated" and e.meta["task"] == "summarization" for e in examples}
    return {
        id_: Prediction(id=id_, label="hallucinated" if one else "faithful", score=float(one))
        for id_, one in wrong.items()
    }


def test_each_part_has_its_own_figures_and_its_own_baselines() -> None:
    examples = rows()
    found = label_report(examples, said(examples), title="test/halueval", num_resamples=50).metrics
    assert found["task/summarization/macro_f1"].value == 1.0
    assert found["task/qa/recall"].value == 0.0 and found["task/qa/macro_f1"].n == 40
    qa = {e.id: e for e in examples if e.meta["task"] == "qa"}
    alone = classification_metrics(
        join_outcomes(list(qa.values()), {k: v for k, v in said(examples).items() if k in qa})
    )
    assert found["task/qa/accuracy"].value == alone.metrics["accuracy"].value
    # The median length of the answers parts them, that of the summaries nothing.
    assert found["task/qa/length_macro_f1"].value == 1.0
    assert found["task/summarization/length_auroc"].value == 0.5
    assert found["length_macro_f1"].value < 0.9  # of all together


def test_a_fitted_length_is_fitted_on_the_named_rows_in_every_part() -> None:
    examples = rows()
    fitting = BaselineData(rows=rows(), name="80 rows", learn=True, model_predictions=said(examples))
    report = label_report(examples, said(examples), title="test/halueval", baseline_data=fitting, num_resamples=50)
    assert report.metrics["task/qa/length_f1"].value == 1.0
    assert not [name for name in report.metrics if name.startswith("task/") and "counted" in name]


def test_errors_are_also_shown_by_relation_and_element() -> None:
    errors = ["number"] * 4 + ["contradiction"] * 2 + ["addition"] * 2
    labelled = [("hallucinated", {"error": error}) for error in errors] + [("faithful", {})] * 2
    examples = [
        example(id=str(number), source="everyday", label=label, meta={"style": "news"} | error)
        for number, (label, error) in enumerate(labelled)
    ]
    called = {"0", "1", "2", "6"}  # three numbers and an addition
    predictions = {
        one.id: Prediction(id=one.id, label="hallucinated" if one.id in called else "faithful") for one in examples
    }
    report = label_report(examples, predictions, title="test/everyday", num_resamples=20)
    found = {name: one for name, one in report.metrics.items() if name.endswith("/recall")}
    shown = {name: (one.value, one.n) for name, one in found.items() if name.split("/")[0] in ("relation", "element")}
    assert shown == {
        "relation/contradiction/recall": (0.5, 6),
        "relation/unsupported_addition/recall": (0.5, 2),
        "element/number/recall": (0.75, 4),
        "element/claim/recall": (0.5, 2),
    }
    assert "test/everyday, recall by element, percent" in [str(table.title) for table in report.tables]


def test_types_have_recall_alone() -> None:
    examples = rows("diahalu")
    report = label_report(examples, said(examples), title="test/diahalu", dataset="diahalu", num_resamples=50)
    names = {name for name in report.metrics if name.startswith("type/a/")}
    baselines = ("overlap", "length", "majority", "random")
    assert names == {"type/a/recall", *(f"type/a/{baseline}_recall" for baseline in baselines)}
    wrong = [e for e in examples if e.meta.get("type") == "a"]
    expected = sum(e.meta["task"] == "summarization" for e in wrong) / len(wrong)
    assert report.metrics["type/a/recall"].value == pytest.approx(expected)


def test_the_papers_systems_stand_under_ours_where_the_files_are_the_papers() -> None:
    examples = rows()
    options = {"title": "test/halueval", "num_resamples": 20, "num_examples": 0}
    shown = render_text(*label_report(examples, said(examples), dataset="halueval", **options).tables)
    assert "GPT-3.5-turbo *" in shown and "Luo et al. 2024" in shown and "response length" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "means over both classes" in shown and "81.5" in shown, "GPT-3.5-turbo's mean precision on questions"
    assert "unparsed" not in shown
    parts = shown.partition("by task")[2].splitlines()
    assert next(line for line in parts if "model" in line).count("[") == 1, "the headline alone has its interval"
    assert "GPT-3.5-turbo" not in render_text(*label_report(examples, said(examples), **options).tables)


def test_replies_that_cannot_be_read_are_counted_by_part() -> None:
    examples = rows()
    found = said(examples) | {"0": Prediction(id="0", label="unparsed")}
    shown = render_text(*label_report(examples, found, title="test/halueval", num_resamples=20, num_examples=0).tables)
    assert "unparsed: all 1.2%, qa 2.5%, summarization 0.0%" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_dataset_without_parts_is_reported_as_before() -> None:
    examples = rows("begin")
    report = label_report(examples, said(examples), title="test/begin", num_resamples=20, num_examples=0)
    assert len(report.tables) == 1 and not [name for name in report.metrics if name.startswith("task/")]


def test_published_figures_are_sorted_and_parted() -> None:
    best, *others = judge_figures("halludial")
    assert (best.system, best.macro_f1, best.f1, best.precision) == ("HalluJudge", 84.92, 80.07, None)
    assert len(others) == 20
    assert judge_figures("halludial", "spontaneous")[0].macro_f1 == 72.18
    assert judge_figures("halueval", "dialogue")[0].macro_f1 == 82.64
    assert judge_figures("diahalu", "reasoning")[0].f1 == 78.92
    assert judge_figures("begin") == ()


def test_a_second_field_of_one_value_divides_nothing() -> None:
    def parts(*kinds: str) -> list[tuple[str, str, int]]:
        rows = [example(source="s", meta={"task": "qa", "kind": kind}) for kind in kinds]
        return [(field, value, len(found)) for field, value, found in divide(rows, {"s": ("task", "kind")})]

    assert parts("x", "x") == [("task", "qa", 2)]
    assert parts("x", "y", "y") == [("task", "qa", 3), ("kind", "x", 1), ("kind", "y", 2)]
