"""A folder of shards is scored as each of its files alone, once each; what does not fit together is refused."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pyarrow.parquet as pq
import pytest

from faithkit.errors import UserError
from faithkit.signals import Interrupted
from tests.running import compose
from tests.workflows.sharded.data import in_process, rows, score, scored, write_jsonl, write_shards
from workflows.sharded import identity
from workflows.sharded.worker import ShardWorker


def plain(file: Path, output: Path, checkpoint: Path, run_dir: Path) -> bytes:
    from workflows import score

    given = [f"path={file}", f"output={output}", f"checkpoint={checkpoint}", f"run_dir={run_dir}"]
    score.main(compose("score", *given, "on_bad_row=skip", "num_resamples=20"))
    return output.read_bytes()


@pytest.fixture(scope="module")
def finished(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards in `data`, scored into `out`."""
    folder = tmp_path_factory.mktemp("finished")
    score(write_shards(folder / "data"), folder / "out", trained)
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """The shards of `finished`, of the same dates, and a copy of what was scored."""
    shutil.copytree(finished / "out", tmp_path / "out")
    return tmp_path / "out"


def untouched(worker: type, argument: Any, rows: Any, options: Any) -> Iterator[Any]:
    """A launch in which no shard may be left to score."""
    raise AssertionError(f"scored again: {rows}")


def test_each_scored_shard_has_the_bytes_that_its_file_alone_would_get(
    finished: Path, trained: Path, tmp_path: Path
) -> None:
    found = scored(finished / "out")
    assert list(found) == ["part-00.parquet", "part-01.parquet", "part-02.parquet"]
    for number, (name, content) in enumerate(found.items()):
        (file,) = (finished / "data").glob(f"{Path(name).stem}.*")
        assert content == plain(file, tmp_path / name, trained, tmp_path / f"run-{number}")


def test_the_folder_is_read_as_one_table(finished: Path) -> None:
    table = pq.read_table(finished / "out")
    assert table.num_rows == 36 and {"knowledge", "model", "label", "probability", "spans"} <= set(table.column_names)


def test_a_tagger_marks_the_spans_that_it_marks_in_a_single_file(trained_tagger: Path, tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "data" / "a.jsonl", rows(6, 1)).parent
    score(data, tmp_path / "out", trained_tagger)
    alone = plain(data / "a.jsonl", tmp_path / "a.parquet", trained_tagger, tmp_path / "run")
    assert scored(tmp_path / "out") == {"a.parquet": alone}


def test_a_second_launch_reads_no_shard_again_and_scores_those_that_are_new(
    finished: Path, copied: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = finished / "data"
    score(data, copied, trained, run=untouched)
    assert "3 are scored already, 0 are left" in capsys.readouterr().out
    fourth = write_jsonl(data / "part-03.jsonl", rows(4, 9))
    try:
        score(data, copied, trained)
    finally:
        fourth.unlink()
    assert "40 rows in 4 shards" in capsys.readouterr().out


def test_a_scored_shard_that_is_lost_or_cut_is_scored_again(finished: Path, copied: Path, trained: Path) -> None:
    (copied / "part-00.parquet").unlink()
    (copied / "part-01.parquet").write_bytes(b"PAR1")
    score(finished / "data", copied, trained)
    assert scored(copied) == scored(finished / "out")


def test_shards_may_be_named_by_a_glob_or_lie_in_an_archive(trained: Path, tmp_path: Path, finished: Path) -> None:
    data = finished / "data"
    score(f"{data}/*.jsonl", tmp_path / "glob", trained)
    assert scored(tmp_path / "glob").keys() == {"part-00.parquet", "part-02.parquet"}
    with ZipFile(tmp_path / "shards.zip", "w") as archive:
        for path in data.glob("*.jsonl"):
            archive.write(path, f"in/{path.name}")
    score(f"zip://in/*.jsonl::{tmp_path / 'shards.zip'}", tmp_path / "zip", trained)
    assert scored(tmp_path / "zip") == scored(tmp_path / "glob")


def test_shards_keep_their_folders_and_hidden_files_are_left_out(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    for name in ("day=1/a.csv", "day=2/a.csv"):
        (data / name).parent.mkdir(parents=True)
        (data / name).write_text("knowledge,response\nA dog plays.,A cat plays.\n")
    (data / "_SUCCESS").touch()
    (data / ".part.csv").touch()
    (data / "README.md").touch()
    score(data, tmp_path / "out", trained)
    assert scored(tmp_path / "out").keys() == {"day=1/a.parquet", "day=2/a.parquet"}
    assert "left out: README.md\n" in capsys.readouterr().out


def test_bad_rows_are_put_aside_with_their_shard_and_line(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_jsonl(tmp_path / "data" / "a.jsonl", rows(2, 0))
    path.write_text(f"{path.read_text()}no json\n" + json.dumps({"knowledge": "k", "response": "", "model": "b"}))
    score(path.parent, tmp_path / "out", trained)
    rejects = (tmp_path / "out/_faithkit/rejects/a.jsonl.jsonl").read_text().splitlines()
    assert [(row["file"], row["line"]) for row in map(json.loads, rejects)] == [("a.jsonl", 3), ("a.jsonl", 4)]
    assert "2 rows cannot be scored" in capsys.readouterr().out
    labels = pq.read_table(tmp_path / "out" / "a.parquet")["label"].to_pylist()
    assert labels[2:] == [None] and None not in labels[:2], "a row that could be read stays, without a verdict"


def test_the_share_is_told_by_column_over_all_shards(
    finished: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score(finished / "data", tmp_path / "out", trained, "by=model")
    table = pq.read_table(tmp_path / "out").to_pylist()
    shown = capsys.readouterr().out
    for name, chosen in {"all": table, "a": [row for row in table if row["model"] == "a"]}.items():
        share = 100 * sum(row["label"] == "hallucinated" for row in chosen) / len(chosen)
        line = next(line for line in shown.splitlines() if line.startswith(f"| {name} "))
        assert f" {len(chosen)} " in line and f" {share:.1f} [" in line


def test_an_interrupted_launch_goes_on_to_the_same_folder(finished: Path, trained: Path, tmp_path: Path) -> None:
    def stopped(*arguments: Any) -> Iterator[Any]:
        yield next(in_process(*arguments))
        raise Interrupted

    with pytest.raises(Interrupted, match="run the same command again"):
        score(finished / "data", tmp_path / "out", trained, run=stopped)
    assert len(scored(tmp_path / "out")) == 1
    score(finished / "data", tmp_path / "out", trained)
    assert scored(tmp_path / "out") == scored(finished / "out")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "the file has no data rows"),
        ('{"source": "k", "claims": "r"}\n', "no column holds the response"),
        ('{"knowledge": "k", "response": "r"}\n', "column 'model' is missing here, and string in the first shard"),
        ('{"knowledge": "k", "response": "r", "model": 0.5}\n', "column 'model' is double here, and string"),
        ('{"knowledge": "", "response": "r", "model": "a"}\n', "no row can be used"),
    ],
)
def test_a_shard_that_cannot_be_scored_is_named_and_the_others_are_scored(
    content: str, words: str, trained: Path, tmp_path: Path
) -> None:
    data = write_shards(tmp_path / "data")
    bad = data / "part-01.jsonl"
    (data / "part-01.parquet").unlink()
    bad.write_text(content)
    with pytest.raises(UserError) as caught:
        score(data, tmp_path / "out", trained)
    told = str(caught.value)
    assert words in told and "part-01.jsonl" in told and "1 of 3 shards are not scored" in told
    assert len(told.splitlines()) <= 3 and "run the same command again" in told
    assert scored(tmp_path / "out").keys() == {"part-00.parquet", "part-02.parquet"}
    write_jsonl(bad, rows(12, 1))
    score(data, tmp_path / "out", trained)
    assert len(scored(tmp_path / "out")) == 3


def test_a_shard_that_changes_or_vanishes_is_told_and_nothing_is_lost(
    finished: Path, trained: Path, tmp_path: Path
) -> None:
    data, out = shutil.copytree(finished / "data", tmp_path / "data"), tmp_path / "out"
    score(data, out, trained)
    first = data / "part-00.jsonl"
    os.utime(first, (1, 1))
    score(data, out, trained, run=untouched)  # another date alone is no change
    first.write_text(first.read_text().replace("river", "tower"))
    with pytest.raises(UserError, match=r"the shard 'part-00.jsonl' has changed since it was finished"):
        score(data, out, trained)
    first.unlink()
    with pytest.raises(UserError, match=r"shards that are finished are gone: part-00.jsonl"):
        score(data, out, trained)
    assert scored(out) == scored(finished / "out")


def test_a_shard_that_is_written_while_it_is_read_is_not_taken(trained: Path, tmp_path: Path) -> None:
    data = write_shards(tmp_path / "data", num_rows=4)
    first, last = data / "part-00.jsonl", data / "part-02.jsonl"

    class Meddling(ShardWorker):
        """A worker beside which somebody writes."""

        def _do(self, shard: Any, writer: Any) -> Any:
            if shard.name == last.name:
                last.unlink()
            if shard.name != first.name:
                return super()._do(shard, writer)

            def write(*arguments: Any) -> Any:
                first.write_text(first.read_text() * 2)
                return writer.write(*arguments)

            return super()._do(shard, SimpleNamespace(write=write, device="cpu"))

    with pytest.raises(UserError, match=r"2 of 3 .* the shard 'part-00.jsonl' was written while it was read"):
        score(data, tmp_path / "out", trained, run=lambda _, *rest: in_process(Meddling, *rest))
    assert scored(tmp_path / "out").keys() == {"part-01.parquet"}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["precision=bf16"], "this command differs in its settings: precision is 'bf16', not '32-true'"),
        (["abstain_at=0.9"], "settings: abstain_at is 0.9, not None"),
        (["columns.history=null"], "settings: columns is"),
        (["by=model"], "settings: by is 'model', not None"),
    ],
)
def test_a_folder_of_other_settings_is_refused(
    overrides: list[str], words: str, finished: Path, copied: Path, trained: Path
) -> None:
    with pytest.raises(UserError, match=words):
        score(finished / "data", copied, trained, *overrides, run=untouched)


def test_a_folder_of_another_model_or_of_other_files_is_refused(
    finished: Path, copied: Path, trained: Path, trained_tagger: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="this command differs in its model"):
        score(finished / "data", copied, trained_tagger, run=untouched)
    with pytest.raises(UserError, match="this command differs in its data"):
        score(f"{finished / 'data'}/*.jsonl", copied, trained, run=untouched)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(UserError, match=r"out is not empty: notes.txt"):
        score(finished / "data", tmp_path / "mine", trained, run=untouched)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"settings": 5}'])
def test_a_folder_whose_beginning_is_damaged_is_refused(
    content: str, finished: Path, copied: Path, trained: Path
) -> None:
    (copied / "_faithkit" / "job.json").write_text(content)
    with pytest.raises(UserError, match="choose another out"):
        score(finished / "data", copied, trained, run=untouched)


@pytest.mark.parametrize("content", ["", "{}", "no json"])
def test_a_damaged_account_is_told_with_its_mend(content: str, finished: Path, copied: Path, trained: Path) -> None:
    (copied / "_faithkit/shards/part-00.jsonl.json").write_text(content)
    with pytest.raises(UserError, match=r"part-00.jsonl.json(.|\n)*delete this file"):
        score(finished / "data", copied, trained, run=untouched)


def test_a_calibration_that_was_changed_is_another_model(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained / "hf", tmp_path / "hf")
    before = identity.identify_model(str(folder))
    sidecar = json.loads((folder / "faithkit.json").read_text())
    sidecar["thresholds"]["temperature"] = 2.5
    (folder / "faithkit.json").write_text(json.dumps(sidecar))
    assert identity.identify_model(str(folder)) != before


@pytest.mark.parametrize("part", ["weights", "code"])
def test_a_worker_with_other_weights_or_code_is_refused_before_it_scores(
    part: str, finished: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = shutil.copytree(trained / "hf", tmp_path / "hf")

    def elsewhere(worker: type, argument: Any, rows: Any, options: Any) -> Iterator[Any]:
        if part == "weights":  # the same path leads to another model there
            shutil.rmtree(checkpoint)
            shutil.copytree(trained / "hf", checkpoint)
            sidecar = json.loads((checkpoint / "faithkit.json").read_text())
            (checkpoint / "faithkit.json").write_text(json.dumps(sidecar | {"labels": ["faithful", "other"]}))
        else:
            own = tmp_path / "site"
            (own / "critic").mkdir(parents=True)
            (own / "critic" / "scorer.py").write_text("older = True\n")
            monkeypatch.setattr(identity, "ROOT", own)
        return in_process(worker, argument, rows, options)

    name = "model" if part == "weights" else "code"
    with pytest.raises(UserError, match=f"a worker differs in its {name}"):
        score(finished / "data", tmp_path / "out", checkpoint, run=elsewhere)
    assert scored(tmp_path / "out") == {}


def test_a_worker_that_sees_another_disk_is_refused(finished: Path, trained: Path, tmp_path: Path) -> None:
    def elsewhere(*arguments: Any) -> Iterator[Any]:
        shutil.rmtree(tmp_path / "out")
        return in_process(*arguments)

    with pytest.raises(UserError, match="a worker does not see out"):
        score(finished / "data", tmp_path / "out", trained, run=elsewhere)


def test_a_shard_of_which_workers_die_is_given_up_and_the_others_are_scored(
    finished: Path, trained: Path, tmp_path: Path
) -> None:
    class Mortal(ShardWorker):
        """A worker that a kill ends in the middle of one shard: what it began stays behind."""

        def _do(self, shard: Any, writer: Any) -> Any:
            if shard.name != "part-00.jsonl":
                return super()._do(shard, writer)
            begun = self.folder.scratch(shard)
            begun._finalizer.detach()  # type: ignore[attr-defined]
            raise ConnectionResetError

    def restarting(_: type, argument: Any, rows: Any, options: Any) -> Iterator[Any]:
        for row in rows:
            for _ in range(5):
                with contextlib.suppress(ConnectionResetError):
                    yield Mortal(argument)(row)
                    break

    with pytest.raises(UserError, match=r"1 of 3 .* 3 workers have died of this shard\n  at: part-00.jsonl"):
        score(finished / "data", tmp_path / "out", trained, run=restarting)
    assert scored(tmp_path / "out").keys() == {"part-01.parquet", "part-02.parquet"}
    score(finished / "data", tmp_path / "out", trained)
    assert scored(tmp_path / "out") == scored(finished / "out")


def test_two_commands_at_once_in_one_folder_are_refused(finished: Path, trained: Path, tmp_path: Path) -> None:
    def second(*arguments: Any) -> Iterator[Any]:
        score(finished / "data", tmp_path / "out", trained, run=untouched)
        return in_process(*arguments)

    with pytest.raises(UserError, match=r"is working in this folder\n.*\n.*choose another out"):
        score(finished / "data", tmp_path / "out", trained, run=second)


def test_two_shards_that_would_become_one_are_refused(trained: Path, tmp_path: Path) -> None:
    data = write_shards(tmp_path / "data")
    (data / "part-00.csv").write_text("knowledge,response\nk,r\n")
    with pytest.raises(UserError, match=r"part-00.csv and part-00.jsonl would both become part-00.parquet"):
        score(data, tmp_path / "out", trained)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{folder}", "there are no shards"),
        ("{folder}/*.csv", "there are no shards"),
        ("nowhere://bucket/rows", "Protocol not known: nowhere"),
        ("zip://*.jsonl::{folder}/no.zip", "cannot be read"),
    ],
)
def test_data_that_is_not_there_is_told(data: str, words: str, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words) as caught:
        score(data.format(folder=tmp_path), tmp_path / "out", trained)
    assert len(str(caught.value).splitlines()) <= 3


def test_an_account_of_an_address_is_never_shown(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        score("nowhere://me:secret@host/rows", tmp_path / "out", trained)
    assert "secret" not in str(caught.value) and "host/rows" in str(caught.value)
