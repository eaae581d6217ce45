import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.jsonl import JsonlAppender, read_jsonl, read_predictions, write_jsonl
from faithkit.records import Prediction

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT
ROWS = st.lists(st.dictionaries(ANY_TEXT, SCALARS | st.lists(SCALARS, max_size=3), max_size=4), max_size=6)
GOOD = {"id": "a", "label": "hallucinated", "score": 0.5, "spans": [{"start": 0, "end": 1, "label": "x"}], "text": "t"}


@given(rows=ROWS)
def test_rows_come_back_as_they_went_and_the_same_rows_give_the_same_bytes(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    assert write_jsonl(folder / "one", rows) == len(rows)
    write_jsonl(folder / "two", iter(rows))
    assert list(read_jsonl(folder / "one")) == rows
    data = (folder / "one").read_bytes()
    assert data == (folder / "two").read_bytes()
    assert len(data.decode().splitlines()) == len(rows)  # one line a row, also for readers that split at U+2028
    with JsonlAppender(folder / "three") as appender:
        for row in rows:
            appender.append(row)
    assert (folder / "three").read_bytes() == data


def test_readable_text_stays_readable(tmp_path):
    write_jsonl(tmp_path / "rows", [{"text": "été 東京"}])
    assert "été 東京" in (tmp_path / "rows").read_text("utf-8")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [{"a": 1}])

    def rows():
        yield {"a": 2}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_jsonl(path, rows())
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"value": float("nan")})
    assert list(read_jsonl(path)) == [{"a": 1}]
    assert list(tmp_path.iterdir()) == [path]


def test_written_files_have_ordinary_permissions_and_links_are_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new" / "file")
    write_json(tmp_path / "link", [1])
    (tmp_path / "plain").touch()
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "new" / "file").read_text()) == [1]
    assert (tmp_path / "new" / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_plain_file_is_never_replaced(make, tmp_path):
    make(tmp_path / "thing")  # a pipe stands for every device: root must not replace /dev/null
    with pytest.raises(UserError, match="not a regular file"):
        write_json(tmp_path / "thing", {})
    assert not (tmp_path / "thing").is_file()


@pytest.mark.parametrize("before", [b"", b'{"row": 0}\n', b'{"row": 0' + b" " * 80_000 + b"}\n"], ids=len)
@pytest.mark.parametrize("cut", [b'{"row"', bytes(8) + b"\n", *(b"x" * (2**16 + more) for more in (-2, -1, 0))])
def test_what_a_kill_or_a_power_cut_left_of_a_line_is_dropped_alone(cut, before, tmp_path):
    (tmp_path / "rows").write_bytes(before + cut)
    with JsonlAppender(tmp_path / "rows") as appender:
        assert appender.dropped_bytes == len(cut)
        appender.append({"row": 1})
    assert [row["row"] for row in read_jsonl(tmp_path / "rows")] == ([0, 1] if before else [1])


def test_rows_can_be_read_while_the_work_goes_on(tmp_path):
    with JsonlAppender(tmp_path / "rows") as appender:
        appender.append({"row": 1})
        assert list(read_jsonl(tmp_path / "rows")) == [{"row": 1}]


def test_two_processes_cannot_write_one_file(tmp_path):
    with JsonlAppender(tmp_path / "rows"), pytest.raises(UserError, match="another process"):
        JsonlAppender(tmp_path / "rows")
    JsonlAppender(tmp_path / "rows").close()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"a": 1', "broken JSON"),
        (b"[1, 2]", "must be a JSON object"),
        (b'{"a": "\xff"}', "not UTF-8 text: byte 0xff at position 8"),
        (b"[" * 100_000, "broken JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "broken JSON"),
    ],
)
def test_a_bad_line_is_named(line, problem, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 0}\r\n\n' + line + b"\n")
    with pytest.raises(UserError, match=problem) as error:
        for row in read_jsonl(path):
            assert row == {"a": 0}
    assert "rows.jsonl, line 3" in str(error.value)
    assert len(str(error.value).splitlines()) <= 5


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        list(read_jsonl(tmp_path / "nothing"))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_jsonl(tmp_path))


def test_predictions_come_by_id_and_other_tools_keys_are_passed_over(tmp_path):
    rows = [GOOD | {"extra": 1}, {"id": "b", "label": "unparsed"}, {"id": "\ud800", "label": "faithful", "score": None}]
    write_jsonl(tmp_path / "predictions", rows)
    found = read_predictions(tmp_path / "predictions")
    assert list(found) == ["a", "b", "\ud800"]
    write_jsonl(tmp_path / "scored", [GOOD | {"spans": [GOOD["spans"][0] | {"score": score} for score in (0, 0.5, 1)]}])
    assert [span.score for span in read_predictions(tmp_path / "scored")["a"].spans] == [0, 0.5, 1]
    evidence = {"text": "It is.", "start": 2, "end": 8, "passage": 1, "reason": "r"}
    span = {"start": 0, "end": 1, "label": "x", "score": 0.5, "text": "a", "evidence": evidence}
    span |= {"relation": "contradiction", "element": "number"}
    explained = GOOD | {"spans": [span], "reason": "so it is"}
    write_jsonl(tmp_path / "explained", [explained])
    assert read_predictions(tmp_path / "explained")["a"].to_dict() == explained
    assert found["a"].to_dict() == GOOD | {"spans": [{"start": 0, "end": 1, "label": "x", "score": None}]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": None, "label": None, "text": None}, "no 'id' and no 'label'"),
        ({"id": ""}, "id is empty"),
        ({"id": 7}, "id must be text"),
        ({"label": "Hallucinated"}, "label must be one of"),
        ({"label": ["x"]}, "label must be one of"),
        ({"score": 1.01}, "score must lie in 0..1"),
        ({"score": float("nan")}, "score must lie in 0..1"),
        ({"score": "0.5"}, "score must lie in 0..1"),
        ({"score": True}, "score must be a number"),
        ({"text": 3}, "text must be text"),
        ({"spans": 3}, "bad prediction"),
        ({"spans": [3]}, "start and end"),
        ({"spans": [{"start": 0.5, "end": 1, "label": "x"}]}, "start and end"),
        ({"spans": [{"start": 3, "end": 1, "label": "x"}]}, "0 <= start <= end"),
        ({"spans": [{"start": 0, "end": 1}]}, "label"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "text": 3}]}, "a span's text must be text"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "evidence": "a"}]}, "evidence must be an object"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "evidence": []}]}, "evidence must be an object"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "evidence": {"text": 3}}]}, "text of a span's evidence"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "evidence": {"text": None}}]}, "text of a span's evidence"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "evidence": {"start": -1}}]}, "start of a span's evidence"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "evidence": {"passage": True}}]}, "passage of a span's"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "evidence": {"why": "a"}}]}, "bad prediction"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "relation": "wrong"}]}, "relation must be one of contr"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "relation": ["x"]}]}, "relation must be one of contr"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "element": "name"}]}, "element must be one of number, date, "),
        ({"reason": 3}, "reason must be text"),
        ({"spans": [{"start": 0, "end": 1, "label": "x", "score": float("nan")}]}, "score must lie"),
        ({"id": "first"}, "'first' was already given on line 1"),
    ],
)
def test_a_bad_prediction_is_named(change, problem, tmp_path):
    path = tmp_path / "predictions.jsonl"
    first = {"id": "first", "label": "faithful"}
    path.write_text(f"{json.dumps(first)}\n{json.dumps(GOOD | change)}\n")
    with pytest.raises(UserError, match=problem) as error:
        read_predictions(path)
    assert "predictions.jsonl, line 2" in str(error.value)


def test_an_empty_predictions_file_is_no_result(tmp_path):
    (tmp_path / "predictions").touch()
    with pytest.raises(UserError, match="no predictions"):
        read_predictions(tmp_path / "predictions")


def test_a_response_that_nobody_judged_needs_no_label(tmp_path):
    path = tmp_path / "responses.jsonl"
    path.write_text('{"id": "a", "text": "It is red."}\n{"id": "b", "label": null, "text": ""}\n')
    found = read_predictions(path)
    assert found["a"] == Prediction(id="a", text="It is red.") and found["b"].to_dict()["label"] is None
