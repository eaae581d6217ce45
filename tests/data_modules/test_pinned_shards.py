"""Shards that vanish, change, are empty, broken or unlike each other: each is named."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_modules.datasets.pairs import Pairs
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.pinned_shards import pin_shards
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from tests.data_modules.conftest import rows_of, write_shard
from tests.data_modules.test_streaming import indices, stream

Write = Callable[..., Path]


def pin(folder: Path, on_bad_row: str = "stop") -> ReadReport:
    report = ReadReport(on_bad_row)
    pin_shards(Pairs(path=str(folder)), "train", report)
    return report


def test_an_empty_shard_is_left_out_and_counted(write_shards: Write) -> None:
    folder = write_shards()
    (folder / "train-1.jsonl").touch()
    (folder / "train-2.csv").write_text("knowledge,response,label\n")
    assert pin(folder).counts["empty shards, left out"] == 3


def test_other_columns_are_refused_before_a_row_is_read(write_shards: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_shards()
    other = pa.table({"id": [1], "knowledge": ["a"], "response": ["b"], "verdict": ["faithful"]})
    pq.write_table(other, folder / "train-00002.parquet")
    monkeypatch.setattr(Pairs, "read_file", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(UserError, match=r"'id' is int64, there string; 'label' is missing.*verdict") as caught:
        pin(folder)
    assert "train-00002.parquet" in str(caught.value)


def test_a_shard_that_was_cut_short_is_named(write_shards: Write) -> None:
    folder = write_shards()
    path = folder / "train-00002.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"no whole Parquet file(.|\n)*train-00002\.parquet"):
        pin(folder)


def test_a_bad_row_stops_the_run_before_it_begins_or_is_counted(write_shards: Write) -> None:
    folder = write_shards()
    write_shard(folder / "train-00002.parquet", [*rows_of(3), {**rows_of(1)[0], "response": ""}])
    with pytest.raises(UserError, match=r"'response' is empty(.|\n)*train-00002\.parquet, row 4"):
        pin(folder)
    for _ in range(2):  # counted, and out of the cache
        report = pin(folder, "skip")
        assert report.counts["rejected: bad row"] == 1 and json.dumps(report.rejects[0]).count("00002") == 1


def swap_a_label(path: Path) -> None:
    rows = pq.read_table(path).to_pylist()
    rows[0]["label"] = {"faithful": "hallucinated", "hallucinated": "faithful"}[rows[0]["label"]]
    write_shard(path, rows)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (swap_a_label, "the shard has changed since the training began"),
        (lambda path: path.write_bytes(b"PAR1"), "the shard has changed since the training began"),
        (Path.unlink, "the shard is gone"),
    ],
)
def test_a_shard_that_changes_or_vanishes_stops_the_training(
    encoder: PairEncoder, write_shards: Write, spoil: Callable[[Path], None], message: str
) -> None:
    folder = write_shards()
    made = stream(folder, encoder, num_epochs=2)
    batches = iter(made)
    next(batches)
    spoil(folder / "train-00002.parquet")
    with pytest.raises(UserError, match=rf"{message}(.|\n)*train-00002\.parquet"):
        list(batches)


def test_a_shard_behind_an_address_that_vanishes_is_named(encoder: PairEncoder, write_shards: Write) -> None:
    import fsspec

    folder, memory = write_shards(), fsspec.filesystem("memory")
    memory.put(str(folder), str(folder), recursive=True)
    made = stream(f"memory://{folder}", encoder)
    memory.rm(f"{folder}/train-00002.parquet")
    with pytest.raises(UserError, match=r"train-00002\.parquet' is gone"):
        indices(made)


def test_a_copy_with_another_date_is_the_same_shard(encoder: PairEncoder, write_shards: Write) -> None:
    folder = write_shards()
    before = stream(folder, encoder).pins()
    (folder / "train-00002.parquet").touch()
    stream(folder, encoder).check_pins(before)
