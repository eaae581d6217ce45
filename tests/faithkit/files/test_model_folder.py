"""The hf/ folder of a model: what its sidecar warns of."""

import logging
from pathlib import Path

import pytest

from faithkit.detector import CRITIC, TAGGER
from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.model_folder import SIDECAR, Sidecar, check_folder, read_sidecar, repair_hint, seal
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


FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A folder of ours whose files hold nothing but what is looked at before a model is made."""
    for name in FILES:
        (tmp_path / name).write_text("{}")
    seal(tmp_path, {"kind": CRITIC})
    return tmp_path


def test_a_folder_that_is_as_it_was_written_is_taken(sealed: Path) -> None:
    check_folder(sealed)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_or_another_is_named(name: str, sealed: Path) -> None:
    whole = (sealed / name).read_text()
    (sealed / name).write_text(whole + " ")
    with pytest.raises(UserError, match=f"{name} was changed or damaged"):
        check_folder(sealed)
    (sealed / name).unlink()
    with pytest.raises(UserError, match=f"{name}'? is missing"):
        check_folder(sealed)


def test_a_runs_own_folder_is_written_again_by_its_training(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.config.touch()
    assert f"faithkit train resume={tmp_path}" in repair_hint(run.hf)
    assert "export the run again" in repair_hint(tmp_path / "copy")
