"""Scoring writes no file but its own, and verdicts on a table that was scored before stand beside the old ones."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from construction.labels import VERDICT
from construction.verdict_tables import read_file, read_shards
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.records import Prediction
from faithkit_workflows.detectors import loading as detectors
from faithkit_workflows.tables.user_table import write_scored
from tests.data_modules.official_rows import write
from tests.faithkit_workflows.test_score import TEXTS, read, score_here
from tests.running import commanded, compose

PLAIN, SECOND, THIRD = (
    tuple(before + name + behind for name in VERDICT)
    for before, behind in (("", ""), ("faithkit_", ""), ("faithkit_", "_2"))
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "z.csv", [{"knowledge": k, "response": r} for k, r in TEXTS])


@pytest.fixture
def without_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(detectors, "load_checkpoint", load)


def resume_here(run: Path, *overrides: str) -> None:
    from faithkit_workflows import score

    given = [f"resume={run}", *overrides]
    with commanded(given):
        score.main(compose("score", *given))


def spellings(table: Path) -> Iterator[Path]:
    yield table
    yield table.parent / "." / "x" / ".." / table.name
    (table.parent / "x").mkdir()
    (table.parent / "link.csv").symlink_to(table)
    yield table.parent / "link.csv"
    os.link(table, table.parent / "hard.csv")
    yield table.parent / "hard.csv"


@pytest.mark.usefixtures("without_models")
def test_the_table_that_is_scored_is_never_the_output(table: Path, trained: Path, tmp_path: Path) -> None:
    from faithkit.settings.check import check_settings
    from faithkit_workflows.settings.prediction import ScoreSettings
    from tests.running import plain_config

    before = table.read_bytes()
    for output in spellings(table):
        given = [f"path={table}", f"checkpoint={trained}", "num_rows=1", f"output={output}"]
        with pytest.raises(UserError, match="output is the table that is scored"):
            check_settings(plain_config("score", *given), ScoreSettings)
        with pytest.raises(UserError):
            score_here(*given, f"run_dir={tmp_path / 'run'}")
        assert table.read_bytes() == before and not (tmp_path / "run").exists()


@pytest.mark.usefixtures("without_models")
def test_another_file_is_not_replaced(table: Path, trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("mine")
    with pytest.raises(UserError, match=r"this file exists\n  at: .*other.csv\n  hint: choose another name, or delete"):
        score_here(f"path={table}", f"checkpoint={trained}", f"run_dir={tmp_path / 'run'}", f"output={other}")
    assert other.read_text() == "mine" and not (tmp_path / "run").exists()


def test_a_run_that_goes_on_may_write_its_own_file_again_and_no_other(table, trained, tmp_path) -> None:
    run, output = tmp_path / "run", tmp_path / "new folder" / "out.csv"
    score_here(f"path={table}", f"checkpoint={trained}", f"run_dir={run}", f"output='{output}'")
    whole = output.read_bytes()
    resume_here(run)
    assert output.read_bytes() == whole
    output.unlink()
    resume_here(run, "abstain_at=1")
    assert output.read_bytes() != whole
    output.write_text("edited since")
    with pytest.raises(UserError, match="has changed since this run wrote it"):
        resume_here(run)
    assert output.read_text() == "edited since"
    (tmp_path / "other.csv").write_text("mine")
    with pytest.raises(UserError, match="has changed since this run wrote it"):
        resume_here(run, f"output={tmp_path / 'other.csv'}")
    with pytest.raises(UserError, match="output is the table that is scored"):
        resume_here(run, f"output={table}")


def test_a_file_that_came_while_rows_were_judged_stays(table, trained, tmp_path, monkeypatch) -> None:
    output, load = tmp_path / "out.csv", detectors.load_checkpoint

    def slow(config: object) -> object:
        output.write_text("mine")
        return load(config)  # type: ignore[arg-type]

    monkeypatch.setattr(detectors, "load_checkpoint", slow)
    with pytest.raises(UserError, match=r"resume=.*run output=NAME"):
        score_here(f"path={table}", f"checkpoint={trained}", f"run_dir={tmp_path / 'run'}", f"output={output}")
    assert output.read_text() == "mine"
    resume_here(tmp_path / "run", f"output={tmp_path / 'out2.csv'}")
    assert (tmp_path / "out2.csv").exists()


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_a_table_that_was_scored_is_scored_again_and_again(suffix, trained, tmp_path, capsys) -> None:
    files = [write(tmp_path / "0.jsonl", [{"knowledge": k, "response": r} for k, r in TEXTS])]
    for number in (1, 2, 3):
        files.append(tmp_path / f"{number}.{suffix}")
        given = [f"checkpoint={trained}", f"run_dir={tmp_path / f'run{number}'}", f"threshold={number % 2}"]
        score_here(f"path={files[-2]}", f"output={files[-1]}", *given)
        said = capsys.readouterr().out
        names = (PLAIN, SECOND, THIRD)[number - 1]
        note = f"the verdicts are in the columns {', '.join(names)}, since"
        assert (note in " ".join(said.split())) == (number > 1), said
    found = [values for values, _ in read(files[-1])]
    assert [*found[0]] == ["knowledge", "response", *PLAIN, *SECOND, *THIRD]
    labels = [[row[names[0]] for row in found] for names in (PLAIN, SECOND, THIRD)]
    assert labels == [["faithful"] * 3, ["hallucinated"] * 3, ["faithful"] * 3]  # of the thresholds 1, 0 and 1
    if suffix == "parquet":
        columns = {"id": None, "label": "label", "score": None, "group": None}
        verdicts = read_shards(str(files[-1]), columns, None, None)
        assert verdicts.labels.tolist() == [0, 0, 0]
        assert verdicts.scores.tolist() == [row[THIRD[1]] for row in found]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_the_spans_of_a_scored_table_have_their_types(suffix: str, default_file: Path, tmp_path: Path) -> None:
    path, output = tmp_path / "in.csv", tmp_path / f"out.{suffix}"
    path.write_text("context,answer\nThe warranty lasts 24 months.,The warranty lasts 36 months.\n")
    given = (f"checkpoint=default:{default_file}", f"output={output}", f"run_dir={tmp_path / 'run'}", "threshold=0")
    score_here(f"path={path}", *given)
    [scored] = pq.read_table(output).to_pylist() if suffix == "parquet" else [json.loads(output.read_text())]
    [span] = scored["spans"]
    assert (span["text"], span["relation"], span["element"]) == ("36 months", "contradiction", "number")


def test_an_estimate_reads_the_newest_verdicts_or_those_that_are_named(tmp_path: Path) -> None:
    row: dict[str, str] = {"id": "a"}
    for names, label, probability in ((PLAIN, "faithful", "0.1"), (SECOND, "hallucinated", "0.8")):
        row |= dict(zip(names[:2], (label, probability), strict=True))
    path = write(tmp_path / "a.csv", [row | {THIRD[0]: "hallucinated", THIRD[1]: "0.9"}])
    columns: dict[str, str | None] = {"id": "id", "label": "label", "score": None, "group": None}
    assert read_file(str(path), columns, None, []).scores == 0.9
    assert read_file(str(path), {**columns, "label": "faithkit_label"}, None, []).scores == 0.8
    assert read_file(str(path), {**columns, "score": "probability"}, None, []).scores == 0.1


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl", "json"])
def test_a_scored_table_is_no_file_of_predictions(suffix: str, tmp_path: Path) -> None:
    rows = read(write(tmp_path / "rows.csv", [{"knowledge": "k", "response": "r"}]))
    path = tmp_path / f"mine.{suffix}"
    write_scored(path, rows, [Prediction(id="rows:0", label="faithful", score=0.5)])
    with pytest.raises(UserError, match=r"not (a )?predictions(.|\n)*JSON lines with id and label(.|\n)*RUN/"):
        read_predictions(path)


def test_half_a_surrogate_pair_is_written_back_as_its_escape(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"knowledge": "k", "response": "r", "x": "\ud800"}))
    write_scored(tmp_path / "out.csv", read(path), [Prediction(id="rows:0", label="faithful", score=0.5)])
    assert "\\ud800" in (tmp_path / "out.csv").read_text()


def test_a_label_of_the_data_is_never_read_for_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "scored.jsonl"
    path.write_text(json.dumps({"id": "a", "label": "faithful", "faithkit_label": "hallucinated"}) + "\n")
    with pytest.raises(UserError, match="not predictions but a table"):
        read_predictions(path)
