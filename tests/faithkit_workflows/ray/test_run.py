"""A folder of shards is scored as each of its files alone, once each; what does not fit together is refused."""

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
from faithkit_workflows.ray.shard_worker import ShardWorker
from tests.data_modules.official_rows import write
from tests.faithkit_workflows.ray.data import in_process, rows, score, scored, untouched, write_shards
from tests.running import compose


def plain(file: Path, output: Path, checkpoint: Path, run_dir: Path) -> bytes:
    from faithkit_workflows import score

    given = [f"path={file}", f"output={output}", f"checkpoint={checkpoint}", f"run_dir={run_dir}"]
    score.main(compose("score", *given, "on_bad_row=skip", "num_resamples=20"))
    return output.read_bytes()


@pytest.mark.parametrize("detector", ["trained", "trained_tagger", "llama"])
def test_each_scored_shard_has_the_bytes_that_its_file_alone_would_get(detector, request, tmp_path) -> None:
    is_judge = detector == "llama"
    checkpoint = request.getfixturevalue("language_models")[detector] if is_judge else request.getfixturevalue(detector)
    data = write_shards(tmp_path / "data", num_rows=4 if is_judge else 12)
    score(data, tmp_path / "out", checkpoint)
    found = scored(tmp_path / "out")
    assert list(found) == ["part-00.parquet", "part-01.parquet", "part-02.parquet"]
    for number, (name, content) in enumerate(found.items()):
        (file,) = data.glob(f"{Path(name).stem}.*")
        assert content == plain(file, tmp_path / name, checkpoint, tmp_path / f"run-{number}")


def test_a_second_launch_reads_no_shard_again_and_scores_those_that_are_new(finished, copied, trained, capsys) -> None:
    data = finished / "data"
    score(data, copied, trained, run=untouched)
    assert "3 are scored already, 0 are left" in capsys.readouterr().out
    fourth = write(data / "part-03.jsonl", rows(4, 9))
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


def test_shards_keep_their_folders_and_hidden_files_are_left_out(trained, tmp_path, capsys) -> None:
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


def test_bad_rows_are_put_aside_with_their_shard_and_line(trained, tmp_path, capsys) -> None:
    path = write(tmp_path / "data" / "a.jsonl", rows(2, 0))
    path.write_text(f"{path.read_text()}no json\n" + json.dumps({"knowledge": "k", "response": "", "model": "b"}))
    score(path.parent, tmp_path / "out", trained)
    rejects = (tmp_path / "out/_faithkit/rejects/a.jsonl.jsonl").read_text().splitlines()
    assert [(row["file"], row["line"]) for row in map(json.loads, rejects)] == [("a.jsonl", 3), ("a.jsonl", 4)]
    assert "2 rows cannot be scored" in capsys.readouterr().out
    labels = pq.read_table(tmp_path / "out" / "a.parquet")["label"].to_pylist()
    assert labels[2:] == [None] and None not in labels[:2], "a row that could be read stays, without a verdict"


def test_the_share_is_shown_by_column_over_all_shards(finished, trained, tmp_path, capsys) -> None:
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
def test_a_shard_that_cannot_be_scored_is_named_and_the_others_are_scored(content, words, trained, tmp_path) -> None:
    data = write_shards(tmp_path / "data")
    bad = data / "part-01.jsonl"
    (data / "part-01.parquet").unlink()
    bad.write_text(content)
    with pytest.raises(UserError) as caught:
        score(data, tmp_path / "out", trained)
    message = str(caught.value)
    assert words in message and "part-01.jsonl" in message and "1 of 3 shards are not scored" in message
    assert len(message.splitlines()) <= 3 and "run the same command again" in message
    assert scored(tmp_path / "out").keys() == {"part-00.parquet", "part-02.parquet"}
    write(bad, rows(12, 1))
    score(data, tmp_path / "out", trained)
    assert len(scored(tmp_path / "out")) == 3


def test_a_shard_that_changes_or_vanishes_is_reported_and_nothing_is_lost(finished, trained, tmp_path) -> None:
    data, out = shutil.copytree(finished / "data", tmp_path / "data"), tmp_path / "out"
    score(data, out, trained)
    first = data / "part-00.jsonl"
    os.utime(first, (1, 1))
    score(data, out, trained, run=untouched)  # another date alone is not a change
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
        """A worker during which the shard is written."""

        def _do(self, shard: Any, answerer: Any) -> Any:
            if shard.name == last.name:
                last.unlink()

            def answer(*arguments: Any) -> Any:
                first.write_text(first.read_text() * 2)
                return answerer.answer(*arguments)

            is_first = shard.name == first.name
            return super()._do(shard, SimpleNamespace(answer=answer) if is_first else answerer)

    with pytest.raises(UserError, match=r"2 of 3 .* the shard 'part-00.jsonl' was written while it was read"):
        score(data, tmp_path / "out", trained, run=lambda _, *rest: in_process(Meddling, *rest))
    assert scored(tmp_path / "out").keys() == {"part-01.parquet"}
