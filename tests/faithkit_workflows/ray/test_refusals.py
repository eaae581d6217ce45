"""What does not fit to a folder of scored shards is refused, and nothing of it is lost."""

import contextlib
import json
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit_workflows.ray import out_folder
from faithkit_workflows.ray.shard_worker import ShardWorker
from tests.faithkit_workflows.ray.data import in_process, score, scored, untouched, write_shards


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["precision=bf16"], "this command differs in its settings: precision is 'bf16', not '32-true'"),
        (["abstain_at=0.9"], "settings: abstain_at is 0.9, not None"),
        (["columns.history=null"], "settings: columns is"),
        (["by=model"], "settings: by is 'model', not None"),
    ],
)
def test_a_folder_of_other_settings_is_refused(overrides, words, finished, copied, trained) -> None:
    with pytest.raises(UserError, match=words):
        score(finished / "data", copied, trained, *overrides, run=untouched)


def test_a_folder_of_another_model_or_of_other_files_is_refused(finished, copied, trained, trained_tagger, tmp_path):
    with pytest.raises(UserError, match="this command differs in its model"):
        score(finished / "data", copied, trained_tagger, run=untouched)
    with pytest.raises(UserError, match="this command differs in its data"):
        score(f"{finished / 'data'}/*.jsonl", copied, trained, run=untouched)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(UserError, match=r"out is not empty: notes.txt"):
        score(finished / "data", tmp_path / "mine", trained, run=untouched)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        *(("job.json", content, "choose another out") for content in ("", "{}", "[]", '{"settings": 5}')),
        *(
            ("shards/part-00.jsonl.json", content, r"part-00.jsonl.json(.|\n)*delete this file")
            for content in ("", "{}", "no json")
        ),
    ],
)
def test_a_damaged_record_is_reported(file, content, words, finished, copied, trained) -> None:
    (copied / "_faithkit" / file).write_text(content)
    with pytest.raises(UserError, match=words):
        score(finished / "data", copied, trained, run=untouched)


@pytest.mark.parametrize(
    ("part", "words"),
    [("weights", "differs in its model"), ("code", "differs in its code"), ("disk", "does not see out")],
)
def test_a_worker_elsewhere_is_refused_before_it_scores(part, words, finished, trained, tmp_path, monkeypatch) -> None:
    checkpoint = shutil.copytree(trained / "hf", tmp_path / "hf")

    def elsewhere(worker: type, argument: Any, rows: Any, options: Any) -> Iterator[Any]:
        if part == "weights":  # the same path leads to another model there
            sidecar = json.loads((checkpoint / "faithkit.json").read_text())
            (checkpoint / "faithkit.json").write_text(json.dumps(sidecar | {"labels": ["faithful", "other"]}))
        elif part == "code":
            site = tmp_path / "site"
            (site / "critic").mkdir(parents=True)
            (site / "critic" / "scorer.py").write_text("older = True\n")
            monkeypatch.setattr(out_folder, "ROOT", site)
        else:
            shutil.rmtree(tmp_path / "out")
        return in_process(worker, argument, rows, options)

    with pytest.raises(UserError, match=f"a worker {words}"):
        score(finished / "data", tmp_path / "out", checkpoint, run=elsewhere)
    assert scored(tmp_path / "out") == {}


@pytest.mark.slow
def test_a_shard_of_which_workers_die_is_given_up_and_the_others_are_scored(finished, trained, tmp_path) -> None:
    class Mortal(ShardWorker):
        """A worker that a kill ends in the middle of one shard: what it began stays behind."""

        def _do(self, shard: Any, answerer: Any) -> Any:
            if shard.name != "part-00.jsonl":
                return super()._do(shard, answerer)
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


def test_a_full_disk_is_reported_with_the_key_of_the_folder(finished: Path, trained: Path, tmp_path: Path) -> None:
    def full(*arguments: Any) -> Iterator[Any]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            yield from list(in_process(*arguments))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with pytest.raises(UserError) as caught:
        score(finished / "data", tmp_path / "out", trained, run=full)
    message = str(caught.value)
    assert "no space left on the disk" in message and "set out (" in message and "run_dir" not in message


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
        ("nowhere://me:secret@host/rows", "host/rows"),  # an account is never shown
    ],
)
def test_data_that_is_not_there_is_reported(data: str, words: str, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words) as caught:
        score(data.format(folder=tmp_path), tmp_path / "out", trained)
    assert len(str(caught.value).splitlines()) <= 3 and "secret" not in str(caught.value)


def test_a_calibration_that_was_changed_is_another_model(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained / "hf", tmp_path / "hf")
    before = out_folder.identify_model(str(folder))
    sidecar = json.loads((folder / "faithkit.json").read_text())
    sidecar["thresholds"]["temperature"] = 2.5
    (folder / "faithkit.json").write_text(json.dumps(sidecar))
    assert out_folder.identify_model(str(folder)) != before
