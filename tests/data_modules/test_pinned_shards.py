"""Shards that vanish, change, are empty, broken or unlike each other are named; reading may begin in their middle."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules import streaming
from data_modules.data_options import DataOptions
from data_modules.datasets.pairs import Pairs
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.reading import files
from data_modules.reading.dataset import Source, exclude_from
from data_modules.reading.exclude import Excluded
from data_modules.reading.rows import ReadReport
from data_modules.splits import part_of
from data_modules.streaming import Stream, pin_shards
from faithkit.errors import UserError
from tests.data_modules.conftest import Rows, rows_of, write_shard
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


GOOD, EMPTY, UNLABELLED, EXCLUDED, MARKED = "good", "empty", "unlabelled", "excluded", "marked"
KINDS = st.lists(st.sampled_from([GOOD, GOOD, EMPTY, UNLABELLED, EXCLUDED, MARKED]), min_size=2, max_size=40)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STRIDE", 3)
    monkeypatch.setattr(files, "BATCH", 4)


def rows_by_kind(kinds: list[str]) -> Rows:
    rows: Rows = []
    for kind, row in zip(kinds, rows_of(len(kinds)), strict=True):
        fact = {"text": "a fact that a test set has" if kind == EXCLUDED else row["knowledge"], "spans": "[]"}
        response = "" if kind == EMPTY else row["response"]
        label = None if kind == UNLABELLED else row["label"]
        rows.append({"fact": fact, "response": response, "label": label, "extra": {"a": 1} if kind == MARKED else None})
    return rows


def write(path: Path, rows: Rows, group: int) -> None:
    text, one = pa.string(), pa.struct([("a", pa.int64())])
    fact = pa.struct([("text", text), ("spans", text)])
    schema = pa.schema([("fact", fact), ("response", text), ("label", text), ("extra", one)])
    if path.suffix == ".jsonl":
        path.write_text(
            "".join(json.dumps(row) + "\n" + ("no JSON\n" if not n % 5 else "") for n, row in enumerate(rows))
        )
    else:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=group)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("wrapped", [False, True])
@given(kinds=KINDS, group=st.integers(1, 15))
def test_a_shard_gives_the_same_examples_from_any_of_them(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, wrapped: bool, kinds: list[str], group: int
) -> None:
    path = tmp_path_factory.mktemp("shard") / f"train-0{suffix}"
    write(path, rows_by_kind([GOOD, *kinds]), group)
    source: Source = Pairs(path=str(path), columns={"knowledge": "fact.text"})
    if wrapped:
        test = next(
            iter(Pairs(path=str(path), columns={"knowledge": "fact.text"}).read_split("train", ReadReport("skip")))
        )
        source = part_of(exclude_from(source, Excluded.of([test[0]])), "train", {"test": 0.3}, 1)
    whole = [example for example, _ in source.read_file(path, "train", ReadReport("skip"))]
    shards = pin_shards(source, "train", ReadReport("skip"))
    assert sum(shard.num_rows for shard in shards) == len(whole)
    for shard in shards:
        for place, example in enumerate(whole):
            start, passed_over = shard.place_of(place)
            got = [each for each, _ in source.read_file(path, "train", ReadReport("skip"), start)][passed_over:]
            assert got == whole[place:] and got[0].id == example.id
            assert passed_over < 3, "no more than the rows between two places are read in vain"


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_a_training_goes_on_where_rows_before_were_left_out(encoder: PairEncoder, tmp_path: Path, suffix: str) -> None:
    kinds = ([GOOD] * 4 + [EMPTY, UNLABELLED, EMPTY]) * 6
    for number in range(2):
        write(tmp_path / f"train-{number}{suffix}", rows_by_kind([GOOD, *kinds]), 5)
    source = Pairs(path=str(tmp_path), columns={"knowledge": "fact.text"})
    options: dict[str, Any] = {"batch_size": 5, "num_readers": 3, "num_buffer_rows": 10, "on_bad_row": "skip"}

    def made(**more: Any) -> Stream:
        return Stream(source, "train", encoder, DataOptions(num_epochs=2, **options), **more)

    whole = [(batch["index"].tolist(), batch["input_ids"].tolist()) for batch in made()]
    assert Counter(row for index, _ in whole for row in index) == dict.fromkeys(range(50), 2)
    for step in range(len(whole) + 1):
        resumed = made()
        resumed.start = step
        assert [(batch["index"].tolist(), batch["input_ids"].tolist()) for batch in resumed] == whole[step:]
        shares = [indices(made(rank=rank, world_size=2), step) for rank in range(2)]
        got = [sorted(row for part in parts for row in part if row >= 0) for parts in zip(*shares, strict=True)]
        assert got == [sorted(index) for index, _ in whole[step:]]
