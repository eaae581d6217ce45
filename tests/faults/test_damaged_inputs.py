"""Damaged datasets, tables and predictions give valid examples and figures, or an explanation, and never a hang."""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.build import find_dataset
from data_modules.datasets.ragtruth import RagTruth
from data_modules.embedded.layouts import WRITERS
from data_modules.reading.dataset import Source, read_examples
from data_modules.reading.rows import ReadReport
from data_modules.weak.dropped import DroppedSupport
from data_modules.weak.wow_pairs import WeakWow, read_generations
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.responses.measure_responses import PairedResponses
from faithkit.pages.page import AnswerSet, write_page
from faithkit.records import Example, Prediction
from faithkit.reports.write_reports import detection_reports, write_run_results
from faithkit_workflows.answering.write_answers import write_answers
from faithkit_workflows.tables.user_table import open_user_table, write_scored
from tests.data_modules.official import Rows
from tests.data_modules.official.dialogues import WOW_PARLAI
from tests.data_modules.official.judged import AUDIT_DOHA, AUDIT_GPT2, BEGIN_2021
from tests.data_modules.official.judgements import HALUEVAL_DIALOGUE, HALUEVAL_GENERAL, HALUEVAL_SUMMARIZATION
from tests.data_modules.official.spans import PAIRS
from tests.data_modules.official_rows import CASES, encode, write, write_case
from tests.faults.strategies import damaged_bytes, damaged_value, new_folder, share, used_or_explained

Files = dict[str, bytes]
# Layouts that `CASES` lacks: the dataset, a file and its rows.
OTHERS: dict[str, tuple[str, str, Rows]] = {
    "wow, ParlAI": ("wow", "train.json", WOW_PARLAI),
    "begin, 2021": ("begin", "dev_05_24_21.tsv", BEGIN_2021),
    "audit, DoHA": ("audit", "doha_processed_wow.csv", AUDIT_DOHA),
    "audit, GPT2": ("audit", "gpt2_processed_wow.csv", AUDIT_GPT2),
    "pairs": ("pairs", "test.csv", PAIRS),
    "halueval, dialogue": ("halueval", "dialogue_data.json", HALUEVAL_DIALOGUE),
    "halueval, summarization": ("halueval", "summarization_data.json", HALUEVAL_SUMMARIZATION),
    "halueval, general": ("halueval", "general_data.json", HALUEVAL_GENERAL),
}
EMBEDDED = ("cmu_dog", "topical_chat")  # whose layout of `CASES` is that of single turns
WITHOUT_KNOWLEDGE = ("diahalu", "halueval")  # all rows of the one, some of the other


@cache
def corpora() -> dict[str, tuple[str, Files]]:
    """Gives small corpora in every layout by name: the dataset, and its files by their paths."""
    found: dict[str, tuple[str, Files]] = {}
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        for name in CASES:
            write_case(root / "official" / name, name)
            found[name] = name, files_of(root / "official" / name)
        for name, (dataset, file, rows) in OTHERS.items():
            write(root / name / file, rows)
            found[name] = dataset, files_of(root / name)
        for name in EMBEDDED:
            layout = find_dataset(name).embedded_layout
            assert layout is not None
            WRITERS[layout](root / "embedded" / name, 9)
            found[f"{name}, embedded"] = name, files_of(root / "embedded" / name)
        WRITERS["wow_faithdial"](root / "weak", 12)
        found["wow, weak"] = "wow", files_of(root / "weak")
    return found


def files_of(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@st.composite
def damaged_rows(draw: st.DrawFn, data: bytes, suffix: str) -> bytes:
    """Damages the bytes of a file, or one of its rows so that the file stays one of its kind."""
    if draw(st.booleans()):
        return draw(damaged_bytes(data))
    text = data.decode("utf-8-sig")
    if suffix in (".tsv", ".csv"):
        lines = [line.split("\t") for line in text.splitlines()]
        table = lines if suffix == ".tsv" else list(csv.reader(io.StringIO(text, newline="")))
        place = draw(st.integers(0, len(table) - 1))
        row = draw(damaged_value(table[place]))
        table[place] = [str(cell) for cell in (row if isinstance(row, list) else [row])]
        if suffix == ".tsv":
            return "".join("\t".join(cells) + "\n" for cells in table).encode(errors="replace")
        buffer = io.StringIO(newline="")
        csv.writer(buffer).writerows(table)
        return buffer.getvalue().encode(errors="replace")
    if suffix == ".jsonl" and not text.startswith("["):
        rows = [json.loads(line) for line in text.splitlines()]
        place = draw(st.integers(0, len(rows) - 1))
        rows[place] = draw(damaged_value(rows[place]))
        return "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    return json.dumps(draw(damaged_value(json.loads(text)))).encode()


def write_damaged(folder: Path, files: Files, data: st.DataObject) -> None:
    victim = data.draw(st.sampled_from(sorted(files)))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        damaged = data.draw(damaged_rows(content, Path(name).suffix)) if name == victim else content
        (folder / name).write_bytes(damaged)


def read_all(source: Source, on_bad_row: str) -> int:
    """Reads all splits, and gives the number of rows that were skipped."""
    rejected = 0
    for split in source.split_names():
        report = ReadReport(on_bad_row)
        for example in read_examples(source, split, report):
            check_example(example)
        json.dumps(report.rejects)
        rejected += report.counts["rejected: bad row"]
        assert rejected >= len(report.rejects), "rejects that are not counted"
    return rejected


def check_example(example: Example) -> None:
    """Checks what everything after reading relies on: types, texts that can be written, spans, no lost fields."""
    texts = {name: getattr(example, name) for name in ("id", "source", "split", "group", "knowledge", "response")}
    for name, text in texts.items():
        may_be_empty = name == "knowledge" and example.source in WITHOUT_KNOWLEDGE
        assert isinstance(text, str) and (text.strip() or may_be_empty), f"{name} is {text!r}"
    optional = [value for value in (example.reference, example.original, example.target) if value is not None]
    turns = [text for turn in example.history for text in (turn.speaker, turn.text)]
    for text in (*texts.values(), *optional, *turns, *example.tags, *example.negatives):
        assert isinstance(text, str)
        text.encode()
    for span in example.spans or ():
        assert type(span.start) is type(span.end) is int and span.start < span.end and isinstance(span.label, str)
    if {"probability", "whole_knowledge"} & example.meta.keys():
        assert example.source in ("begin", "audit"), "a row's field took the place of a computed one"
    written = json.dumps(example.to_dict())
    assert json.dumps(Example.from_dict(json.loads(written)).to_dict()) == written, "the cache would give another"


@pytest.mark.parametrize("name", [*CASES, *OTHERS, *(f"{name}, embedded" for name in EMBEDDED)])
@share(12)
@given(st.data())
def test_a_dataset(name: str, data: st.DataObject) -> None:
    dataset, files = corpora()[name]
    with new_folder() as folder:
        write_damaged(folder, files, data)
        skipped, refused = 0, 0
        for on_bad_row in ("skip", "stop"):
            refused += 1
            with used_or_explained():
                skipped += read_all(find_dataset(dataset)(path=str(folder)), on_bad_row)
                refused -= 1
        assert refused or not skipped, "a row was skipped, and none was refused"


@share(5)
@given(st.data())
def test_corpora_that_are_made_of_others(data: st.DataObject) -> None:
    with new_folder() as folder, used_or_explained():
        if data.draw(st.booleans()):
            write_damaged(folder, corpora()["ragtruth"][1], data)
            source: Source = DroppedSupport(of=RagTruth(path=str(folder)))
        else:
            write_damaged(folder, corpora()["wow, weak"][1], data)
            source = WeakWow(path=str(folder))
        for on_bad_row in ("skip", "stop"):
            for split in source.split_names():
                list(read_examples(source, split, ReadReport(on_bad_row)))


@share(4)
@given(st.data())
def test_generations_of_models(data: st.DataObject) -> None:
    replies: Any = {"generation": [{"dialogue": [["a lake", "b"], ["c d"]]}, {"dialogue": [["e"]]}]}
    places = (("0", 0), ("0", 1), ("1", 0))
    turns = [
        Example(id=f"{group}:{n}", source="wow", split="test", group=group, knowledge="k", response="r")
        for group, n in places
    ]
    with new_folder() as folder, used_or_explained():
        write_damaged(folder, {"generations/gpt2.json": json.dumps(replies).encode()}, data)
        for _, _, reply in read_generations(folder, turns, ReadReport()):
            reply.encode()


TABLE: list[dict[str, Any]] = [
    {"knowledge": "a lake", "response": "deep", "question": "how?", "name": "1", "group": "g", "model": "m"},
    {"knowledge": "a hill", "response": "high", "question": "how?", "name": "2", "group": "g", "model": "n"},
]
NESTED: dict[str, Any] = {"knowledge": ["a", "b"], "question": [{"speaker": "seeker", "text": "how?"}], "score": 0.5}
COLUMNS = {"knowledge": None, "response": "response", "history": "question", "id": "name", "group": "group"}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json"])
@share(8)
@given(st.data())
def test_a_users_table_is_read_and_written_back(suffix: str, data: st.DataObject) -> None:
    rows = TABLE if suffix in (".csv", ".tsv") else [{**TABLE[0], **NESTED}, TABLE[1]]
    with new_folder() as folder:
        file = folder / f"rows{suffix}"
        file.write_bytes(data.draw(damaged_rows(encode(rows, suffix).encode(), suffix)))
        for on_bad_row in ("skip", "stop"):
            with used_or_explained():
                read = open_user_table(str(file), COLUMNS, join="\n".join, by=["model"], on_bad_row=on_bad_row)
                for example in read.examples:
                    check_example(example)
                verdicts = [Prediction(id=example.id, label="faithful", score=0.25) for example in read.examples]
                for target in (".csv", ".tsv", ".jsonl", ".json"):
                    write_scored(folder / f"out{target}", read, verdicts)


@cache
def labelled() -> list[Example]:
    """Reads answers with marked spans."""
    with TemporaryDirectory() as folder:
        write_case(Path(folder), "ragtruth")
        return list(read_examples(RagTruth(path=folder), "test", ReadReport()))


def prediction_lines(examples: Sequence[Example]) -> bytes:
    """Gives predictions as a run writes them, with each field in use."""
    rows = []
    for example in examples:
        score = 0.25 if example.label == "faithful" else 0.75
        found = Prediction(id=example.id, label=example.label, score=score, spans=example.spans or (), text="a lake")
        rows.append(found.to_dict())
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


@share(5)
@given(st.data())
def test_predictions_are_scored_without_a_figure_that_is_no_number(data: st.DataObject) -> None:
    with new_folder() as folder, used_or_explained():
        file, run = folder / "predictions.jsonl", RunFolder(folder)
        file.write_bytes(data.draw(damaged_rows(prediction_lines(labelled()), ".jsonl")))
        predictions = read_predictions(file)
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")):  # as strict as a terminal
            found = detection_reports({"set": (labelled(), list(predictions.values()))}, meta={}, num_resamples=10)
            write_run_results(run, found, meta={})
        answers = AnswerSet(name="set", examples=labelled(), predictions=predictions)
        write_page(folder / "page.html", [answers], title="answers")
        for name, metric in json.loads(run.metrics.read_text())["metrics"].items():
            assert metric["value"] is None or metric["value"] == metric["value"], name


@share(4)
@given(st.data())
def test_responses_are_compared(data: st.DataObject) -> None:
    with new_folder() as folder, used_or_explained():
        (folder / "other.jsonl").write_bytes(prediction_lines(labelled()))
        (folder / "ours.jsonl").write_bytes(data.draw(damaged_rows(prediction_lines(labelled()), ".jsonl")))
        ours, other = (read_predictions(folder / f"{name}.jsonl") for name in ("ours", "other"))
        PairedResponses.of(labelled(), ours, other, incomplete=False)


class Echo:
    """Answers every example with its knowledge."""

    def answer(self, examples: Sequence[Example], advance: Callable[[int], object]) -> list[Prediction]:
        advance(len(examples))
        return [Prediction(id=example.id, text=example.knowledge) for example in examples]


@share(4)
@given(st.data())
def test_the_predictions_of_an_interrupted_run_are_completed(data: st.DataObject) -> None:
    with new_folder() as folder, used_or_explained(), contextlib.redirect_stderr(io.StringIO()):
        file, answerer, size = folder / "predictions.jsonl", Echo(), data.draw(st.integers(1, 3))
        write_answers(file, labelled(), answerer, chunk_size=size)  # type: ignore[arg-type]
        whole = file.read_bytes()
        damaged = data.draw(st.sampled_from([file, file.with_suffix(".checksums")]))
        lines = damaged.read_bytes()
        cut = st.integers(0, len(lines) - 1).map(lambda end: lines[:end])
        damaged.write_bytes(data.draw(st.one_of(cut, damaged_rows(lines, ".jsonl"))))
        answers = write_answers(file, labelled(), answerer, chunk_size=size)  # type: ignore[arg-type]
        assert answers == [Prediction(id=example.id, text=example.knowledge) for example in labelled()]
        assert file.read_bytes() == whole
