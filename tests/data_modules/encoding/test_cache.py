"""Encodings and embedded layouts under damage, and several first launches at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_modules.build import build_source
from data_modules.encoding.encoding_cache import Chunk, load_encoded, read_rows, write_rows
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.ragged import Ragged
from faithkit.provenance.row_keys import RowKeys
from tests.data_modules.examples import encoded_content
from tests.faults.processes import race

ROWS = {"train": 12, "validation": 6, "test": 6}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


KEYS_OF_THREE = RowKeys(*np.arange(9, dtype=np.uint64).reshape(3, 3))


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    columns = {"length": np.array([3, 4, 0], np.int32), "ids": Ragged.from_lists([[5], [6, 7], []])}
    records = ["{}", '{"a": "é"}', ""]
    write_rows(tmp_path / "rows.arrow", [Chunk(columns, [8, 2**63, 0], KEYS_OF_THREE, records)] * 2)
    found = read_rows(tmp_path / "rows.arrow")
    ids = found.columns["ids"]
    assert isinstance(ids, Ragged) and [ids.row(i).tolist() for i in range(6)] == [[5], [6, 7], []] * 2
    assert [keys.tolist() for keys in found.keys] == [keys.tolist() * 2 for keys in KEYS_OF_THREE]
    assert found.groups.tolist() == [8, 2**63, 0] * 2 and found.records.to_pylist() == records * 2


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
