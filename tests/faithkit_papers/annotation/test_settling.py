"""Disagreements settled by rules or by people, and the settled rows read by the datasets' loaders."""

import json

import pytest

from data_modules.build import read_block
from faithkit.errors import UserError
from faithkit.files.jsonl import read_annotations
from faithkit_papers.annotation.annotate import settle, settle_question
from faithkit_papers.annotation.project import Annotation, make_row, read_answers
from faithkit_papers.annotation.schemes import SCHEMES
from faithkit_papers.annotation.settled_layouts import Answered, write_layout
from tests.faithkit_papers.annotation.annotated import TEXT, example

RAGTRUTH = SCHEMES["ragtruth"]


def rows_of(*examples, scheme="ragtruth", system=None):
    rows = [make_row(SCHEMES[scheme], one, None, suggest=False, system=system) for one in examples]
    return {row.id: row for row in rows}


def given_by(row, **answers):
    return [Annotation(row=row, annotator=name, answers=given) for name, given in answers.items()]


def mark(start, end, label="Evident Conflict", **others):
    return {"start": start, "end": end, "label": label, **others}


SUBTLE, TAGS = "Subtle Conflict", ["Uncooperative", "Entailment"]
OVERLAPPING = [[mark(0, 10)], [mark(5, 15, SUBTLE)], [mark(6, 12, SUBTLE, flags=["implicit_true"])]]


@pytest.mark.parametrize(
    ("scheme", "question", "answers", "rule", "settled"),
    [
        ("ragtruth", "quality", [["good"], ["good"], ["truncated"]], "majority", ["good"]),
        ("ragtruth", "quality", [["good"], ["truncated"]], "majority", None),  # a tie is for a person
        ("ragtruth", "quality", [["good"], ["good"], ["truncated"]], "severe", ["truncated"]),
        ("ragtruth", "quality", [["good"], None, None], "majority", None),  # most gave no answer
        ("ragtruth", "quality", [["good"], ["truncated"]], "hand", None),
        ("faithdial", "begin", [[TAGS[1]], TAGS[::-1], [TAGS[0]]], "majority", TAGS),
        ("faithdial", "begin", [["Entailment"], ["Generic"]], "majority", None),
        ("ragtruth", "spans", OVERLAPPING, "majority", [mark(5, 6), mark(6, 12, "Subtle Conflict")]),
        ("ragtruth", "spans", OVERLAPPING, "severe", [mark(0, 10), mark(10, 15, "Subtle Conflict")]),
        ("ragtruth", "spans", [[mark(0, 4)], []], "majority", []),  # half is not a majority
        ("likert", "cooperative", [1, 4, 3], "majority", 3),
        ("likert", "cooperative", [2, 3], "majority", None),
        ("likert", "cooperative", [2, 3], "severe", 2),
    ],
)
def test_a_question_is_settled_by_its_rule(scheme, question, answers, rule, settled):
    assert settle_question(SCHEMES[scheme].by_name[question], answers, rule) == settled


def test_a_text_is_taken_whole_from_whoever_agrees_most():
    rows = rows_of(example(), scheme="faithdial")
    answers = {"ann": ("Generic", "A"), "bob": ("Hallucination", "B"), "cem": ("Hallucination", "C")}
    given = given_by("d1:0", **{name: {"begin": [tag], "edit": edit} for name, (tag, edit) in answers.items()})
    [one] = settle(SCHEMES["faithdial"], rows, given, rule="majority")
    assert one.answers == {"begin": ["Hallucination"], "edit": "B"} and one.disagree == ("begin", "edit")


def test_open_rows_are_settled_by_decisions_that_are_read(tmp_path):
    rows = rows_of(example(1), example(2), example(3))
    good, truncated = {"spans": [], "quality": ["good"]}, {"spans": [mark(0, 3)], "quality": ["truncated"]}
    given = given_by("d1:0", ann=good, bob=truncated) + given_by("d2:0", ann=good)
    settled = settle(RAGTRUTH, rows, given, rule="majority", min_annotators=2)
    assert {one.row: one.open for one in settled} == {"d1:0": ("quality",), "d2:0": ("spans", "quality")}
    assert {one.how for one in settled} == {"open"} and settled[0].answers == {"spans": []}
    decided = {"id": "d1:0", "decision": {"quality": ["good"], "spans": [mark(0, 3)]}}
    path = tmp_path / "filled.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (decided, {"id": "d2:0", "decision": None})))
    decisions = read_answers(path, RAGTRUTH, rows, "decision")
    again = settle(RAGTRUTH, rows, given, rule="majority", min_annotators=2, decisions=decisions)
    assert [one.how for one in again] == ["decided by hand", "open"]
    assert again[0].answers == {"quality": ["good"], "spans": [mark(0, 3)]}


def test_a_decision_of_one_question_keeps_what_the_rule_says_of_others_and_leaves_the_rest_open():
    rows = rows_of(example())
    (row,) = rows
    spans = {"anna": [mark(0, 4)], "ben": [mark(0, 4)], "cleo": []}
    quality = {"anna": ["good"], "ben": ["truncated"], "cleo": ["incorrect_refusal"]}
    given = given_by(row, **{name: {"spans": spans[name], "quality": quality[name]} for name in spans})
    (undecided,) = settle(RAGTRUTH, rows, given, rule="majority")
    assert undecided.open == ("quality",) and undecided.answers == {"spans": [mark(0, 4)]}
    (one,) = settle(RAGTRUTH, rows, given, rule="majority", decisions={row: {"quality": ["good"]}})
    assert (one.how, one.open) == ("decided by hand", ())
    assert one.answers == {"spans": [mark(0, 4)], "quality": ["good"]}
    (part,) = settle(RAGTRUTH, rows, given, rule="majority", decisions={row: {"spans": []}})
    assert (part.how, part.open, part.answers) == ("open", ("quality",), {"spans": []})


@pytest.mark.parametrize(
    "decision",
    [{"quality": ["bad"]}, {"other": 1}, 3, {"spans": [mark(0, 9999)]}, {"spans": [3]}, {"spans": [{"start": 0}]}],
)
def test_a_decision_that_the_scheme_does_not_allow_is_refused_with_its_line(tmp_path, decision):
    path = tmp_path / "filled.jsonl"
    path.write_text(f"{json.dumps({'id': 'd1:0', 'decision': decision})}\n")
    with pytest.raises(UserError, match="line 1"):
        read_answers(path, RAGTRUTH, rows_of(example()), "decision")


def test_an_expert_overrules_and_what_the_expert_did_not_see_stays_open(tmp_path):
    path = tmp_path / "expert.jsonl"
    path.write_text(f"{json.dumps({'id': 'd1:0', 'answers': {'quality': ['truncated'], 'spans': []}})}\n")
    rows = rows_of(example(1), example(2))
    given = [one for row in rows for one in given_by(row, ann={"quality": ["good"]}, bob={"quality": ["truncated"]})]
    settled = settle(RAGTRUTH, rows, given, rule="expert", expert=read_answers(path, RAGTRUTH, rows, "answers"))
    assert [one.how for one in settled] == ["expert", "open"] and not settled[1].answers
    assert settled[0].answers == {"quality": ["truncated"], "spans": []}


def written(tmp_path, scheme, answers, one=None, system=None):
    [row] = rows_of(one or example(), scheme=scheme, system=system).values()
    counts = write_layout(scheme, tmp_path / "out", [Answered(row, answers)])
    return read_block({"dataset": "begin" if scheme == "likert" else scheme, "path": str(tmp_path / "out")}), counts


def test_ragtruth_rows_are_read_with_the_same_spans(tmp_path):
    marked = [mark(15, 19, flags=["due_to_null"]), mark(26, 33, "Subtle Baseless Info")]
    [read], _ = written(tmp_path, "ragtruth", {"spans": marked, "quality": ["good"]})
    found = [(span.start, span.end, span.label) for span in read.spans]
    assert found == [(15, 19, "evident_conflict"), (26, 33, "subtle_baseless")]
    assert read.response == TEXT and read.knowledge == example().knowledge and read.meta["due_to_null"] == [0]


def test_data_sources_are_read_as_the_same_text(tmp_path):
    knowledge = "name: Bar\nhours.Monday: 9-5\nWiFi: null\nreview: one\ntwo: lines"
    table = example(knowledge=knowledge, meta={"task": "Data2txt", "model": "m"}, history=())
    [read], counts = written(tmp_path, "ragtruth", {"spans": []}, table)
    assert read.knowledge == knowledge and read.meta["task"] == "Data2txt" and read.label == "faithful"
    assert counts == {"responses": 1}


def test_faithdial_rows_carry_the_edit_and_the_tags(tmp_path):
    answers = {"begin": ["Hallucination"], "vrm": ["Disclosure"], "edit": "It is a city."}
    [read], counts = written(tmp_path, "faithdial", answers)
    assert (read.response, read.original, read.label) == ("It is a city.", TEXT, "faithful")
    assert (counts, read.tags, read.meta["vrm"]) == ({"edited": 1}, ("Hallucination",), ["Disclosure"])


def test_diahalu_rows_name_round_and_type(tmp_path):
    dialogue = example(id="7", knowledge="", history=(), response="A1: a\nB1: b\nA2: c\nB2: d")
    answers = {"hallucinated": ["Yes"], "round": 2, "type": ["incoherence"], "explanation": "since 🙂"}
    [read], _ = written(tmp_path, "diahalu", answers, dialogue)
    assert read.response == dialogue.response and read.label == "hallucinated"
    assert read.meta["places"] == [[2, "incoherence"]] and read.meta["explanations"] == ["since 🙂"]


def test_halludial_rows_keep_accurate_judgements_and_corrections(tmp_path):
    [read], _ = written(tmp_path / "a", "halludial", {"judgement_is": ["Accurate"]})
    assert read.target == "Yes. The city is no city." and read.history[0].text == "Où ? 🙂"
    corrected = {"judgement_is": ["Inaccurate"], "correction": "No. It is right."}
    [read], _ = written(tmp_path / "b", "halludial", corrected)
    assert read.target == "No. It is right." and read.label == "faithful"
    assert read_annotations(tmp_path / "b" / "out" / "annotations.jsonl") == {"d1:0": "inaccurate"}
    [row] = rows_of(example(), scheme="halludial").values()
    counts = write_layout("halludial", tmp_path / "c", [Answered(row, {"judgement_is": ["Inaccurate"]})])
    assert counts == {"left out: inaccurate, without a correction that begins with Yes or No": 1}


def test_no_split_takes_the_place_of_another_and_what_was_settled_before_does_not_stay(tmp_path):
    examples = (example(i, split=split) for i, split in enumerate(("train", "validation", "test")))
    rows = [Answered(row, {"judgement_is": ["Accurate"]}) for row in rows_of(*examples, scheme="halludial").values()]
    assert write_layout("halludial", tmp_path, rows) == {"accurate": 3}
    sizes = {path.name: len(json.loads(path.read_text())) for path in tmp_path.glob("*.json")}
    assert sizes == {"spontaneous_train.json": 1, "spontaneous_test.json": 2}
    write_layout("halludial", tmp_path, [])
    assert not list(tmp_path.glob("*.json"))


def test_a_human_evaluation_is_read_as_begin(tmp_path):
    [read], counts = written(tmp_path, "likert", {"interpretable": ["Yes"], "faithful": ["Hallucination"]}, system="T5")
    assert read.label == "hallucinated" and read.meta["model_name"] == "T5" and counts["white space made plain"] == 1
    [line] = (tmp_path / "out" / "ratings.jsonl").read_text().splitlines()
    assert json.loads(line)["system"] == "T5"
