"""Encodings and embedded layouts under damage, and several first launches at once."""

from pathlib import Path
from typing import Any

import pytest

from data_modules.build import build_source
from data_modules.encoding.encoding_cache import load_encoded
from data_modules.encoding.pair_encoder import PairEncoder
from tests.data_modules.examples import encoded_content
from tests.faults.processes import race

ROWS = {"train": 12, "validation": 6, "test": 6}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("round_number", range(4))
def test_three_first_launches_at_once(home: Path, encoder: PairEncoder, round_number: int) -> None:
    """Each has the corpus written and encoded; nothing is there before."""

    def launch() -> tuple[Any, ...]:
        source = build_source("snli", "embedded", embedded_rows=ROWS)
        return encoded_content(load_encoded(source, "train", encoder))

    first, *others = race(launch)
    assert others == [first, first]
    (entry,) = (path for path in (home / "embedded").iterdir() if path.is_dir())
    assert len((entry / "snli_1.0_train.jsonl").read_text().splitlines()) == 12
