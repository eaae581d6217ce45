"""Streamed batches: the same in any number of processes and from any step; shards that change are named."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytorch_lightning as pl
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from data_modules import streaming
from data_modules.data_module import DataModule
from data_modules.data_options import DataOptions
from data_modules.datasets.pairs import Pairs
from data_modules.embedded.corpus import Embedded
from data_modules.encoding.encoder import Columns
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.reading import files
from data_modules.reading.dataset import Source, exclude_from
from data_modules.reading.exclude import Excluded
from data_modules.reading.rows import ReadReport, Row
from data_modules.splits import MixPart, SplitPlan, part_of
from data_modules.streaming import Stream, pin_shards
from faithkit.errors import UserError
from faithkit.records import Example
from tests.data_modules.conftest import Rows, Write, rows_of, write_shard
from tests.data_modules.official_rows import write

ROWS, BATCH = 74, 7


@dataclass(frozen=True, kw_only=True)
class Lines(Source):
    """A dataset whose files do not stand alone: a number and a group to a row, one row of two dropped."""

    name: ClassVar[str] = "lines"

    def files(self) -> Mapping[str, Sequence[Path]]:
        return {"train": [Path(self.path)]}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        number = row.values["number"]
        if number % 2:
            report.count("dropped: odd")
            return
        texts = {"knowledge": f"year {number}", "response": "yes", "label": "faithful"}
        yield Example(id="same", source="lines", split=split, group=str(number // 6), **texts)


def write_lines(folder: Path, count: int) -> Lines:
    return Lines(path=str(write(folder / "train.jsonl", [{"number": number} for number in range(count)])))


@pytest.fixture(params=["shards", "lines", "embedded"])
def source(request: pytest.FixtureRequest, write_shards: Write, tmp_path: Path) -> Source:
    """Gives a dataset of ROWS rows: shards, files that are read one after the other, or generated."""
    if request.param == "shards":
        return Pairs(path=str(write_shards()))
    return write_lines(tmp_path, 2 * ROWS) if request.param == "lines" else Embedded(num_train=ROWS)


def stream(source: Source | Path | str, encoder: PairEncoder, **options: Any) -> Stream:
    settings = {key: options.pop(key) for key in ("rank", "world_size", "num_rows") if key in options}
    made = DataOptions(**{"batch_size": BATCH, "num_readers": 4, "num_buffer_rows": 24, "seed": 3, **options})
    read = source if isinstance(source, Source) else Pairs(path=str(source))
    return Stream(read, "train", encoder, made, **settings)


def indices(made: Stream, start: int = 0) -> list[list[int]]:
    made.start = start
    return [batch["index"].tolist() for batch in made]


def test_every_row_comes_once_an_epoch_and_epochs_differ(encoder: PairEncoder, source: Source) -> None:
    made = stream(source, encoder, num_epochs=3)
    batches = indices(made)
    assert len(batches) == len(made) == 33
    assert [len(batch) for batch in batches] == ([7] * 10 + [4]) * 3
    epochs = [batches[begin : begin + 11] for begin in (0, 11, 22)]
    assert all(sorted(row for batch in epoch for row in batch) == list(range(ROWS)) for epoch in epochs)
    assert len({str(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("world_size", [2, 3, 4, 6])
def test_processes_share_each_batch_and_lose_nothing(encoder: PairEncoder, source: Source, world_size: int) -> None:
    alone = list(stream(source, encoder, num_epochs=2))
    shares = [list(stream(source, encoder, num_epochs=2, rank=r, world_size=world_size)) for r in range(world_size)]
    for whole, *parts in zip(alone, *shares, strict=True):
        rows = [row for part in parts for row in part["index"].tolist()]
        assert Counter(row for row in rows if row >= 0) == Counter(whole["index"].tolist())
        assert all(part["num_rows"] == whole["num_rows"] == len(whole["index"]) for part in parts)
        assert all(len(part["input_ids"]) == len(part["index"]) >= 1 for part in parts), "an empty share has padding"


@pytest.mark.parametrize("world_size", [1, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 6))])
def test_it_goes_on_from_any_step_with_other_processes(encoder: PairEncoder, source: Source, world_size: int) -> None:
    whole = indices(stream(source, encoder, num_epochs=2))
    made = [stream(source, encoder, num_epochs=2, rank=rank, world_size=world_size) for rank in range(world_size)]
    for step in range(len(whole) + 1):
        shares = [indices(each, step) for each in made]
        got = [sorted(row for part in parts for row in part if row >= 0) for parts in zip(*shares, strict=True)]
        assert got == [sorted(batch) for batch in whole[step:]]


def test_a_batch_is_what_its_rows_encode_to(encoder: PairEncoder, source: Source) -> None:
    examples = [e for e, _ in source.read_split("train", ReadReport())]
    for batch in stream(source, encoder):
        columns = encoder.encode([examples[i] for i in batch["index"].tolist()], Counter())
        assert all(np.array_equal(batch[name].numpy(), array) for name, array in encoder.collate(columns).items())


@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_change_nothing(encoder: PairEncoder, source: Source, num_workers: int) -> None:
    made = stream(source, encoder)
    loader = DataLoader(made, batch_size=None, num_workers=num_workers)
    assert [batch["index"].tolist() for batch in loader] == indices(made)


def test_a_glob_and_an_address_are_their_files(encoder: PairEncoder, write_shards: Write) -> None:
    folder = write_shards()
    glob, address = f"{folder}/train-*.parquet", f"memory://{folder}"
    import fsspec

    fsspec.filesystem("memory").put(str(folder), str(folder), recursive=True)
    want = [batch["input_ids"].tolist() for batch in stream(folder, encoder)]
    for path in (glob, address):
        assert [batch["input_ids"].tolist() for batch in stream(path, encoder)] == want


def test_a_checkpoint_goes_on_with_the_same_shards_alone(encoder: PairEncoder, write_shards: Write) -> None:
    folder = write_shards()
    pins = stream(folder, encoder).pins()
    stream(folder, encoder, num_readers=2).check_pins(pins)
    (folder / "train-00002.parquet").touch()
    stream(folder, encoder).check_pins(pins)
    write_shard(folder / "train-00002.parquet", rows_of(23))
    with pytest.raises(UserError, match=r"differ from those that this training began with: train-00002\.parquet"):
        stream(folder, encoder).check_pins(pins)


class Recorder(pl.LightningModule):
    """Remembers which rows it was given; keeps a checkpoint of the step before `step`."""

    def __init__(self, step: int, path: Path):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.step, self.path = step, path
        self.seen: list[list[int]] = []

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        self.seen.append(batch["index"].tolist())
        return self.weight.sum()

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step == self.step:
            self.trainer.save_checkpoint(self.path)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("step", [1, 6, 11, 17])
def test_lightning_goes_on_within_a_shard(encoder: PairEncoder, write_shards: Write, tmp_path: Path, step: int) -> None:
    source = Pairs(path=str(write_shards()))

    def fit(checkpoint: Path | None = None) -> list[list[int]]:
        options: dict[str, Any] = {"num_epochs": 2, "num_readers": 4, "num_buffer_rows": 24}
        data = DataModule([MixPart(source)], encoder, DataOptions(batch_size=BATCH, streaming=True, **options))
        module = Recorder(step, tmp_path / "last.ckpt")
        quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, limit_val_batches=0, **quiet)
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        return module.seen

    whole = fit()
    assert len(whole) == 22
    assert fit(tmp_path / "last.ckpt") == whole[step:]


def test_each_process_opens_its_shards(encoder: PairEncoder, write_shards: Write, monkeypatch: Any) -> None:
    folder = write_shards((20, 20, 20, 20))
    made = [stream(folder, encoder, batch_size=8, rank=rank, world_size=2) for rank in (0, 1)]
    files: list[set[Any]] = []
    read = Pairs.read_file

    def noting(self: Pairs, file: Any, *rest: Any) -> Any:
        files[-1].add(file)
        return read(self, file, *rest)

    monkeypatch.setattr(Pairs, "read_file", noting)
    for each in made:
        files.append(set())
        indices(each)
    assert len(files[0]) == len(files[1]) == 2 and not files[0] & files[1]


def test_buffers_before_the_first_step_are_not_encoded(encoder: PairEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    encode = PairEncoder.encode

    def counting(self: PairEncoder, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        seen.append(len(examples))
        return encode(self, examples, counts)

    monkeypatch.setattr(PairEncoder, "encode", counting)
    indices(stream(Embedded(num_train=ROWS), encoder), start=7)  # the second batch of the third buffer of 21 rows
    assert seen == [21, 11]


def test_no_more_than_a_buffer_is_held(encoder: PairEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    alive = peak = 0

    class Counted(Example):
        def __init__(self, **values: Any):
            nonlocal alive, peak
            super().__init__(**values)
            alive += 1
            peak = max(peak, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    monkeypatch.setattr("data_modules.embedded.corpus.Example", Counted)
    indices(stream(Embedded(num_train=400), encoder))
    assert 21 <= peak <= 2 * 21 + 2, "the old buffer may wait for the new one"


@pytest.mark.parametrize("kind", ["lines", "shards"])
def test_groups_are_divided_as_cached(kind: str, encoder: PairEncoder, write_shards: Write, tmp_path: Path) -> None:
    class RepeatingLines(Lines):
        ids_repeat = True  # the cache would refuse them else

    lines = RepeatingLines(path=write_lines(tmp_path, 600).path)
    source: Source = lines if kind == "lines" else Pairs(path=str(write_shards((80, 80), name="part")))
    sizes = []
    for streamed in (False, True):
        data = DataModule([MixPart(source)], encoder, DataOptions(batch_size=BATCH, streaming=streamed))
        data.setup()
        sizes.append({split: counts[source.name] for split, counts in data.summary()["sizes"].items()})
    assert sizes[0] == sizes[1] and all(sizes[0].values())


@pytest.mark.parametrize(
    ("options", "plan", "message"),
    [
        ({"batch_size": None, "max_tokens": 512}, None, "batch_size"),
        ({"max_tokens": 512}, None, "max_tokens"),
        ({}, SplitPlan(split="train"), "cannot divide"),
        ({}, SplitPlan(fold=(0, 5)), "data.fold=0"),
    ],
)
def test_streaming_is_refused(encoder: PairEncoder, options: dict[str, Any], plan: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        DataModule([MixPart(Embedded())], encoder, DataOptions(streaming=True, **options), plan).setup()


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


def test_a_cut_shard_or_a_bad_row_stops_the_run_before_it_begins_or_is_counted(write_shards: Write) -> None:
    folder = write_shards()
    path = folder / "train-00002.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"no whole Parquet file(.|\n)*train-00002\.parquet"):
        pin(folder)
    write_shard(path, [*rows_of(3), {**rows_of(1)[0], "response": ""}])
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
def test_a_changed_shard_stops_training(encoder: PairEncoder, write_shards: Write, spoil: Any, message: str) -> None:
    folder = write_shards()
    made = stream(folder, encoder, num_epochs=2)
    batches = iter(made)
    next(batches)
    spoil(folder / "train-00002.parquet")
    with pytest.raises(UserError, match=rf"{message}(.|\n)*train-00002\.parquet"):
        list(batches)


def test_a_shard_behind_an_address_that_vanishes_is_named(encoder: PairEncoder, write_shards: Write) -> None:
    folder, memory = write_shards(), fsspec.filesystem("memory")
    memory.put(str(folder), str(folder), recursive=True)
    made = stream(f"memory://{folder}", encoder)
    memory.rm(f"{folder}/train-00002.parquet")
    with pytest.raises(UserError, match=r"train-00002\.parquet' is gone"):
        indices(made)


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


def write_rows(path: Path, rows: Rows, group: int) -> None:
    text, one = pa.string(), pa.struct([("a", pa.int64())])
    fact = pa.struct([("text", text), ("spans", text)])
    schema = pa.schema([("fact", fact), ("response", text), ("label", text), ("extra", one)])
    if path.suffix == ".jsonl":
        lines = [json.dumps(row) + "\n" + ("no JSON\n" if not n % 5 else "") for n, row in enumerate(rows)]
        path.write_text("".join(lines))
    else:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=group)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("wrapped", [False, True])
@given(kinds=KINDS, group=st.integers(1, 15))
def test_reading_starts_anywhere(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, wrapped: bool, kinds: list[str], group: int
) -> None:
    path = tmp_path_factory.mktemp("shard") / f"train-0{suffix}"
    write_rows(path, rows_by_kind([GOOD, *kinds]), group)
    source: Source = Pairs(path=str(path), columns={"knowledge": "fact.text"})
    if wrapped:
        test, _ = next(iter(source.read_split("train", ReadReport("skip"))))
        source = part_of(exclude_from(source, Excluded.of([test])), "train", {"test": 0.3}, 1)
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
        write_rows(tmp_path / f"train-{number}{suffix}", rows_by_kind([GOOD, *kinds]), 5)
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
