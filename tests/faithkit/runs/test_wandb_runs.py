"""W&B's folders on disk are read as runs, whole or cut off, without a server."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.files.run_lock import run_lock
from faithkit.files.saved_config import write_config
from faithkit.runs import State, find_runs, read_curves, read_run
from faithkit.runs.listing import list_runs
from faithkit.runs.wandb_records import BLOCK, read_wandb_file
from faithkit.statistics.metric import Metric
from tests.faithkit.runs.folders import TRAINED
from tests.faithkit.runs.wandb_writing import BEGAN, run_records, write_wandb

STEP = "trainer/global_step"
SUMMARY = {
    **{"test/a/f1": 0.5, "test/a/f1/low": 0.25, "test/a/f1/high": 0.75, "test/a/f1/n": 9, "test/a/all/rate": 1},
    **{"test/a/predictions": {"_type": "table-file"}, "test/a/odd": float("nan"), "train/loss": 0.25, "short": 1},
}
HISTORY = [
    {"train/loss": 0.5, STEP: 9, "_runtime": 1},
    {"train/loss": 0.25, STEP: 19},
    {"train/loss": "NaN", "_step": 3},
]


def folder_of(run: Path, part: int = 1) -> Path:
    return run / "wandb" / f"offline-run-2026010{part}_000000-abc"


def log(run: Path, part: int = 1, **about: Any) -> Path:
    folder = folder_of(run, part)
    write_wandb(folder / "run-abc.wandb", run_records(TRAINED, **{"history": HISTORY, "summary": SUMMARY, **about}))
    return folder


def test_a_run_of_wandb_is_a_run_with_its_settings_metrics_and_curves(tmp_path: Path) -> None:
    run = read_run(log(tmp_path))
    assert (run.name, run.script, run.state) == ("mine", "train", State.FINISHED)
    assert run.config == TRAINED, "without what Lightning adds"
    assert run.began == datetime.fromtimestamp(BEGAN)
    assert run.metrics == {
        "test/a/f1": Metric(value=0.5, low=0.25, high=0.75, n=9),
        "test/a/all/rate": Metric(value=1),
    }
    assert len(run.problems) == 1 and "'test/a/odd' is left out" in run.problems[0]
    assert run.meta["data"] == {"fingerprints": {"a": "b"}} and run.meta["wandb"]["tags"] == ["model=critic"]
    assert run.curves is not None and read_curves(run.curves) == {"train/loss": [(9, 0.5), (19, 0.25)]}


def test_the_parts_of_a_resumed_run_are_one_run(tmp_path: Path) -> None:
    write_config(tmp_path / "config.yaml", TRAINED)
    log(tmp_path, 1, exit_code=130, summary={})
    log(tmp_path, 2, history=[{"train/loss": 0.125, STEP: 19}, {"train/loss": 0.0625, STEP: 29}])
    (tmp_path / "wandb" / "latest-run").symlink_to(folder_of(tmp_path, 2).name)
    for pattern in ("wandb/offline-run-*", "wandb", "wandb/*"):
        (run,) = find_runs(tmp_path / pattern)
        assert run.state == State.FINISHED and "test/a/f1" in run.metrics and run.curves is not None
        assert read_curves(run.curves) == {"train/loss": [(9, 0.5), (19, 0.125), (29, 0.0625)]}


def test_a_run_that_was_cut_off_goes_on_in_its_own_folder(tmp_path: Path) -> None:
    assert read_run(log(tmp_path, exit_code=None)).state == State.BROKEN, "no folder of ours to resume"
    write_config(tmp_path / "config.yaml", TRAINED)
    assert read_run(log(tmp_path, exit_code=130)).state == State.RESUMABLE
    _, lines = list_runs(folder_of(tmp_path))
    assert lines[0] == f"go on: faithkit train resume={tmp_path}"
    log(tmp_path, exit_code=None)
    with run_lock(tmp_path):
        assert read_run(folder_of(tmp_path)).state == State.WORKING
        (folder_of(tmp_path) / "run-abc.wandb").write_bytes(b"")
        assert read_run(folder_of(tmp_path)).state == State.WORKING, "W&B has written nothing yet"
    assert list_runs(folder_of(tmp_path))[1][0] == f"go on: faithkit train resume={tmp_path}"


def test_a_record_may_stand_in_pieces_over_many_blocks(tmp_path: Path) -> None:
    long = {"text": "x" * (2 * BLOCK + 5), "end": "y" * (BLOCK - 20)}
    found = read_wandb_file(write_wandb(tmp_path / "run-a.wandb", run_records(long)))
    assert found.settings["text"] == long["text"] and found.exit_code == 0 and not found.problem


@settings(deadline=None)
@given(data=st.data())
def test_a_file_that_ends_anywhere_has_what_was_in_it_before(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write_wandb(tmp_path_factory.getbasetemp() / "run-a.wandb", run_records(TRAINED, HISTORY, SUMMARY))
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    found = read_wandb_file(path)
    assert not found.problem and found.history == read_history(whole, path)[: len(found.history)]


def read_history(whole: bytes, path: Path) -> list[dict[str, Any]]:
    path.write_bytes(whole)
    return read_wandb_file(path).history


@settings(deadline=None)
@given(place=st.integers(0, 2000), byte=st.integers(0, 255))
def test_a_damaged_file_is_read_without_an_error(
    place: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = log(tmp_path_factory.getbasetemp() / "damaged")
    file = folder / "run-abc.wandb"
    data = bytearray(file.read_bytes())
    data[place % len(data)] = byte
    file.write_bytes(data)
    run = read_run(folder)
    assert run.curves is None or read_curves(run.curves) is not None


@pytest.mark.parametrize("content", [b"", b":W&B", b"nothing", b"\0" * 100_000, b":W&B\xe1\xbe\0" + b"\xff" * 99])
def test_a_file_without_a_run_is_a_broken_run(content: bytes, tmp_path: Path) -> None:
    (folder := folder_of(tmp_path)).mkdir(parents=True)
    (folder / "run-abc.wandb").write_bytes(content)
    (run,) = find_runs(folder)
    assert run.state == State.BROKEN and len(run.problems) == 1
