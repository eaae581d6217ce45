"""Every dataset stops clearly at files that are not as they should be, and loses nothing in silence."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from data_modules.build import find_dataset
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit_workflows.tables.user_table import open_user_table
from tests.data_modules.official.benchmark_sets import AGGREFACT, LETTUCE_CODE, PSILOQA, SUMMEDITS, WICE
from tests.data_modules.official.inference import DECODE
from tests.data_modules.official.judgements import DIAHALU, HALLUDIAL, HALUEVAL_GENERAL
from tests.data_modules.official.spans import XSUM_TOKENS
from tests.data_modules.official_rows import CASES, FLAT, make, read, read_around_a_bad_row, write, write_case

EVERY = list(CASES)


def check_refused(name: str, path: Path, match: str) -> str:
    with pytest.raises(UserError, match=match) as caught:
        read(make(name, path))
    message = str(caught.value)
    assert len(message.splitlines()) <= 5
    return message


@pytest.mark.parametrize("name", EVERY)
def test_the_official_layout_is_read_and_labels_its_examples(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "corpora" / "one"
    examples, counts = read(make(name, write_case(folder, name)))
    assert counts["kept"] == len(examples) > 1
    assert {example.source for example in examples} == {name}
    assert len({example.id for example in examples}) == len(examples)
    assert {example.label for example in examples} <= {"faithful", "hallucinated", None}
    assert all(example.response.strip() and example.group for example in examples)
    assert all(example.knowledge.strip() for example in examples) or name == "diahalu"  # which has none
    if name != "audit":  # which has several folders
        assert read(make(name, folder))[0] == examples  # the folder gives what its file gives
        assert read(make(name, folder.parent))[0] == examples  # and so does the folder above


@pytest.mark.parametrize("name", EVERY)
def test_missing_and_empty_files(tmp_path: Path, name: str) -> None:
    check_refused(name, tmp_path / "absent", "no such file or folder")
    check_refused(name, tmp_path, "looked for .*official files: http")
    file = write_case(tmp_path, name)
    whole = file.read_bytes()
    file.write_bytes(b"")
    check_refused(name, file, "no data rows")
    header = whole.splitlines(keepends=True)[0]
    file.write_bytes(b"[]" if file.suffix in (".json", ".jsonl") else header)
    check_refused(name, file, "no data rows")
    file.write_bytes(whole[:-12] + b"\xff" + whole[-12:])
    check_refused(name, file, "not UTF-8 text: byte 0xff at position")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "json" in case[0]])
def test_a_file_that_was_cut_short(tmp_path: Path, name: str) -> None:
    file = write_case(tmp_path, name)
    file.write_bytes(file.read_bytes()[:-25])
    check_refused(name, file, "cut short|broken JSON")


@pytest.mark.parametrize("name", EVERY)
def test_another_datasets_file_is_told_at_its_first_row(tmp_path: Path, name: str) -> None:
    table, lines = tmp_path / "other.tsv", tmp_path / "other.json"
    table.write_text("alpha\tbeta\n1\t2\n")
    assert "other.tsv, line 2" in check_refused(name, table, "looked for .*; found alpha, beta")
    lines.write_text(json.dumps([{"gamma": 1}]))
    assert "other.json, line 1" in check_refused(name, lines, "looked for .*; found gamma")


def test_a_table_given_for_dialogues_and_the_reverse(tmp_path: Path) -> None:
    check_refused("faithdial", write_case(tmp_path, "begin"), "looked for utterances; found model_name, data_source")
    check_refused("begin", write_case(tmp_path, "faithdial"), "found dialog_idx, utterances")
    json_as_table = tmp_path / "begin_dev_wow.tsv"
    json_as_table.write_text(json.dumps([{"knowledge": "k" * 5000}], indent=1))
    check_refused("begin", json_as_table, r"looked for model_name.*; found \[")


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("which", [0, 1])
def test_an_empty_text_is_a_bad_row(tmp_path: Path, name: str, which: int) -> None:
    file, rows, fields = CASES[name]
    assert fields is not None
    changed = [rows[0], {**rows[1], fields[which]: " "}, *rows[2:]]
    path = write(tmp_path / file, changed, as_list=name == "dnli")
    if name == "audit":  # the one corpus with empty responses, knowledge and labels
        dropped = ("no knowledge", "empty response", "no label")[which]
        assert read(make(name, path))[1][f"dropped: {dropped}"] == 1
        return
    examples = read_around_a_bad_row(name, path, rf"'{fields[which]}' is empty(.|\n)*{file}, line \d")
    assert len(examples) == len(rows) - 1


@pytest.mark.parametrize("name", FLAT)
def test_a_label_that_the_corpus_does_not_have(tmp_path: Path, name: str) -> None:
    file, rows, fields = CASES[name]
    assert fields is not None
    path = write(tmp_path / file, [rows[0], {**rows[1], fields[2]: "maybe"}], as_list=name == "dnli")
    assert "hint: correct the row" in check_refused(name, path, f"'{fields[2]}' is 'maybe'; known: ")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("begin", "generic", "keep"),
        ("audit", "responses", "t5"),
        ("mnli", "neutral", "faithful"),
        ("decode", "knowledge", "none"),
        ("diahalu", "domains", "sports"),
        ("faithcritic", "edited", "never"),
        ("ragtruth", "quality", "truncated"),
        ("aggrefact", "sets", "Wicked"),
        ("psiloqa", "languages", "la"),
        ("faithbench", "benign", "keep"),
        ("summedits", "domains", "sports"),
        ("wice", "units", "page"),
        ("lettucedetect_code", "sets", "ragtruth"),
    ],
)
def test_an_option_takes_its_values_alone(name: str, option: str, value: str) -> None:
    with pytest.raises(UserError, match=f"{option} is '{value}'\n  hint: use "):
        find_dataset(name)(path="x", **{option: value})  # type: ignore[call-arg]


# By dataset: the file, a good row, and another row; then what makes this one bad, and the error.
ROWS = {
    "decode": ("test.jsonl", DECODE[1], DECODE[0]),
    "diahalu": ("DiaHalu.jsonl", DIAHALU[1], DIAHALU[0]),
    "halueval": ("general_data.json", HALUEVAL_GENERAL[0], HALUEVAL_GENERAL[1]),
    "halludial": ("induced_test.json", HALLUDIAL[2], HALLUDIAL[0]),
    "xsum_tokens": ("xsum_token_labels.jsonl", XSUM_TOKENS[1], XSUM_TOKENS[0]),
    "aggrefact": ("test.jsonl", AGGREFACT[1], AGGREFACT[0]),
    "psiloqa": ("test.jsonl", PSILOQA[1], PSILOQA[0]),
    "summedits": ("summedits_news.json", SUMMEDITS[1], SUMMEDITS[0]),
    "wice": ("claim/test.jsonl", WICE[1], WICE[0]),
    "lettucedetect_code": ("test.jsonl", LETTUCE_CODE[1], LETTUCE_CODE[0]),
}
BAD_ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("decode", {"turns": []}, "'turns' is empty"),
    ("decode", {"turns": [*DECODE[0]["turns"][:3], {"agent_id": 0, "text": " "}]}, "the last turn is empty"),
    ("decode", {"turns": [{"text": "x"}]}, "turn 0: field 'agent_id' is missing"),
    ("decode", {"turns": ["x"]}, "turn 0: must be a JSON object"),
    ("decode", {"is_contradiction": None}, "'is_contradiction' is None; known: 'true', 'false'"),
    ("decode", {"record_id": "r2"}, "id 'r2' was already given"),
    ("diahalu", {"index": '[[2,"Funny"]]'}, "'index' has the type 'Funny'; known: non-factual, incoherence"),
    ("diahalu", {"index": '[["x","Irrelevance"]]'}, r"'index' must be a list of \[turn, type\], got 'x'"),
    ("diahalu", {"index": "[[2,5]]"}, r"'index' must be a list of \[turn, type\]"),
    ("diahalu", {"text": "Hello\nA1: Hi"}, "'text' must begin with a turn, as A1: "),
    ("diahalu", {"label": "Halu"}, "'label' is 'Halu'; known: '1', '0'"),
    ("diahalu", {"domain": "Sports"}, "'domain' is 'Sports'; known: knowledge, task, chit-chat, reasoning"),
    ("diahalu", {"ID": None}, "'ID' must be text, got None"),
    ("halueval", {"hallucination": "maybe"}, "'hallucination' is 'maybe'; known: 'yes', 'no'"),
    ("halueval", {"hallucination_spans": "Mount"}, "'hallucination_spans' must be a list"),
    ("halueval", {"chatgpt_response": " "}, "'chatgpt_response' is empty"),
    *(
        ("halludial", {"target": target}, "'target' is .*; known: what begins with Yes or No")
        for target in ("None of it.", "Nobel won it.", "Yesterday it was.", "No-one said so.", "Maybe")
    ),
    ("halludial", {"target": " "}, "'target' is empty"),
    ("halludial", {"turn": "1"}, "'turn' must be a whole number from 0, got '1'"),
    ("halludial", {"dialogue_history": "Hello [Human]: hi"}, r"'dialogue_history' must begin with \[Human\]: or"),
    ("xsum_tokens", {"labels": [0, 1]}, "'labels' has 2 entries for 4 tokens"),
    ("xsum_tokens", {"labels": [0, 1, 2, 0]}, r"'labels\[2\]' must be 0 or 1, got 2"),
    ("xsum_tokens", {"tokens": [1, 2, 3, 4]}, r"field 'tokens\[0\]' must be text"),
    ("xsum_tokens", {"summary": "\ud83d a b c"}, "half a surrogate pair"),
    ("aggrefact", {"dataset": "Wicked"}, "'dataset' is 'Wicked'; known: 'aggrefact-cnn'"),
    ("aggrefact", {"label": 2}, "'label' is 2; known: '1', '0'"),
    ("psiloqa", {"labels": [[0, 99]]}, r"labels\[0\]: field 'end' is 99, but the answer has 29 characters"),
    ("psiloqa", {"labels": [[9, 9]]}, "the span holds nothing"),
    ("psiloqa", {"labels": [[1]]}, r"'labels\[0\]' must be a pair of offsets, got \[1\]"),
    ("psiloqa", {"lang": "la"}, "'lang' is 'la'; known: 'ar', 'ca'"),
    ("summedits", {"label": 2}, "'label' is 2; known: '1', '0'"),
    ("summedits", {"edit_types": "swap"}, "'edit_types' must be a list"),
    ("wice", {"label": "refuted"}, "'label' is 'refuted'; known: 'supported', 'partially_supported'"),
    ("wice", {"evidence": "A page."}, "'evidence' must be a list"),
    ("wice", {"meta": None}, "must be a JSON object, got None"),
    ("lettucedetect_code", {"metadata": "{"}, "'metadata' is not JSON: '{'"),
    ("lettucedetect_code", {"metadata": "[]"}, r"must be a JSON object, got \[\]"),
    ("lettucedetect_code", {"labels": [{"start": 0, "end": 2, "category": "omission"}]}, "'category' is 'omission'"),
    ("lettucedetect_code", {"answer": " "}, "'answer' is empty"),
]


@pytest.mark.parametrize(("name", "change", "message"), BAD_ROWS)
def test_a_row_that_cannot_be_right(tmp_path: Path, name: str, change: dict[str, Any], message: str) -> None:
    file, good, row = ROWS[name]
    path = write(tmp_path / file, [good, {**row, **change}])
    assert len(read_around_a_bad_row(name, path, message, f"{file}, line")) == 1


@pytest.fixture
def no_hang() -> Iterator[None]:
    """Ends what waits for ever."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize("name", EVERY)
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    file = write_case(tmp_path / "corpus", name)
    for place in (file, *([] if name != "ragtruth" else [file.with_name("source_info.jsonl")])):
        whole = place.read_bytes()
        for odd in (os.mkfifo, os.mkdir, endless):
            place.unlink()
            odd(place)
            check_refused(name, file, "no such file|here|not a plain file|regular file|next to")
            check_refused(name, file.parent, "here|not a plain file|regular file|next to")
            place.rmdir() if place.is_dir() else place.unlink()
            place.write_bytes(whole)


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize("make_odd", [os.mkfifo, os.mkdir, endless])
def test_own_rows_and_predictions_are_plain_files(tmp_path: Path, make_odd: Callable[[Path], None]) -> None:
    file = tmp_path / "rows.jsonl"
    make_odd(file)
    for read_file in (lambda path: open_user_table(path, {}, join="".join), read_predictions):
        with pytest.raises(UserError, match=r"not a plain file|not a regular file|a folder"):
            read_file(str(file))
