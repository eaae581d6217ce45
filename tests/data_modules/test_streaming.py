"""Streamed training batches: deterministic, resumable at any step, shared by the processes, in constant memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch.utils.data import DataLoader

from data_modules.data_module import DataModule
from data_modules.data_options import DataOptions
from data_modules.datasets.nli import Mnli
from data_modules.embedded.corpus import Embedded
from data_modules.encoding.encoder import Columns
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.reading.dataset import Source
from data_modules.reading.rows import ReadReport, Row
from data_modules.splits import MixPart, SplitPlan
from data_modules.streaming import Stream
from faithkit.errors import UserError
from faithkit.files.jsonl import write_jsonl
from faithkit.records import Example

WINDOW, BATCH, ROWS = 24, 5, 61  # windows of 20 rows: three whole ones and one of a single row


@dataclass(frozen=True, kw_only=True)
class Lines(Source):
    """A dataset with a file: a number and a group to a row, one row of two without a label."""

    name: ClassVar[str] = "lines"

    def files(self) -> Mapping[str, Sequence[Path]]:
        return {"train": [Path(self.path)]}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        number = row.values["number"]
        if number % 2:
            report.count("dropped: odd")
            return
        yield Example(
            id="same", source="lines", split=split, group=str(number // 6), knowledge=f"year {number}", response="yes"
        )


def write_lines(folder: Path, count: int) -> Lines:
    path = folder / "train.jsonl"
    write_jsonl(path, ({"number": number} for number in range(count)))
    return Lines(path=str(path))


def stream(source: Source, encoder: PairEncoder, **options: Any) -> Stream:
    settings = {key: options.pop(key) for key in ("rank", "world_size", "num_rows") if key in options}
    made = DataOptions(**{"batch_size": BATCH, "seed": 3, **options})
    return Stream(source, "train", encoder, made, window=WINDOW, **settings)


def indices(made: Stream, start: int = 0) -> list[list[int]]:
    made.start = start
    return [batch["index"].tolist() for batch in made]


def corpus() -> Embedded:
    return Embedded(num_train=ROWS, num_validation=8, num_test=8)


@pytest.mark.parametrize("num_epochs", [1, 3])
def test_every_row_comes_once_an_epoch_and_the_length_is_exact(encoder: PairEncoder, num_epochs: int) -> None:
    made = stream(corpus(), encoder, num_epochs=num_epochs)
    batches = indices(made)
    assert len(batches) == len(made) == num_epochs * 13  # 61 rows by 5
    assert Counter(row for batch in batches for row in batch) == dict.fromkeys(range(ROWS), num_epochs)
    epochs = [batches[i : i + 13] for i in range(0, len(batches), 13)]
    assert len({str(epoch) for epoch in epochs}) == num_epochs, "epochs differ in their batches"


@pytest.mark.parametrize("files", [False, True])
def test_it_begins_at_any_step(encoder: PairEncoder, tmp_path: Path, files: bool) -> None:
    made = stream(write_lines(tmp_path, 2 * ROWS) if files else corpus(), encoder, num_epochs=2)
    whole = indices(made)
    for step in range(len(whole) + 1):
        assert indices(made, step) == whole[step:]


def test_windows_before_the_first_step_are_not_encoded(encoder: PairEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    encode = PairEncoder.encode

    def counting(self: PairEncoder, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        seen.append(len(examples))
        return encode(self, examples, counts)

    monkeypatch.setattr(PairEncoder, "encode", counting)
    indices(stream(corpus(), encoder), start=9)  # the second batch of the third window
    assert seen == [20, 1]


def test_no_more_than_a_window_is_held(encoder: PairEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert 20 <= peak <= 2 * 20 + 2, "the old window may wait for the new one"


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_each_batch_and_lose_nothing(encoder: PairEncoder, world_size: int) -> None:
    alone = list(stream(corpus(), encoder))
    shares = [list(stream(corpus(), encoder, rank=rank, world_size=world_size)) for rank in range(world_size)]
    for whole, *parts in zip(alone, *shares, strict=True):
        rows = [row for part in parts for row in part["index"].tolist()]
        assert Counter(row for row in rows if row >= 0) == Counter(whole["index"].tolist())
        assert all(part["num_rows"] == whole["num_rows"] == len(whole["index"]) for part in parts)
        assert all(len(part["input_ids"]) == len(part["index"]) >= 1 for part in parts), "an empty share has padding"


def test_a_batch_is_what_the_record_encodes_to(encoder: PairEncoder) -> None:
    batch = next(iter(stream(corpus(), encoder)))
    examples = list(corpus().generate("train"))
    columns = encoder.encode([examples[i] for i in batch["index"].tolist()], Counter())
    assert all(np.array_equal(batch[name].numpy(), array) for name, array in encoder.collate(columns).items())


@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_change_nothing(encoder: PairEncoder, num_workers: int) -> None:
    made = stream(corpus(), encoder)
    loader = DataLoader(made, batch_size=None, num_workers=num_workers)
    assert [batch["index"].tolist() for batch in loader] == indices(made)


def test_a_bad_row_stops_the_run_before_it_begins(encoder: PairEncoder, tmp_path: Path) -> None:
    path = tmp_path / "multinli_1.0_train.jsonl"
    path.write_text('{"sentence1": "a"\n')
    with pytest.raises(UserError, match="broken JSON"):
        stream(Mnli(path=str(path)), encoder)


def test_division_by_group_is_that_of_the_cache(encoder: PairEncoder, tmp_path: Path) -> None:
    class RepeatingLines(Lines):
        ids_repeat = True  # the cache would refuse them else

    source = RepeatingLines(path=write_lines(tmp_path, 600).path)
    cached = DataModule([MixPart(source)], encoder, DataOptions(batch_size=BATCH))
    streamed = DataModule([MixPart(source)], encoder, DataOptions(batch_size=BATCH, streaming=True))
    sizes = []
    for data in (cached, streamed):
        data.setup()
        sizes.append({split: counts["lines"] for split, counts in data.summary()["sizes"].items()})
    assert sizes[0] == sizes[1]
    assert sum(sizes[0].values()) == 300


@pytest.mark.parametrize(
    ("options", "plan", "message"),
    [
        ({"batch_size": None, "max_tokens": 512}, None, "batch_size"),
        ({"max_tokens": 512}, None, "max_tokens"),
        ({}, SplitPlan(split="train"), "cannot divide"),
        ({}, SplitPlan(fold=(0, 5)), "data.fold=0"),
    ],
)
def test_streaming_is_refused_where_it_cannot_work(
    encoder: PairEncoder, options: dict[str, Any], plan: SplitPlan | None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        DataModule([MixPart(corpus())], encoder, DataOptions(streaming=True, **options), plan).setup()
