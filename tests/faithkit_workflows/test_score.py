"""Rows of one's own come back as they were, with a verdict each, and the hallucinated share is counted rightly."""

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import f1_score

from critic.sequence.scorer import Critic
from critic.tagger.predictor import Tagger
from faithkit.cli import as_override
from faithkit.errors import UserError
from faithkit.files.run_folder import write_config
from faithkit.records import Prediction
from faithkit_workflows.settings.preflight import check_columns
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import UserTable, open_user_table, write_scored
from tests.data_modules.official_rows import write
from tests.running import commanded, compose, evaluate_here, metrics_of

COLUMNS: dict[str, str | None] = {**dict.fromkeys(("knowledge", "response", "history", "group"), "auto"), "id": None}
TEXTS = [("The river is long.", "It is long."), ("The city, old.", 'They say "new"\nand great.')]
TEXTS += [("A dog plays.", "A cat")]


def read(path: Path, by: Sequence[str] = (), on_bad_row: str = "stop", **columns: str) -> UserTable:
    return open_user_table(str(path), {**COLUMNS, **columns}, join=" ".join, by=by, on_bad_row=on_bad_row)


def verdicts(rows: UserTable, labels: list[str]) -> list[Prediction]:
    return [Prediction(id=e.id, label=label, score=0.5) for e, label in zip(rows.examples, labels, strict=True)]


def score_here(*overrides: str) -> None:
    from faithkit_workflows import score

    score.main(compose("score", "num_resamples=20", *overrides))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_rows_come_back_as_they_were_with_a_verdict_each(kind, trained, tmp_path, capsys) -> None:
    rows = [{"source": k, "model": "a" if i else "b", "answer": r} for i, (k, r) in enumerate(TEXTS)]
    path = write(tmp_path / f"rows.{kind}", rows)
    columns = ["columns.knowledge=source", "columns.response=answer"]
    score_here(f"path={path}", f"checkpoint={trained}", f"run_dir={tmp_path / 'run'}", "by=model", *columns)
    output = tmp_path / "run" / f"rows.scored.{kind}"
    with output.open(newline="") as file:
        found = list(csv.DictReader(file)) if kind == "csv" else [json.loads(line) for line in file]
    for row, given in zip(found, rows, strict=True):
        assert {name: row[name] for name in given} == given
        assert row["label"] in ("hallucinated", "faithful") and 0 <= float(row["probability"]) <= 1
    shown = capsys.readouterr().out
    assert "hallucinated" in shown and " all " in shown and " a " in shown and str(output) in shown


def test_what_is_unsure_is_left_out_and_may_be_asked_anew_without_judging_again(trained, tmp_path, capsys) -> None:
    path = write(tmp_path / "rows.csv", [{"knowledge": k, "response": r} for k, r in TEXTS])
    run, output = tmp_path / "run", tmp_path / "run" / "rows.scored.csv"
    score_here(f"path={path}", f"checkpoint={trained}", f"run_dir={run}", "abstain_at=1")
    judged = (run / "predictions" / "rows.jsonl").read_bytes()
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [""] * 3 and all(0 < float(row["probability"]) < 1 for row in rows)
    assert "3 rows on which it abstains do not count" in " ".join(capsys.readouterr().out.split())
    again = (f"resume={run}", "abstain_at=0.5")
    with commanded(again):
        score_here(*again)
    with output.open(newline="") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    sure = [json.loads(line) for line in judged.splitlines()]
    likelier = ["hallucinated" if row["score"] >= 0.5 else "faithful" for row in sure]
    expected = [row["label"] if row["label"] == likely else "" for row, likely in zip(sure, likelier, strict=True)]
    assert labels == expected, "a threshold away from one half calls what is not the likelier label"
    assert (run / "predictions" / "rows.jsonl").read_bytes() == judged


def test_scoring_goes_on_after_an_interruption_to_the_same_file(trained: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [{"knowledge": k, "response": r} for k, r in TEXTS * 3])
    options = [f"path={path}", f"checkpoint={trained}", "save_every_num_rows=2"]
    score_here(*options, f"run_dir={tmp_path / 'whole'}")
    whole = (tmp_path / "whole" / "predictions" / "rows.jsonl").read_bytes()
    assert whole.count(b"\n") == 9
    stopped = tmp_path / "stopped"
    score_here(*options, f"run_dir={stopped}")
    (stopped / "predictions" / "rows.jsonl").write_bytes(whole[: whole.index(b"\n") + 7])
    (stopped / "rows.scored.csv").unlink()
    score_here(f"resume={stopped}")
    assert (stopped / "predictions" / "rows.jsonl").read_bytes() == whole
    assert (stopped / "rows.scored.csv").read_bytes() == (tmp_path / "whole" / "rows.scored.csv").read_bytes()


def test_the_share_is_that_of_the_rows_and_its_interval_resamples_groups(tmp_path: Path) -> None:
    rows = [{"knowledge": "k", "response": "r", "model": "ab"[i % 2], "doc": str(i // 4)} for i in range(40)]
    table = read(write(tmp_path / "rows.csv", rows), by=["model"], group="doc")
    labels = ["hallucinated" if i % 4 == 0 else "faithful" for i in range(40)]  # one of four in every document
    shares = ShareCounter(["model"])
    write_scored(tmp_path / "out.csv", table, verdicts(table, labels), shares.add)
    shown = shares.table(shares.shares(num_resamples=200), grouped_by=table.grouped_by)
    assert "rows grouped by doc" in str(shown.caption)
    cells = list(zip(*(column.cells for column in shown.columns), strict=True))
    found = {str(name): (count, share) for name, count, share in cells}
    # Resampling ten documents that are alike changes nothing: up to 31% of others may be different (Clopper-Pearson).
    assert found["all"] == ("40", "25.0 [17.3, 48.1]")
    assert found["a"] == ("20", "50.0 [34.6, 65.4]") and found["b"] == ("20", "0.0 [0.0, 30.8]")


def test_a_bad_row_is_told_with_its_line_or_left_without_a_verdict(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [{"knowledge": "k", "response": "r"}, {"knowledge": "k", "response": " "}])
    with pytest.raises(UserError, match=r"'response' is empty\n  at: .*rows.csv, line 3"):
        read(path)
    rows = read(path, on_bad_row="skip")
    write_scored(tmp_path / "out.csv", rows, verdicts(rows, ["faithful"]))
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ["k,r,faithful,0.5,[]", "k, ,,,"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": ["model"]}, "there is no column 'model'"),
        ({"knowledge": "source"}, "columns.knowledge: there is no column 'source'"),
        ({"id": "name"}, "columns.id: there is no column 'name'"),
    ],
)
def test_a_column_that_is_not_there_is_told(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [{"knowledge": "k", "response": "r"}])
    with pytest.raises(UserError, match=words):
        read(path, **options)


def test_columns_that_the_first_row_of_json_lacks_are_no_mistake(tmp_path: Path) -> None:
    first = {"knowledge": "Ice is cold.", "response": "It is."}
    path = write(tmp_path / "rows.jsonl", [first, {**first, "question": "How is ice?", "model": "a"}])
    columns = {**COLUMNS, "history": "question"}
    assert not list(check_columns(str(path), columns, "model", None))
    (problem,) = check_columns(str(path), columns, "modle", None)
    assert "did you mean by=model" in str(problem)


def test_an_id_given_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [{"knowledge": "k", "response": "r", "name": "1"}] * 2)
    with pytest.raises(UserError, match=r"id '1' is already in .*line 2"):
        read(path, id="name")


@pytest.mark.parametrize(
    "name", ["my rows.csv", "it's.csv", "a,b.csv", "[x].jsonl", "data/rows.tsv", "s3://b/day=1/*.csv"]
)
def test_the_first_argument_may_be_the_file_whatever_its_name(name: str) -> None:
    first, *others = as_override([name, "checkpoint=x"])
    assert compose("score", first, *others).path == name
    assert as_override([f"path={name}", "checkpoint=x"]) == [f"path={name}", "checkpoint=x"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "z.csv", [{"knowledge": k, "response": r} for k, r in TEXTS])


def scored(table: Path, checkpoint: Path | str, run: Path, *overrides: str) -> list[dict[str, object]]:
    score_here(f"path={table}", f"checkpoint={checkpoint}", f"run_dir={run}", *overrides)
    return [json.loads(line) for line in (run / "predictions" / "z.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("kind", "run"), [(Critic, "trained"), (Tagger, "trained_tagger")])
def test_a_detector_calls_as_in_python(kind, run, table, tmp_path, request) -> None:
    checkpoint = request.getfixturevalue(run)
    stored = scored(table, checkpoint, tmp_path / "stored")
    cut = sorted(float(str(row["score"])) for row in stored)[1]
    found = scored(table, checkpoint, tmp_path / "run", f"threshold={cut}")
    expected = kind.load(checkpoint).predict([k for k, _ in TEXTS], [r for _, r in TEXTS], threshold=cut)
    assert [row["label"] for row in found] == [one.label for one in expected]
    assert {row["label"] for row in found if row["spans"]} <= {"hallucinated"}
    if kind is Critic:
        assert [row["score"] for row in found] == [row["score"] for row in stored]
        assert len({row["label"] for row in found}) == 2
    origin = json.loads((tmp_path / "run" / "predictions" / "z.origin.json").read_text())
    assert origin["models"][0]["threshold"] == f"{cut:.4g}, set by the command"
    again = (f"resume={tmp_path / 'run'}", "threshold=0.9")
    with commanded(again), pytest.raises(UserError, match="a resumed run keeps its settings: threshold"):
        score_here(*again)


def test_a_judge_that_weighs_takes_it_and_one_that_writes_does_not(table, language_models, trained, tmp_path) -> None:
    model = language_models["llama"]
    assert {row["label"] for row in scored(table, model, tmp_path / "0", "threshold=0")} == {"hallucinated"}
    assert {row["label"] for row in scored(table, model, tmp_path / "1", "threshold=1")} == {"faithful"}
    engine = {"engine": {"name": "transformers", "model": str(model), "cache": None}}
    write_config(tmp_path / "writes.yaml", {**engine, "judge": {"ask": "judgement"}})
    with pytest.raises(UserError, match="this judge writes its verdicts"):
        scored(table, tmp_path / "writes.yaml", tmp_path / "2", "threshold=0.5")
    write_config(tmp_path / "both.yaml", {**engine, "checkpoint": str(trained), "cascade": {"band": [0.4, 0.6]}})
    with pytest.raises(UserError, match="threshold needs a single critic, tagger or weighing judge"):
        scored(table, tmp_path / "both.yaml", tmp_path / "3", "threshold=0.5")


HALLUCINATED, FAITHFUL = "hallucinated", "faithful"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A table of 60 rows in three languages, and predictions that err on every fifth row."""
    rows, said = [], []
    for n in range(60):
        label = HALLUCINATED if n % 3 == 0 else FAITHFUL
        texts = {"knowledge": f"Source {n // 2} says so.", "response": f"Answer {n}.", "label": label}
        own = {"language": ("de", "fr/CH", "")[n % 7 % 3], "customer": f"c{n}" if n < 40 else "many"}
        named_as_a_filter = {"outcome": "<b>paid</b>" if n % 4 else "open"}
        rows.append({"id": str(n), **texts, **own, "app": {"version": n % 2}, **named_as_a_filter})
        other = FAITHFUL if label == HALLUCINATED else HALLUCINATED
        said.append({"id": str(n), "label": label if n % 5 else other, "score": 0.5})
    return write(tmp_path / "rows.jsonl", rows), write(tmp_path / "said.jsonl", said)


def evaluate(files: tuple[Path, Path], run: Path, by: str) -> dict[str, Any]:
    rows, said = files
    given = [f"benchmark.path={rows}", f"predictions={said}", f"run_dir={run}", f"benchmark.by={by}"]
    evaluate_here("benchmark=pairs", *given)
    return metrics_of(run, "test/pairs/by/")


def test_each_value_has_the_metrics_of_its_own_rows(files, tmp_path, capsys) -> None:
    found = evaluate(files, tmp_path / "run", "[language,app.version]")
    rows, said = ([json.loads(line) for line in path.read_text().splitlines()] for path in files)
    for value, shown in {"de": "de", "fr/CH": "fr/CH", "": "(empty)"}.items():
        part = [n for n, row in enumerate(rows) if row["language"] == value]
        expected = f1_score([rows[n]["label"] for n in part], [said[n]["label"] for n in part], average="macro")
        one = found[f"language/{shown}/macro_f1"]
        assert one["value"] == pytest.approx(expected) and one["low"] < one["value"] < one["high"]
        assert one["n"] == len(part)
        called = sum(said[n]["label"] == HALLUCINATED for n in part) / len(part)
        assert found[f"language/{shown}/predicted_rate"]["value"] == pytest.approx(called)
    assert {"app.version/0/macro_f1", "app.version/1/macro_f1"} <= found.keys()
    told = capsys.readouterr().out
    assert "by language" in told and "by app.version" in told and "(empty)" in told
    assert "by language" in (tmp_path / "run" / "report.md").read_text()


def test_of_many_values_the_most_frequent_are_told_and_the_page_filters_whatever_their_texts(files, tmp_path) -> None:
    found = evaluate(files, tmp_path / "run", "[outcome,customer]")
    sizes = {name.split("/")[1]: one["n"] for name, one in found.items() if re.match("customer/.*/accuracy", name)}
    assert len(sizes) == 21 and sum(sizes.values()) == 60
    assert sizes["many"] == 20 and sizes["the other 21 values"] == 21
    page = (tmp_path / "run" / "answers.html").read_text()
    block = re.search(r'id="sets">(.*?)</script>', page, re.DOTALL)
    (facts,) = [one["facts"] for one in json.loads(block.group(1))] if block else [[]]
    assert [(one["name"], one["title"]) for one in facts] == [("by.outcome", "outcome"), ("by.customer", "customer")]
    assert [len(one["values"]) for one in facts] == [2, 21] and "<b>paid" not in page


def test_a_column_that_is_not_there_is_refused_with_those_that_are(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no column 'speech' to count by") as refused:
        evaluate(files, tmp_path / "run", "[speech]")
    assert "benchmark.by=[COLUMN]" in str(refused.value.hint) and "language" in str(refused.value.hint)
