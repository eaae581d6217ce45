"""Lines of predictions files: what is written beside a prediction, and what any file gives back."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.files.jsonl import read_jsonl, read_predictions, write_jsonl
from faithkit.provenance.predicted_rows import read_predicted_rows, to_line
from faithkit.records import Evidence, Prediction, Span, Turn
from tests.data_modules.examples import example as make_example
from tests.running import evaluate_here

ROWS = ("benchmark=embedded", "benchmark.options.num_test=12", "num_examples=0")


def test_predictions_stand_beside_what_they_are_of(trained: Path, tmp_path: Path) -> None:
    evaluate_here(*ROWS, f"checkpoint={trained}", f"run_dir={tmp_path / 'own'}")
    file = tmp_path / "own" / "predictions" / "embedded.jsonl"
    rows = read_predicted_rows(file).rows
    assert len(rows) == 12 and all(row.has_text and row.example.label for row in rows.values())
    assert len({row.example.group for row in rows.values()}) < 12
    evaluate_here(*ROWS, f"predictions={file}", f"run_dir={tmp_path / 'given'}")
    assert (tmp_path / "given" / "predictions" / "embedded.jsonl").read_bytes() == file.read_bytes()


def test_texts_are_left_out_on_demand(trained: Path, tmp_path: Path) -> None:
    evaluate_here(*ROWS, f"checkpoint={trained}", f"run_dir={tmp_path / 'run'}", "save_texts=false")
    rows = list(read_jsonl(tmp_path / "run" / "predictions" / "embedded.jsonl"))
    assert all(row["gold"] and row["group"] for row in rows)
    assert not any({"knowledge", "history", "response"} & row.keys() for row in rows)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
MARK = Span(start=0, end=2, label="x", score=0.5, element="date")
SAID = Prediction(id="a", label="hallucinated", score=0.75, spans=(MARK,))


def example(**values):
    return make_example(**({"id": "a", "group": "g", "knowledge": "K", "response": "It is."} | values))


@given(TEXT, TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3), st.sampled_from(["hallucinated", "faithful", None]))
def test_what_is_written_comes_back(tmp_path_factory, knowledge, response, turns, label):
    history = tuple(Turn(speaker=speaker, text=text) for speaker, text in turns)
    spans = (Span(start=0, end=len(response), label="x", relation="contradiction", element="unit"),)
    shown = example(knowledge=knowledge, response=response, history=history, label=label, spans=spans, tags=("t",))
    path = tmp_path_factory.mktemp("rows") / "p.jsonl"
    write_jsonl(path, [to_line(SAID, shown)])
    found = read_predicted_rows(path)
    assert found.rows["a"].example == shown and found.rows["a"].prediction == SAID and not found.problems
    assert read_predictions(path) == {"a": SAID}


def test_facts_are_kept_and_long_or_nested_ones_are_not():
    meta = {"task": "qa", "turn": 3, "model": "m" * 200, "domain": ["a"], "whole_knowledge": "text"}
    assert to_line(SAID, example(meta=meta))["facts"] == {"task": "qa", "turn": 3}


def test_without_texts_the_labels_stay_and_no_sentence_of_the_context(tmp_path):
    evidence = Evidence(text="It lasts 24 months.", end=19, reason="the context says 24 months")
    mark = Span(start=0, end=2, label="hallucination", score=0.9, text="It", evidence=evidence)
    said = Prediction(id="a", label="hallucinated", score=0.9, spans=(mark,))
    history = (Turn(speaker="u", text="Q"),)
    shown = example(spans=(Span(start=0, end=2, label="x"),), meta={"task": "qa"}, history=history)
    assert to_line(said, shown)["spans"] == said.to_dict()["spans"]
    line = to_line(said, shown, texts=False)
    assert not {"knowledge", "history", "response"} & line.keys()
    assert line["spans"] == [{"start": 0, "end": 2, "label": "hallucination", "score": 0.9}]
    write_jsonl(tmp_path / "p.jsonl", [line])
    row = read_predicted_rows(tmp_path / "p.jsonl").rows["a"]
    found = row.example.label, row.example.group, row.example.meta, row.has_text
    assert found == ("faithful", "g", {"task": "qa"}, False)


def test_an_answer_stands_beside_its_reference(tmp_path):
    write_jsonl(tmp_path / "p.jsonl", [to_line(Prediction(id="a", text="An answer."), example(), generated=True)])
    row = read_predicted_rows(tmp_path / "p.jsonl").rows["a"]
    assert (row.prediction.text, row.example.response, row.example.label) == ("An answer.", "It is.", None)


@pytest.mark.parametrize(
    "more",
    [
        {"gold": 1, "gold_spans": 5, "history": "Q", "facts": [1], "tags": 3, "group": None},
        {"gold_spans": [{"start": 0}], "response": "It."},
        {"gold_spans": [{"start": 0, "end": 99, "label": "x"}], "response": "It."},
        {"gold_spans": ["x"], "response": "It."},
        {"history": [1, {"text": 5}], "knowledge": 7, "response": {}},
    ],
)
def test_other_values_under_our_names_stop_nothing(tmp_path, more):
    lines = [{"id": "a", "label": "faithful"} | more, {"id": "b", "label": "hallucinated"}]
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = read_predicted_rows(tmp_path / "p.jsonl")
    assert "b" in found.rows and ("a" in found.rows or "p.jsonl: 1 lines are no predictions" in found.problems[0])


def test_what_cannot_be_read_is_told(tmp_path):
    line = '{"id": "a", "label": "faithful"}\n'
    (tmp_path / "p.jsonl").write_text(f'{line}[]\n{line}{{"id": "b", "la')
    found = read_predicted_rows(tmp_path / "p.jsonl")
    assert list(found.rows) == ["a"] and len(found.problems) == 3
    (tmp_path / "q.jsonl").write_bytes(f"{line}".encode() + b"\xff\n")
    assert "cannot be read to its end" in read_predicted_rows(tmp_path / "q.jsonl").problems[0]
