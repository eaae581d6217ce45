"""Label Studio projects and exports: spans exact, whatever is bad counted with its place."""

import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.records import Prediction, Span
from faithkit_papers.annotation.project import (
    CONFIG,
    ROWS,
    TASKS,
    ExportReport,
    make_row,
    read_export,
    read_rows,
    write_project,
)
from faithkit_papers.annotation.schemes import SCHEMES, SPAN_TYPES
from tests.faithkit_papers.annotation.annotated import TEXT, example, exported, project, suggested

PIECES = st.characters(exclude_categories=["Cs"]) | st.sampled_from(["\r\n", "\r", "\n", "🙂", "é", "ש", "\0"])
TEXTS = st.lists(PIECES, min_size=1, max_size=40).map("".join)


PLACES = st.tuples(st.integers(0, 40), st.integers(1, 9), st.sampled_from(list(SPAN_TYPES)))


@given(TEXTS, st.lists(PLACES, max_size=4))
def test_suggested_spans_come_back_as_they_were(tmp_path_factory, text, places):
    spans, end = [], 0
    for start, size, label in sorted(places):  # apart from each other, and never cutting a line break
        first, last = max(start, end), max(start, end) + size
        cut = [text[place - 1 : place + 1] for place in (first, last) if place]
        if last <= len(text) and "\r\n" not in cut:
            spans.append(Span(start=first, end=last, label=SPAN_TYPES[label]))
            end = last
    folder = tmp_path_factory.mktemp("project")
    [task] = project(folder, examples=[example(response=text, spans=tuple(spans))])
    scheme, rows = read_rows(folder)
    results = suggested(task) if task["predictions"] else []
    report = ExportReport()
    [found] = read_export(exported([task], folder / "export.json", [[("ann", results)]]), scheme, rows, report)
    read = [Span(start=s["start"], end=s["end"], label=SPAN_TYPES[s["label"]]) for s in found.answers["spans"]]
    assert read == spans
    for result in results:
        value = result["value"]
        assert task["data"]["response"][value["start"] : value["end"]] == value["text"]


@pytest.mark.parametrize("name", SCHEMES)
def test_every_question_has_a_tag_and_every_tag_a_text(tmp_path, name):
    [task] = project(tmp_path, name)
    config = ET.parse(tmp_path / CONFIG).getroot()
    tags = {tag.get("name"): tag for tag in config.iter() if tag.get("name")}
    assert {question.name for question in SCHEMES[name].questions} <= tags.keys()
    for tag in tags.values():
        if tag.get("toName"):
            assert tags[tag.get("toName")].tag == "Text"
        if tag.get("whenTagName"):
            assert tag.get("whenTagName") in tags
        if tag.tag in ("Text", "TextArea") and tag.get("value"):
            assert tag.get("value").removeprefix("$") in task["data"]
    assert "\r" not in json.dumps(task["data"]) and task["data"]["row"] == "d1:0"


def test_a_detector_s_predictions_are_suggested(tmp_path):
    prediction = Prediction(id="d1:0", label="hallucinated", spans=(Span(start=26, end=29, label="hallucination"),))
    row = make_row(SCHEMES["ragtruth"], example(), prediction, suggest=True, system=None)
    write_project(tmp_path, SCHEMES["ragtruth"], [row], "tagger")
    [task] = json.loads((tmp_path / TASKS).read_text(encoding="utf-8"))
    [result] = task["predictions"][0]["result"]
    assert result["value"] | {"text": "has"} == {"start": 25, "end": 28, "text": "has", "labels": ["Evident Conflict"]}
    verdict = make_row(SCHEMES["diahalu"], example(), prediction, suggest=True, system=None)
    assert verdict.suggested == {"hallucinated": ["Yes"]}


def read(tmp_path, annotations, skip=False, change=lambda tasks: tasks, examples=None):
    tasks = project(tmp_path, examples=examples or [example(1), example(2)])
    scheme, rows = read_rows(tmp_path)
    path = exported(change(tasks), tmp_path / "export.json", annotations)
    report = ExportReport("skip" if skip else "stop")
    return read_export(path, scheme, rows, report), report, rows


def span(start, end, label="Evident Conflict", **others):
    place = {"id": "a", "from_name": "spans", "to_name": "response", "type": "labels"}
    return {**place, "value": {"start": start, "end": end, "labels": [label], **others}}


GOOD = {"id": "q", "from_name": "quality", "to_name": "response", "type": "choices", "value": {"choices": ["good"]}}
BAD_RESULTS = {
    "unknown label": span(0, 3, "Wrong"),
    "unknown question": {"from_name": "other", "type": "choices", "value": {"choices": ["x"]}},
    "several labels": {**GOOD, "value": {"choices": ["good", "truncated"]}},
    "offsets beyond the text": span(0, 5000),
    "empty span": span(4, 4),
    "text at another place": span(0, 3, text="city"),
    "unreadable answer": {**GOOD, "value": {"choices": 3}},
}


@pytest.mark.parametrize("kind", BAD_RESULTS)
def test_a_bad_annotation_stops_with_its_place_or_is_left_out_and_counted(tmp_path, kind):
    given = [[("ann", [GOOD, BAD_RESULTS[kind]]), ("bob", [GOOD])], [("ann", [GOOD])]]
    with pytest.raises(UserError, match=kind) as error:
        read(tmp_path, given)
    assert "task 1, annotation 1" in str(error.value) and "on_bad_annotation=skip" in str(error.value)
    found, report, _ = read(tmp_path, given, skip=True)
    assert report.counts[kind] == 1
    assert [(one.row, one.annotator) for one in found] == [("d1:0", "bob"), ("d2:0", "ann")]
    assert report.problems[0]["place"].endswith("task 1, annotation 1")


def test_a_quote_may_have_other_line_breaks_and_spaces(tmp_path):
    start = TEXT.index("wall.")
    quoted = span(start - 1, start + 12, text="wall.\\nTwo sp")  # of "wall.\nTwo  sp"
    [one, _], _, _ = read(tmp_path, [[("ann", [GOOD, quoted])], [("ann", [GOOD])]])
    assert one.answers["spans"] == [{"start": start, "end": start + 13, "label": "Evident Conflict"}]


def test_edited_texts_and_unknown_tasks_stop_or_are_left_out(tmp_path):
    def edit(tasks):
        tasks[0]["data"]["response"] += "!"
        tasks[1]["data"]["row"] = "unknown"
        return tasks

    given = [[("ann", [GOOD])], [("ann", [GOOD])]]
    with pytest.raises(UserError, match="edited text: response of row d1:0"):
        read(tmp_path, given, change=edit)
    found, report, _ = read(tmp_path, given, skip=True, change=edit)
    assert not found and report.counts == {"edited text": 1, "unknown task": 1, "missing task": 2}


def test_what_happens_in_every_project_is_counted(tmp_path):
    cancelled = {"id": 9, "completed_by": {"id": 1, "email": "ann@example.org"}, "result": [], "was_cancelled": True}
    given = [[("ann", [GOOD]), ("ann", [span(0, 3), span(2, 6), GOOD]), cancelled, ("bob", [])], [], [cancelled]]
    examples = [example(1), example(2), example(3), example(4)]
    found, report, _ = read(tmp_path, given, change=lambda tasks: tasks[:3], examples=examples)
    once = ("annotator twice", "overlapping spans", "unanswered question", "missing task")
    twice = ("cancelled annotation", "task without annotation")
    assert report.counts == {**dict.fromkeys(once, 1), **dict.fromkeys(twice, 2)}
    assert found[0].answers["spans"] == [{"start": 0, "end": 6, "label": "Evident Conflict"}], "the later one, joined"
    assert [(one.row, one.annotator) for one in found] == [("d1:0", "ann"), ("d1:0", "bob")]


@pytest.mark.parametrize("text", ["{}", "[]", '[{"row": 1}]', '[{"data": {}, "annotations": 3}]', "[", ""])
def test_what_is_no_export_is_refused(tmp_path, text):
    project(tmp_path)
    scheme, rows = read_rows(tmp_path)
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(UserError, match="hint"):
        read_export(tmp_path / "e.json", scheme, rows, ExportReport())


def test_rows_that_were_changed_are_refused(tmp_path):
    project(tmp_path)
    (tmp_path / ROWS).write_text('{"scheme": "ragtruth", "id": "1"}\n')
    with pytest.raises(UserError, match=r"rows\.jsonl, line 1"):
        read_rows(tmp_path)
