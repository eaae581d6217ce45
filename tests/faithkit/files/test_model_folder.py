"""The hf/ folder of a model: what its sidecar warns of."""

import logging
from pathlib import Path

import pytest

from faithkit.files.atomic import write_json
from faithkit.files.model_folder import SIDECAR, TAGGER, Sidecar, read_sidecar
from faithkit.files.run_folder import log
from faithkit.words import VERSION


@pytest.mark.parametrize(
    ("versions", "warns"), [({}, False), ({"words": VERSION}, False), ({"words": 0}, True), (None, False)]
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
