"""A mistyped or unsuitable name of a detector is refused before anything is read or downloaded."""

from pathlib import Path

import pytest

from faithkit.detector import DETECTORS
from faithkit.files.cache import cache_dir
from faithkit_workflows.settings.engines import check_checkpoint
from faithkit_workflows.settings.preflight import suggest_path

MEANT = {"defalt": "default", "Defaults": "default", "hhem-2.1-opn": "hhem-2.1-open"}
MEANT["minichek-roberta-large:/tmp"] = "minicheck-roberta-large or"


@pytest.mark.parametrize(("typed", "meant"), MEANT.items())
def test_the_nearest_detector_is_suggested(typed: str, meant: str) -> None:
    (error,) = check_checkpoint("checkpoint", typed, *DETECTORS)
    assert error.hint.rstrip("?").startswith(f"did you mean {meant}")


@pytest.mark.parametrize("name", ["default", "smollm2-135m", "roberta-large-mnli", "roberta-base", "owner/defalt"])
def test_other_names_are_left_to_loading(name: str) -> None:
    assert [*check_checkpoint("checkpoint", name, *DETECTORS)] == []


@pytest.mark.parametrize("name", ["flan-t5-small", "minilm", "spacy-sm", "punkt"])
def test_local_weights_that_are_no_detector_are_refused_before_the_download(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path))
    (error,) = check_checkpoint("checkpoint", name, *DETECTORS)
    assert f"checkpoint={name} is no detector" in error.problem
    assert not (cache_dir() / "weights").exists()


NEAR = {"headr.csv": "header.csv", "rows.cvs": "rows.csv", "run_1": "run-1"}
FAR = {"nothere.csv": "header.csv", "a.csv": "b.csv"}


@pytest.mark.parametrize(("typed", "there"), [*NEAR.items(), *FAR.items()])
def test_only_a_near_name_is_suggested(typed: str, there: str, tmp_path: Path) -> None:
    (tmp_path / there).touch()
    hint = suggest_path("path", tmp_path / typed)
    assert hint == (f"did you mean path={tmp_path / there}?" if typed in NEAR else "set path to a file that exists")
