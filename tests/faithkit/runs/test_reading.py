"""Runs are read whatever state their folders are in, quickly, and without torch."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.files.run_folder import run_lock, write_config
from faithkit.runs import State, find_runs, read_curves, read_run
from faithkit.statistics.metric import Metric
from tests.faithkit.runs.folders import EVALUATED, TRAINED, make_run
from tests.running import ROOT


def test_a_finished_run_is_read_whole(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "critic"))
    assert (run.name, run.script, run.state, run.problems) == ("critic", "train", State.FINISHED, ())
    assert run.began == datetime(2026, 11, 2, 10)
    assert read_run(make_run(tmp_path / "2025-01-02_03-04-05-critic")).began == datetime(2025, 1, 2, 3, 4, 5)
    assert run.config == TRAINED and run.meta["data"] == {"rows": 8}
    assert run.metrics == {"test/faithcritic/macro_f1": Metric(value=0.75, low=0.5, high=0.875, n=8)}
    assert run.predictions == {"faithcritic": run.folder / "predictions" / "faithcritic.jsonl"}
    assert run.curves is not None
    assert read_curves(run.curves) == {"train/loss": [(10, 0.5), (20, 0.25)], "validation/f1": [(20, 0.75)]}


def unfinished(folder: Path) -> Path:
    make_run(folder)
    (folder / "metrics.json").unlink()
    return folder


def test_a_run_that_was_cut_off_is_resumable_and_one_that_works_is_not(tmp_path: Path) -> None:
    folder = unfinished(tmp_path / "run")
    assert read_run(folder).state == State.RESUMABLE
    with run_lock(folder):
        assert read_run(folder).state == State.WORKING
    assert read_run(folder).state == State.RESUMABLE
    (folder / "config.yaml").unlink()
    assert read_run(folder).state == State.BROKEN


def test_answers_are_finished_when_each_file_has_its_origin(tmp_path: Path) -> None:
    folder = unfinished(tmp_path / "run")
    write_config(folder / "config.yaml", {"checkpoint": "runs/t5", "decoding": {"strategy": "beam"}})
    assert read_run(folder).state == State.FINISHED
    (folder / "predictions" / "second.jsonl").write_text("")
    assert read_run(folder).state == State.RESUMABLE


@pytest.mark.parametrize(
    ("steps", "result", "state"),
    [(["done"], {"rows": 5}, "finished"), (["done"], {}, "resumable"), (["done", "running"], {"a": 1}, "resumable")],
)
def test_a_chain_is_finished_when_its_manifest_says_so(
    steps: list[str], result: object, state: str, tmp_path: Path
) -> None:
    folder = unfinished(tmp_path / "run")
    write_config(folder / "config.yaml", {"pipeline": {"name": "rag"}})
    manifest = {"steps": [{"state": step} for step in steps], "result": result}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert read_run(folder).state == state


def test_the_predictions_that_were_scored_are_those_of_the_run(tmp_path: Path) -> None:
    other = make_run(tmp_path / "other")
    path = str(other / "predictions" / "faithcritic.jsonl")
    blocks = {"wow": {"predictions": path}, "gone": {"predictions": "/nowhere.jsonl"}}
    config = {**EVALUATED, "benchmark": {"name": "begin", "datasets": blocks}, "predictions": path}
    run = read_run(make_run(tmp_path / "run", config, predictions={}))
    assert run.predictions == {"begin": Path(path), "wow": Path(path)}
    assert run.problems == ("the predictions that it scored are no longer at '/nowhere.jsonl'",)


@pytest.mark.parametrize(
    ("name", "content", "problem", "state"),  # a number: what is left of the file's bytes; None: no file
    [
        ("metrics.json", b"", "metrics.json cannot be read", State.RESUMABLE),
        ("metrics.json", 70, "metrics.json cannot be read", State.RESUMABLE),
        ("metrics.json", b"[1]", 'it has no "metrics"', State.RESUMABLE),
        ("metrics.json", b'{"metrics": []}', 'it has no "metrics"', State.RESUMABLE),
        ("metrics.json", b"[" * 200_000, "metrics.json cannot be read", State.RESUMABLE),
        ("metrics.json", b'{"metrics": {"a/b/c": {"value": NaN}}}', "'a/b/c' is left out", State.FINISHED),
        ("metrics.json", b'{"metrics": {"a/b/c": 0.5}, "meta": 3}', "'a/b/c' is left out", State.FINISHED),
        ("metrics.json", b'{"metrics": {"a/b/c": {"mean": 1}}}', "'a/b/c' is left out", State.FINISHED),
        ("config.yaml", None, "no config.yaml", State.FINISHED),
        ("config.yaml", b"", "config.yaml cannot be read: empty", State.FINISHED),
        ("config.yaml", b"a: [1", "config.yaml cannot be read: not YAML", State.FINISHED),
        ("config.yaml", b"a: &b [1]", "config.yaml cannot be read: an alias", State.FINISHED),
        ("config.yaml", b"[" * 300_000, "config.yaml cannot be read: nested", State.FINISHED),
    ],
)
def test_a_damaged_file_is_named_and_the_rest_is_read(
    name: str, content: bytes | int | None, problem: str, state: State, tmp_path: Path
) -> None:
    file = make_run(tmp_path / "run") / name
    left = file.read_bytes()[:content] if isinstance(content, int) else content
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    run = read_run(tmp_path / "run")
    assert any(problem in sentence for sentence in run.problems), run.problems
    assert run.state == state and run.predictions and run.curves
    if state == State.FINISHED:
        assert run.config == TRAINED or not run.meta, "metrics.json has the settings too"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@settings(deadline=None)
@given(name=st.sampled_from(["config.yaml", "metrics.json", "train.log", "csv/metrics.csv"]), content=st.binary())
def test_reading_never_fails(name: str, content: bytes, kept: Path) -> None:
    before = (kept / name).read_bytes()
    (kept / name).write_bytes(content)
    run = read_run(kept)
    assert run.curves is not None and read_curves(run.curves) is not None
    (kept / name).write_bytes(before)


@pytest.mark.parametrize("content", ["", "nothing", "step\n", "step,a\nx,1\n5,nan\n6,1,2\n7\n", "\0\0\n", 'step,"a\n'])
def test_damaged_lines_of_curves_are_left_out(content: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(content)
    assert read_curves(tmp_path / "metrics.csv") == {}


def test_a_folder_that_is_not_there_or_no_run_is_a_broken_run(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        run = read_run(folder)
        assert run.state == State.BROKEN and run.problems == ("no config.yaml",)


def test_patterns_find_each_run_once_in_the_order_of_their_beginning(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "2026-01-02_00-00-00-b")
    make_run(tmp_path / "runs" / "2026-01-01_00-00-00-c")
    (tmp_path / "runs" / "notes.txt").write_text("")
    (tmp_path / "runs" / "empty").mkdir()
    every = ["2026-01-01_00-00-00-c", "2026-01-02_00-00-00-b"]
    for pattern in ("runs/*", "runs", "runs/2026*"):
        assert [run.name for run in find_runs(tmp_path / pattern)] == every
    assert [run.name for run in find_runs([tmp_path / "runs" / every[1], tmp_path / "runs/*"])] == every


def test_a_name_with_brackets_is_a_folder_before_it_is_a_pattern(tmp_path: Path) -> None:
    make_run(tmp_path / "lr[1]")
    assert [run.name for run in find_runs(tmp_path / "lr[1]")] == ["lr[1]"]


@pytest.mark.parametrize("pattern", ["nothing/*", "nothing", ".", "file"])
def test_a_pattern_without_a_run_is_the_users_mistake(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"there is no run(.|\n)*runs='runs/\*'"):
        find_runs([tmp_path / pattern])


def test_reading_runs_loads_no_torch_and_nothing_else_that_is_heavy() -> None:
    heavy = {"torch", "numpy", "pandas", "hydra", "omegaconf", "pydantic", "wandb"}
    code = f"import sys\nfrom faithkit import runs\nsys.exit(', '.join({heavy!r} & sys.modules.keys()) or None)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
