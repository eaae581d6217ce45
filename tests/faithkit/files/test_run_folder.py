"""Folders of runs, logs and the ranks of processes."""

import logging
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from faithkit.errors import UserError
from faithkit.files.run_folder import RUN_DIR_VARIABLE, RunFolder, log_to, process_rank
from tests.running import opened


def test_a_folder_holds_work_once_something_is_in_it_that_took_time(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for name in ("config.yaml", "train.log", "csv/metrics.csv", ".lock", "predictions/empty.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("" if "empty" in name else "x")
    assert not run.has_work()
    (tmp_path / "predictions" / "begin.jsonl").write_text("{}\n{}\n")
    assert run.has_work()


def test_a_refused_command_leaves_no_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, left in ((None, False), ("predictions", True)):
        with pytest.raises(UserError), opened("train") as (run, _):
            if name:
                (run.path / name).write_text("kept")
            raise UserError("no rows")
        assert run.path.exists() == left
    with pytest.raises(UserError), opened("train", "run_dir=mine") as (run, _):
        raise UserError("no rows")
    assert run.path.exists()


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, 0),
        ({"LOCAL_RANK": "1"}, 1),
        ({"SLURM_PROCID": "2", "LOCAL_RANK": "1"}, 2),
        ({"RANK": "3", "SLURM_PROCID": "2", "LOCAL_RANK": "1"}, 3),
    ],
)
def test_the_number_of_a_process_is_the_one_among_all(
    variables: dict[str, str], rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert process_rank() == rank
    log_to(tmp_path / "train.log")
    terminals = [
        handler for handler in logging.getLogger("faithkit").handlers if type(handler) is logging.StreamHandler
    ]
    assert len(terminals) == (rank == 0), "one process alone writes to the terminal"


def test_other_processes_take_the_folder_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv(RUN_DIR_VARIABLE, raising=False)
    with opened("train", f"run_dir={tmp_path / 'a'}") as (run, _):
        assert run.path == tmp_path / "a"
    monkeypatch.delenv(RUN_DIR_VARIABLE)
    with pytest.raises(UserError, match="no common run folder"), opened("train"):
        pass
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path / "b"))
    with opened("train") as (run, _):
        assert run.path == tmp_path / "b"
    assert not list(tmp_path.iterdir()), "the first alone writes"


def test_runs_that_begin_within_a_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    noon = datetime(2026, 1, 2, 12)
    monkeypatch.setattr("faithkit.files.open_run.datetime", SimpleNamespace(now=lambda: noon))
    names = []
    for _ in range(3):
        with opened("train") as (run, _config):
            names.append(run.path.name)
    assert names == [f"2026-01-02_12-00-00-test{again}" for again in ("", "-2", "-3")]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == names


def test_a_log_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, file = logging.getLogger("faithkit"), tmp_path / "a" / "train.log"
    for number, message in enumerate(("first", "second"), start=1):
        log_to(file)
        log.info(message)
        log.debug("nobody reads this")
        lines = file.read_text().splitlines()
        assert lines[-1].endswith(f" INFO {message}") and len(lines) == number
    assert capsys.readouterr().err == "first\nsecond\n"


def test_a_message_of_ours_that_cannot_be_formatted_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")  # with the log file alone: the terminal tells it by itself
    log_to(tmp_path / "train.log")
    logging.getLogger("faithkit").info("%d rows", "some")
    assert "Logging error" in capsys.readouterr().err


def test_a_log_on_a_full_disk_ends_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / "train.log"
    full.symlink_to("/dev/full")
    log_to(full)
    logging.getLogger("faithkit").info("what no disk takes")
    log_to(tmp_path / "other.log")
    logging.getLogger("faithkit").info("what this one takes")
    assert "what this one takes" in (tmp_path / "other.log").read_text()
    assert "Logging error" not in capsys.readouterr().err
