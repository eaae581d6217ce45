"""Figures by turn and by conversation follow from the labels of turns; the first hallucinated turn is looked for."""

import pytest

from faithkit.records import Example, Prediction
from faithkit.reports.conversation_report import REPEATED, conversation_report
from faithkit.reports.report import Report

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
            values = {"source": "t", "split": "test", "group": name, "knowledge": "k", "response": "r"}
            examples.append(Example(id=id_, label=LABELS[label], meta={"turn": turn}, **values))
            predictions[id_] = Prediction(id=id_, label=LABELS[call], score=SCORES[call])
    found = conversation_report(examples[::-1], predictions, title="test/t", num_resamples=20)
    assert found is not None
    return found


def test_a_conversation_is_hallucinated_if_any_turn_is() -> None:
    found = report()
    values = {name: metric.value for name, metric in found.metrics.items()}
    assert values["conversation/recall"] == 3 / 4 and values["conversation/precision"] == 3 / 4
    assert values["conversation/gold_rate"] == 4 / 7 and values["conversation/unparsed_rate"] == 1 / 7
    # Of 4 x 3 pairs, one hallucinated conversation ties with a faithful one, and one is below two of them.
    assert values["conversation/auroc"] == pytest.approx((3 * 2.5 + 0.5) / 12)
    assert found.metrics["conversation/macro_f1"].n == 7 and "every conversation" in str(
        found.headline[1].columns[0]._cells
    )


def test_the_first_called_turn_is_right_early_or_late() -> None:
    found = report()
    shares = {name: metric for name, metric in found.metrics.items() if name.startswith("first_turn/")}
    assert {name: metric.value for name, metric in shares.items()} == {
        "first_turn/right": 1 / 4,
        "first_turn/early": 1 / 4,
        "first_turn/late": 2 / 4,
    }
    assert {metric.n for metric in shares.values()} == {4}, "of the hallucinated conversations"


def test_turns_are_counted_by_their_number() -> None:
    found = report()
    assert [found.metrics[f"turn/{turn}/accuracy"].n for turn in (1, 2, 3)] == [7, 7, 4]
    assert found.metrics["turn/1/gold_rate"].value == 1 / 7
    assert found.metrics["turn/3/accuracy"].value == 1


def test_without_hallucinated_conversations_there_is_no_first_turn() -> None:
    found = report({"quiet": ("ff", "ff"), "alarm": ("ff", "fh")})
    assert not any(name.startswith("first_turn/") for name in found.metrics)


def test_other_rows_have_no_conversations() -> None:
    values = {"source": "t", "split": "test", "group": "1", "knowledge": "k", "response": "r", "label": "faithful"}
    for meta in ({}, {"turn": 1}):  # without turns, or only first ones
        examples = [Example(id=id_, meta=meta, **values) for id_ in "ab"]
        predictions = {one.id: Prediction(id=one.id, label="faithful") for one in examples}
        assert conversation_report(examples, predictions, title="t") is None


def test_several_responses_to_a_turn_have_figures_by_turn_alone() -> None:
    values = {"source": "t", "split": "test", "group": "1", "knowledge": "k", "response": "r", "label": "faithful"}
    rows = [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    for has_model in (False, True):
        examples = [
            Example(id=f"{turn}{model}", meta={"turn": turn} | ({"model": model} if has_model else {}), **values)
            for turn, model in rows
        ]
        predictions = {one.id: Prediction(id=one.id, label="faithful") for one in examples}
        found = conversation_report(examples, predictions, title="t", num_resamples=20)
        assert found is not None and "turn/2/accuracy" in found.metrics
        assert (found.notes == (REPEATED,)) is not has_model
        assert ("conversation/accuracy" in found.metrics) is has_model
