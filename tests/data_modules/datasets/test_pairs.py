"""Users' tables: any format and encoding, columns and labels found or named, mistakes reported with remedies."""

import csv
import json
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from data_modules.build import build_data
from data_modules.datasets.pair_columns import LabelReader
from data_modules.datasets.pairs import Pairs, read_pairs
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.span_encoder import SpanEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Example, Span, Turn, number_passages
from faithkit_workflows.tables.user_table import open_user_table
from tests.data_modules.official_rows import write
from tests.running import plain_config

ROWS = [
    {"context": "A lake, deep.", "answer": 'It is "deep".', "verdict": "faithful", "model": "a"},
    {"context": "A hill;\nhigh.", "answer": "It is low – café.", "verdict": "hallucinated", "model": "b"},
]
CSV = 'context,answer,verdict,model\n"A lake, deep.","It is ""deep"".",faithful,a\n' + (
    '"A hill;\nhigh.",It is low – café.,hallucinated,b\n'
)


PLAIN = {"knowledge": "A lake.", "response": "It is red.", "label": "faithful"}
MARKED = {**PLAIN, "label": "hallucinated", "spans": [{"start": 6, "end": 9}], "question": "Is it?"}
SPANS, ASKED = (Span(start=6, end=9, label="hallucination"),), (Turn(speaker="seeker", text="Is it?"),)


def read(path: Path, on_bad_row: str = "stop", split: str | None = None, **options: Any) -> list[Example]:
    return list(read_examples(Pairs(path=str(path), **options), split, ReadReport(on_bad_row)))


def fields_of(examples: list[Example]) -> list[tuple[Any, ...]]:
    return [(e.knowledge, e.response, e.label, e.meta) for e in examples]


EXPECTED = [(r["context"], r["answer"], r["verdict"], {"model": r["model"]}) for r in ROWS]


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("a.csv", CSV.encode(), {}),
        ("a.csv", CSV.encode("utf-8-sig"), {}),
        ("a.csv", CSV.encode("utf-16"), {}),
        ("a.csv", CSV.encode("utf-16-le"), {"encoding": "utf-16-le"}),
        ("a.csv", CSV.encode("cp1252"), {"encoding": "cp1252"}),
        ("a.csv", CSV.replace("\n", "\r\n").replace(";\r\n", ";\n").encode(), {}),
        ("a.csv", CSV.replace(",faithful,", ";faithful;").replace(",hallucinated,", ";hallucinated;")
            .replace("context,answer,verdict,model", "context;answer;verdict;model").replace('.","It', '.";"It')
            .replace('",It', '";It').encode(), {}),
        ("a.jsonl", "".join(f"{json.dumps(row)}\n" for row in ROWS).encode(), {}),
        ("a.json", json.dumps(ROWS).encode(), {}),
    ],
)  # fmt: skip
def test_a_text_file_is_read_whatever_wrote_it(name: str, data: bytes, options: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    assert fields_of(read(tmp_path / name, **options)) == EXPECTED


def test_parquet_and_saved_datasets_are_read_with_the_names_of_their_classes(tmp_path: Path) -> None:
    import datasets

    classes = datasets.ClassLabel(names=["faithful", "hallucinated"])
    table = datasets.Dataset.from_list([{**row, "verdict": place} for place, row in enumerate(ROWS)])
    table = table.cast_column("verdict", classes)
    table.to_parquet(str(tmp_path / "a.parquet"))
    table.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict(train=table, valid=table, test=table).save_to_disk(str(tmp_path / "several"))
    for path, split in (("a.parquet", None), ("one", None), ("several", "validation"), ("several", "test")):
        assert fields_of(read(tmp_path / path, split=split)) == EXPECTED, path
    assert [example.id for example in read(tmp_path / "several", split="test")] == ["test:0", "test:1"]
    assert Pairs(path=str(tmp_path / "several")).split_names() == ["train", "validation", "test"]
    datasets.DatasetDict(validation=table, dev=table).save_to_disk(str(tmp_path / "two_names"))
    both = read(tmp_path / "two_names", split="validation")
    assert [example.id for example in both] == ["validation:0", "validation:1", "dev:0", "dev:1"]
    before = Pairs(path=str(tmp_path / "one")).files()["all"][0].open("rb").read()
    assert before == Pairs(path=str(tmp_path / "several")).files()["test"][0].open("rb").read()


# The file's name, its text, the options, and the parts of the error: the problem, its place and the remedy.
BAD: dict[str, tuple[str, str | bytes, dict[str, Any], list[str]]] = {
    "no knowledge": ("a.csv", "ctx,answer,label\nk,r,1\n", {}, [
        "no column holds the knowledge (the", "data.columns.knowledge=COLUMN; the file has ctx, answer, label"]),
    "no label": ("a.csv", "context,answer\nk,r\n", {}, ["no column holds the label", "data.columns.label=COLUMN"]),
    "two columns": ("a.csv", "context,source,answer,label\nk,k,r,1\n", {}, [
        "several columns may hold the knowledge: context, source", "hint: data.columns.knowledge=context"]),
    "a mistyped column": ("a.csv", "context,answer,label\nk,r,1\n", {"columns": {"knowledge": "contxt"}}, [
        "data.columns.knowledge: there is no column 'contxt'", "did you mean data.columns.knowledge=context?"]),
    "1 and 0": ("a.csv", "context,answer,label\nk,r,1\nk,s,0\nk,t,1\n", {}, [
        "column 'label' does not say what its labels mean, by rows: 1 (2), 0 (1)", "a.csv, line 2",
        "hint: 'data.labels={1: hallucinated, 0: faithful}', or the other way round"]),
    "three labels": ("a.csv", "context,answer,label\nk,r,supported\nk,s,refuted\nk,t,unsure\nk,u,unsure\n", {}, [
        "column 'label' holds 3 labels, by rows: unsure (2), supported (1), refuted (1)", "a.csv, line 3",
        "'data.labels={unsure: hallucinated, supported: faithful, refuted: null}'; null leaves such rows out"]),
    "an empty cell": ("a.csv", "context,answer,label\nk,r,faithful\nk,,faithful\n,r,faithful\n", {}, [
        "column 'answer' is empty (the first of 2 bad rows)", "a.csv, line 3", "data.on_bad_row=skip"]),
    "another encoding": ("a.csv", "context,answer,label\nk,r,faithful\nk,café au lait,x\n".encode("cp1252"), {}, [
        "not UTF-8 text: the byte at position 6 of the line", "line 3", "data.encoding=cp1252 reads it as 'k,café"]),
    "UTF-16 without its mark": ("a.csv", "context,answer\n".encode("utf-16-le"), {}, ["data.encoding=utf-16-le"]),
    "nested text": ("a.jsonl", '{"context": {"text": "k"}, "answer": "r", "label": "faithful"}\n', {}, [
        "column 'context' holds an object with text", "a.jsonl, line 1", "data.columns.knowledge=context.text"]),
    "nested text with a title": (
        "a.jsonl", '{"context": {"id": 5, "title": "t", "text": "k"}, "answer": "r", "label": "faithful"}\n', {}, [
        "holds an object with id, title, text", "data.columns.knowledge=context.text"]),
    "a list that Python wrote": ("a.csv", "context,answer,label\n\"['k', 'l']\",r,faithful\n", {}, [
        "column 'context' holds a list that is not JSON: \"['k', 'l']\"", "a.csv, line 2", "Python lists written"]),
    "no text among passages": ("a.csv", 'context,answer,label\n"[""k"", null]",r,x\n', {}, [
        "field 'context[1]' must be text, got None"]),
    "an object without a text": ("a.jsonl", '{"context": ["k", {"title": "t"}], "answer": "r", "label": "x"}\n', {}, [
        "field 'context[1]' is an object without a text: it has title", "text, page_content, content"]),
    "no JSON spans": ("a.csv", "context,answer,spans\nk,r,here\n", {}, ["column 'spans' holds no JSON list"]),
    "a span outside": ("a.csv", 'context,answer,spans\nk,r,"[{""start"": 0, ""end"": 5}]"\n', {}, ["has 1 char"]),
    "marked and faithful": ("a.jsonl", json.dumps({"context": "k", "answer": "r", "label": "faithful", "spans":
        [{"start": 0, "end": 1}]}), {}, ["the label is faithful, but 'spans' marks 1"]),
    "no Parquet": ("a.parquet", "PAR1", {}, ["no whole Parquet file"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_reported_with_its_place_and_its_remedy(name: str, tmp_path: Path) -> None:
    file, data, options, words = BAD[name]
    (tmp_path / file).write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(UserError) as caught:
        read(tmp_path / file, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize(
    ("cell", "knowledge"),
    [
        (json.dumps(["A lake.", 'It\'s "deep".']), 'A lake. It\'s "deep".'),
        (f" {json.dumps(['A lake.', 'A lake.', 'A hill.'])}\n", "A lake. A hill."),
        (json.dumps([{"title": "Lakes", "text": "A lake."}, {"page_content": "A hill."}]), "A lake. A hill."),
        ("[1] The river is long", "[1] The river is long"),
        ("[The river]", "[The river]"),
        ("[1]", "[1]"),
        ('["The river", he said, is long.', '["The river", he said, is long.'),
    ],
)
def test_a_cell_is_a_list_of_passages_or_a_text_in_brackets(cell: str, knowledge: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["context", "answer", "label"], [cell, "r", "faithful"]])
    (found,) = read(path)
    assert found.knowledge == knowledge


@pytest.mark.parametrize("knowledge", ["contexts", "retrieved_contexts", "documents", "passages"])
def test_the_usual_names_of_retrievers_tables_are_known(knowledge: str, tmp_path: Path) -> None:
    row = {"user_input": "Is it deep?", knowledge: ["A lake.", "A hill."], "response": "It is.", "label": "faithful"}
    (found,) = read_pairs(write(tmp_path / "a.jsonl", [row]))
    assert (found.knowledge, found.history) == ("A lake. A hill.", (Turn(speaker="seeker", text="Is it deep?"),))


def test_a_frame_and_a_folder_that_is_no_table_are_told(tmp_path: Path) -> None:
    import pandas as pd

    with pytest.raises(UserError, match="takes the path of a table, got a DataFrame") as caught:
        read_pairs(pd.DataFrame(ROWS))
    assert 'df.to_parquet("rows.parquet")' in str(caught.value)
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(UserError, match=r"not of save_to_disk(.|\n)*save_to_disk\(FOLDER\)"):
        read(tmp_path)
    (tmp_path / "state.json").write_text("[]")
    with pytest.raises(UserError, match="not a folder that `datasets` saved"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("label", "cells"),
    [
        ("hallucinated", {"hallucinated": "1", "is_faithful": 0, "unsupported": True, "verdict": " HALLUCINATED "}),
        ("hallucinated", {"label": "Not supported"}),
        ("faithful", {"is_hallucination": "False", "Supported": "yes", "label": "not_hallucinated"}),
    ],
)
def test_labels_that_can_mean_one_thing(label: str, cells: dict[str, Any]) -> None:
    assert {column: LabelReader(column).read(value) for column, value in cells.items()} == dict.fromkeys(cells, label)


@given(st.lists(st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="$"), min_size=1), min_size=3,
    max_size=5, unique_by=str.lower))  # fmt: skip
def test_the_setting_that_an_error_shows_can_be_typed(labels: list[str]) -> None:
    hint = str(LabelReader("verdict").refuse(labels, "here").hint)
    (typed,) = shlex.split(hint.removesuffix("; null leaves such rows out"))
    reader = LabelReader("verdict", OverridesParser.create().parse_override(typed).value())
    assert all(reader.knows(label) for label in labels)


def test_questions_groups_ids_and_spans_are_read_where_a_table_has_them(tmp_path: Path) -> None:
    marked = '"[{""start"": 6, ""end"": 9}]"'
    (tmp_path / "a.csv").write_text(f"id,doc,document,question,reply,spans\nx,d,A lake.,Is it?,It is red.,{marked}\n")
    (found,) = read(tmp_path / "a.csv", columns={"group": "doc"})
    assert (found.id, found.group, found.label) == ("x", "d", "hallucinated")
    assert (found.history, found.spans) == (ASKED, SPANS)
    for element, problem in (("unit", None), ("colour", "field 'element' is 'colour'; known: 'number', 'date'")):
        span = {"start": 6, "end": 9, "relation": "contradiction", "element": element}
        path = write(tmp_path / "b.jsonl", [{"context": "k", "answer": "It is red.", "spans": [span]}])
        with pytest.raises(UserError, match=problem) if problem else nullcontext():
            ((typed,),) = [example.spans or () for example in read(path)]
            assert (typed.relation, typed.element) == ("contradiction", "unit")
    (tmp_path / "a.csv").write_text("context,answer,label\nk,r,1\nk,s,0\nk,t,Unsure\n")
    labels = {1: "faithful", 0: "hallucinated", "unsure": None}  # what labels mean may be said, and a third left out
    assert [example.label for example in read(tmp_path / "a.csv", labels=labels)] == ["faithful", "hallucinated"]


@pytest.mark.parametrize(("kind", "join"), [(SpanEncoder, number_passages), (PairEncoder, " ".join)])
def test_passages_train_as_they_are_scored(kind: Any, join: Any, tmp_path: Path, tiny_bert: Path) -> None:
    passages, labels = ["The lake is deep.", "It lies in the north."], ["faithful", "hallucinated"] * 20
    rows = [{"knowledge": [*passages, str(n)], "response": "It is.", "label": label} for n, label in enumerate(labels)]
    path = write(tmp_path / "rows.jsonl", rows)
    encoder = kind(tokenizer=load_tokenizer(str(tiny_bert)), max_length=64)
    block = plain_config("train", "data=pairs", f"data.path={path}")["data"]
    data = build_data(block, encoder, num_epochs=1, seed=0)
    data.setup()
    trained_on = {example.knowledge for example in data.subsets["train"][0].examples()}
    assert trained_on < {example.knowledge for example in open_user_table(str(path), {}, join=join).examples}
    assert all(knowledge.startswith("passage 1:The lake") for knowledge in trained_on) == encoder.numbers_passages


def test_a_field_may_be_in_any_row_of_json(tmp_path: Path) -> None:
    rows = [PLAIN] * 1200 + [MARKED]
    for name in ("a.jsonl", "a.json"):
        Pairs(path=str(write(tmp_path / name, rows))).check()
        first, *_, second = read(tmp_path / name)
        assert (first.spans, first.history, second.spans, second.history) == ((), (), SPANS, ASKED)
    marked = {**PLAIN, "label": "hallucinated", "extra": {"marks": MARKED["spans"], "said": "Is it?"}}
    for number_before in (1, 1500):  # within the rows that are looked at for names, and behind them
        path = write(tmp_path / "a.jsonl", [{**PLAIN, "extra": {"a": 1}}] * number_before + [marked])
        last = read(path, columns={"spans": "extra.marks", "history": "extra.said"})[-1]
        assert (last.spans, last.history) == (SPANS, ASKED)


def test_a_row_of_json_without_the_group_of_the_others_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    grouped = {**PLAIN, "document_id": "d"}
    for rows, line in (([PLAIN, grouped, grouped], 1), ([grouped, grouped, PLAIN], 3)):
        path = write(tmp_path / "a.jsonl", rows)
        with pytest.raises(UserError) as caught:
            read(path)
        error = str(caught.value)
        assert "column 'document_id' is missing or empty" in error and f"a.jsonl, line {line}" in error
        assert "data.columns.group=null" in error and "data.on_bad_row=skip" in error
        assert [example.group for example in read(path, on_bad_row="skip")] == ["d", "d"]
        assert len(read(path, columns={"group": None})) == 3


def write_table(path: Path, *responses: str) -> None:
    write(path, [{**PLAIN, "response": response} for response in responses])


def test_copies_of_editors_and_of_macs_are_not_read(tmp_path: Path) -> None:
    for name in ("test.csv", ".ipynb_checkpoints/test-checkpoint.csv", "_old/test.csv"):
        write_table(tmp_path / "split" / name, "It is deep.")
    assert [example.id for example in read(tmp_path / "split")] == ["test:0"]
    write_table(tmp_path / "one" / "rows.csv", "It is deep.")
    (tmp_path / "one" / "._rows.csv").write_bytes(b"\0\5\x16\7" * 20)
    assert [example.id for example in read(tmp_path / "one")] == ["rows:0"]
    write_table(tmp_path / "above" / "corpus" / "rows.csv", "It is deep.")
    write_table(tmp_path / "above" / ".old" / "rows.csv", "It is deep.")
    assert [example.id for example in read(tmp_path / "above")] == ["rows:0"]
    write_table(tmp_path / ".data" / "rows.csv", "It is deep.")  # a folder that is named is read
    assert len(read(tmp_path / ".data")) == 1


def test_files_of_one_name_give_ids_that_name_their_folders(tmp_path: Path) -> None:
    for name in ("a/rows.csv", "b/rows.csv", "b/other.csv"):
        write_table(tmp_path / name, "It is deep.", "It is red.")
    glob = tmp_path / "*" / "*.csv"
    expected = ["a/rows.csv:0", "a/rows.csv:1", "other:0", "other:1", "b/rows.csv:0", "b/rows.csv:1"]
    assert sorted(example.id for example in read(glob)) == sorted(expected)
    source = Pairs(path=str(glob))
    streamed = [e.id for file in source.files()["all"] for e, _ in source.read_file(file, "all", ReadReport())]
    assert sorted(streamed) == sorted(expected)
    before = source.layout()
    assert before["names"] == ["a/rows.csv", "b/rows.csv"], "the place of the data is not a part of the cache's key"
    (tmp_path / "a").rename(tmp_path / "c")
    assert Pairs(path=str(glob)).layout() != before, "the cache key must depend on the folders"
    assert [example.id for example in read(tmp_path / "b" / "rows.csv")] == ["rows:0", "rows:1"]


def test_a_value_that_pandas_wrote_as_nan_is_missing(tmp_path: Path) -> None:
    nan = float("nan")
    path = write(tmp_path / "a.jsonl", [{**PLAIN, "score": nan}, {**PLAIN, "label": nan}])
    report = ReadReport()
    (found,) = read_examples(Pairs(path=str(path)), None, report)
    assert report.counts["dropped: no label"] == 1 and found.meta == {"score": None}
    with pytest.raises(UserError, match=r"by rows: 1.0 \(1\)(.|\n)*data.labels={1.0: hallucinated}"):
        read(write(path, [{**PLAIN, "label": nan}, {**PLAIN, "label": 1.0}]))
    write(path, [{**PLAIN, "group": "d"}, {**PLAIN, "group": nan}])
    with pytest.raises(UserError, match=r"column 'group' is missing or empty(.|\n)*line 2"):
        read(path)
    with pytest.raises(UserError, match="column 'response' is empty"):
        read(write(path, [{**PLAIN, "response": nan}]))


def test_bad_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("context,answer,label\nk,,faithful\nk,r,faithful\nk,r\nk,s,\n")
    report = ReadReport("skip")
    found = list(read_examples(Pairs(path=str(tmp_path / "a.csv")), None, report))
    assert [example.id for example in found] == ["a:1"]
    assert report.counts["rejected: bad row"] == 2 and report.counts["dropped: no label"] == 1
    assert [(reject["line"], reject["problem"].split(" ")[0]) for reject in report.rejects] == [(2, "column"), (4, "2")]
