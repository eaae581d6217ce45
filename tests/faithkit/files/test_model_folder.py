"""The hf/ folder of a model: what its sidecar warns of."""

import logging
from pathlib import Path

import pytest

from faithkit.detector import TAGGER
from faithkit.files.atomic import write_json
from faithkit.files.model_folder import SIDECAR, Sidecar, read_sidecar, repair_hint
from faithkit.files.run_folder import RunFolder, log
from faithkit.words import VERSION


@pytest.mark.parametrize(
    ("versions", "warns"), [({}, True), ({"words": VERSION}, False), ({"words": 1}, True), (None, True)]
)
def test_a_model_made_with_other_words_is_told(
    versions: dict[str, int] | None, warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sidecar = {"kind": TAGGER, "labels": ["a"], "layout": {}, "thresholds": {}, "origin": {}}
    write_json(tmp_path / SIDECAR, {**sidecar, "versions": versions})
    log.addHandler(caplog.handler)  # a run's log does not reach pytest's
    try:
        with caplog.at_level(logging.WARNING, log.name):
            assert read_sidecar(tmp_path) == Sidecar(**sidecar)  # type: ignore[arg-type]
    finally:
        log.removeHandler(caplog.handler)
    assert ("train again" in caplog.text) == warns


def test_a_runs_own_folder_is_written_again_by_its_training(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.config.touch()
    assert f"faithkit train resume={tmp_path}" in repair_hint(run.hf)
    assert "export the run again" in repair_hint(tmp_path / "copy")
