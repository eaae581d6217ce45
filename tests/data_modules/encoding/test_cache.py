"""Encodings and embedded layouts under damage, and several first launches at once."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from data_modules.build import build_source
from data_modules.datasets.nli import Snli
from data_modules.embedded.layouts import WRITERS
from data_modules.encoding.encoder import EncodedSplit
from data_modules.encoding.encoding_cache import KEYS, Chunk, load_encoded, read_rows, write_rows
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.ragged import Ragged
from faithkit.provenance.row_keys import RowKeys
from tests.faults.processes import race

ROWS = {"train": 12, "validation": 6, "test": 6}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def content(encoded: EncodedSplit) -> tuple[Any, ...]:
    columns = {n: (c.values.tolist(), c.offsets.tolist()) if isinstance(c, Ragged) else c.tolist()
               for n, c in encoded.columns.items()}  # fmt: skip
    examples = [example.to_dict() for example in encoded.examples(range(len(encoded)))]
    return columns, encoded.groups.tolist(), examples, encoded.counts, encoded.rejects, encoded.fingerprint


@pytest.mark.parametrize("file", ["rows.arrow", "meta.json"])
def test_a_damaged_entry_is_encoded_again(
    home: Path, tmp_path: Path, encoder: PairEncoder, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = Snli(path=str(WRITERS["snli"](tmp_path / "snli", ROWS)))
    expected = content(load_encoded(source, "train", encoder))
    (entry,) = (path for path in (home / "encodings").iterdir() if path.is_dir())
    whole = (entry / file).read_bytes()
    half = len(whole) // 2
    flipped = whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :]
    for damaged in (b"", whole[:-9], flipped, bytes(len(whole)), whole + b"x", b"{}"):
        (entry / file).write_bytes(damaged)
        caplog.clear()
        with caplog.at_level(logging.INFO, "faithkit"):
            assert content(load_encoded(source, "train", encoder)) == expected
        assert caplog.messages[0].endswith(f"{file!r} differs from what was written; building it again")
        assert (entry / file).read_bytes() == whole


LISTS = pa.LargeListArray.from_arrays(pa.array([0, 1, 3], pa.int64()), pa.array([1, 2, 3], pa.int32()))
WRONG_COLUMNS = {
    "missing values": pa.array([1, None], pa.int32()),
    "missing inside": pa.LargeListArray.from_arrays(LISTS.offsets, pa.array([1, None, 3], pa.int32())),
    "texts": pa.array(["a", "b"]),
    "lists of texts": pa.LargeListArray.from_arrays(LISTS.offsets, pa.array(["a", "b", "c"])),
}


def write_columns(path: Path, **columns: pa.Array) -> None:
    right = {"group": pa.array([1, 2], pa.uint64()), "record": pa.array(["{}", "{}"], pa.large_string())}
    right |= {name: pa.array([3, 4], pa.uint64()) for name in KEYS}
    batch = pa.RecordBatch.from_pydict({"knowledge": LISTS, **right, **columns})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


@pytest.mark.parametrize("name", WRONG_COLUMNS)
def test_columns_of_another_kind_are_refused(tmp_path: Path, name: str) -> None:
    write_columns(tmp_path / "rows.arrow")
    read_rows(tmp_path / "rows.arrow")
    write_columns(tmp_path / "rows.arrow", knowledge=WRONG_COLUMNS[name])
    with pytest.raises(ValueError):
        read_rows(tmp_path / "rows.arrow")


@pytest.mark.parametrize("right", [[0, 1, 3], [0, 2, 4]], ids=["numbers", "records"])
@pytest.mark.parametrize("wrong", [[0, 1, 99], [0, 9, 3], [-5, 1, 3], [2**62, 2**62, 2**62]])
def test_rows_that_reach_outside_the_file_are_refused(tmp_path: Path, right: list[int], wrong: list[int]) -> None:
    path = tmp_path / "rows.arrow"
    write_columns(path)
    before, after = np.array(right, np.int64).tobytes(), np.array(wrong, np.int64).tobytes()
    assert path.read_bytes().count(before) == 1
    path.write_bytes(path.read_bytes().replace(before, after))
    with pytest.raises(ValueError):
        read_rows(path)


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
        return content(load_encoded(source, "train", encoder))

    first, *others = race(launch)
    assert others == [first, first]
    (entry,) = (path for path in (home / "embedded").iterdir() if path.is_dir())
    assert len((entry / "snli_1.0_train.jsonl").read_text().splitlines()) == 12
