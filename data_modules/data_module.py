"""The DataModule of every task: datasets in, batches out.

Datasets are encoded once (`load_encoded`), divided by group if the corpus has no official split, mixed by weight, and
batched by length (`encoding.batching`). The rows kept, dropped and truncated are logged.

Encodings are on disk, keyed by the content of the files, the layout and the tokenizer. A folder `encodings/<key>/`
holds `rows.arrow` (the columns of the encoder, and of every record its keys and itself as JSON, read through a memory
map) and `meta.json` (what was kept, dropped, cut and rejected). It appears whole or not at all, and is made again where
it is damaged (`faithkit.files.cache`).
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from data_modules.data_options import USER_TABLE, DataOptions
from data_modules.encoding.batching import Batches, BatchSampler, Part
from data_modules.encoding.encoder import Columns, EncodedSplit, Encoder, Ragged, Subset
from data_modules.reading.dataset import Source, content_hash, read_examples
from data_modules.reading.rows import ReadReport
from data_modules.splits import MixPart, SplitPlan, divide, stream_parts
from faithkit.errors import UserError
from faithkit.files.cache import cache_dir, cache_entry
from faithkit.provenance.row_keys import RowKeys, group_hash, row_keys
from faithkit.words import VERSION as WORDS_VERSION

RECORD, GROUP = "record", "group"
KEYS = tuple(f"seen_{kind}" for kind in RowKeys._fields)
FIXED = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64())
CACHE_VERSION = 3  # raise it when a folder holds something else, or its rows get other keys
RECORDS_AT_ONCE = 16_384  # records tokenised at a time: enough for the tokenizer's threads, small in memory
log = logging.getLogger("faithkit")


def read_rows(path: Path) -> tuple[Columns, NDArray[np.uint64], RowKeys, pa.ChunkedArray]:
    """Opens the rows of an entry: columns, hashes of groups, keys and records, as views of the file's memory map.

    Raises:
        ValueError: It is no such file, or it is damaged.
        OSError: It cannot be read.
    """
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        table.validate()
        made = [name for name in table.column_names if name not in (RECORD, GROUP, *KEYS)]  # by the encoder
        columns = {name: _to_numpy(table[name]) for name in made}
        groups, records = _to_numpy(table[GROUP]), table[RECORD]
        keys = RowKeys(*(_to_numpy(table[name]) for name in KEYS))
        for chunk in records.chunks:
            if not pa.types.is_large_string(chunk.type) or chunk.null_count:
                raise ValueError(f"records of {chunk.type} with {chunk.null_count} missing ones")
            _, offsets, data = chunk.buffers()
            _check_offsets(np.frombuffer(offsets, np.int64, len(chunk) + 1), data.size if data else 0)
    except (KeyError, pa.ArrowException) as error:  # some of Arrow's are no ValueErrors
        raise ValueError(str(error)) from error
    return columns, groups, keys, records


def _to_numpy(column: pa.ChunkedArray) -> Any:
    for chunk in column.chunks:
        ragged = pa.types.is_large_list(chunk.type)
        values = chunk.values if ragged else chunk
        if chunk.null_count or values.null_count or values.type not in FIXED:
            raise ValueError(f"a column of {chunk.type} with {chunk.null_count} missing values")
        if ragged:
            _check_offsets(_view(chunk.offsets), len(values))
    whole = column.combine_chunks() if column.num_chunks > 1 else column.chunk(0)
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    if not pa.types.is_large_list(column.type):
        return _view(whole)
    return Ragged(_view(whole.values), _view(whole.offsets))


def _view(array: pa.Array) -> Any:
    return np.from_dlpack(array)  # `to_numpy` would import pandas


def _check_offsets(offsets: NDArray[np.int64], size: int) -> None:
    if offsets[0] < 0 or offsets[-1] > size or bool((offsets[1:] < offsets[:-1]).any()):
        raise ValueError("rows that reach outside the file")


def load_encoded(
    source: Source, split: str, encoder: Encoder, *, on_bad_row: str = "stop", num_rows: int | None = None
) -> EncodedSplit:
    """Returns the split from the cache, encoded first if it is not there yet."""
    # Words decide what some datasets make of their rows (BEGIN, Topical-Chat, weak ones) and what control tokens say.
    parts = [CACHE_VERSION, WORDS_VERSION, content_hash(source, split), encoder.fingerprint(), on_bad_row, num_rows]
    key = hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    def build(folder: Path) -> None:
        log.info("encoding %s/%s (kept for later launches)", source.name, split)
        report = ReadReport(on_bad_row)
        examples = read_examples(source, split, report, num_rows)
        cut: Counter[str] = Counter()
        digest = hashlib.blake2b(digest_size=16)
        writer = None
        with pa.OSFile(str(folder / "rows.arrow"), "wb") as sink:
            while chunk := list(islice(examples, RECORDS_AT_ONCE)):
                records = [json.dumps(example.to_dict()) for example in chunk]
                digest.update("\n".join(records).encode())
                arrays = {
                    name: pa.LargeListArray.from_arrays(pa.array(column.offsets), pa.array(column.values))
                    if isinstance(column, Ragged)
                    else pa.array(column)
                    for name, column in encoder.encode(chunk, cut).items()
                }
                arrays[GROUP] = pa.array([group_hash(example.group) for example in chunk], pa.uint64())
                arrays[RECORD] = pa.array(records, pa.large_string())
                arrays |= zip(KEYS, map(pa.array, row_keys(chunk)), strict=True)
                batch = pa.RecordBatch.from_pydict(arrays)
                writer = writer or pa.ipc.new_file(sink, batch.schema)
                writer.write_batch(batch)
            assert writer is not None, "read_examples raises when nothing is left"
            writer.close()
        counts = dict(report.counts) | {name: count for name, count in cut.items() if count}
        meta = {"counts": counts, "rejects": report.rejects, "fingerprint": digest.hexdigest()}
        (folder / "meta.json").write_text(json.dumps(meta))

    def read(folder: Path) -> EncodedSplit:
        meta, rows = json.loads((folder / "meta.json").read_text()), read_rows(folder / "rows.arrow")
        return EncodedSplit(source.name, split, *rows, Counter(meta["counts"]), meta["rejects"], meta["fingerprint"])

    return cache_entry(cache_dir("encodings") / key, build, read)


if TYPE_CHECKING:
    from data_modules.streaming import Stream


class DataModule(pl.LightningDataModule):
    """Makes batches for training, validation and test from one or several datasets.

    Args:
        parts: The datasets.
        split_plan: How official splits are divided; None divides only what has no official split, a tenth each.
    """

    def __init__(
        self,
        parts: Sequence[MixPart],
        encoder: Encoder,
        options: DataOptions | None = None,
        split_plan: SplitPlan | None = None,
    ):
        super().__init__()
        self.options = options = options or DataOptions()
        self.split_plan = split_plan or SplitPlan()
        self.encoder = encoder
        names = [part.name or part.source.name for part in parts]
        self.parts = {  # two parts of a mix may be of one dataset: names that repeat are numbered
            f"{name}-{names[:i].count(name) + 1}" if name in names[:i] else name: part
            for i, (name, part) in enumerate(zip(names, parts, strict=True))
        }
        if options.streaming:
            if options.batch_size is None or options.max_tokens is not None:
                sizes = f"data.batch_size={options.batch_size} and data.max_tokens={options.max_tokens}"
                hint = "set data.batch_size alone: with a token budget the steps cannot be counted"
                raise UserError(f"data.streaming with {sizes}", hint=hint)
            if len(parts) != 1 or parts[0].weight != 1:
                raise UserError("data.streaming takes one dataset, of weight 1", hint="leave one part in data.parts")
            if parts[0].only:
                problem = f"data.streaming with a part that is for {parts[0].only} only"
                raise UserError(problem, hint="set data.streaming=false: validation needs labelled examples too")
            if (fold := self.split_plan.fold) is not None:
                raise UserError(f"data.streaming with data.fold={fold[0]}", hint="set data.streaming=false")
        self.subsets: dict[str, list[Subset]] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.rejects: list[dict[str, Any]] = []
        self._resume_step = 0
        self._stream: Stream | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.subsets:
            return
        self.subsets = {"train": [], "validation": [], "test": []}
        for name, part in self.parts.items():
            if self.options.streaming:
                parts = stream_parts(part.source, self.split_plan)
                for use in self.split_plan.fractions:
                    one, split = parts[use]
                    encoded = self._load(one, name, split)
                    self.subsets[use].append(Subset(name, encoded, np.arange(len(encoded))))
                from data_modules.streaming import Stream  # few runs need it

                first_rows = self.split_plan.num_rows
                self._stream = stream = Stream(*parts["train"], self.encoder, self.options, num_rows=first_rows)
                self._record(f"{name}/{parts['train'][1]}, streamed", stream.report)
                continue
            load = partial(self._load, part.source, name)
            divided = divide(part.source, load, name, self.split_plan, weight=part.weight, only=part.only)
            for split, subset in divided.items():
                self.subsets[split].append(subset)
        # Weak examples of a held-out group are dropped: datasets may use the same names for their groups.
        held_out = [one.encoded.groups[one.indices] for one in self.subsets["validation"] + self.subsets["test"]]
        groups = np.concatenate([np.zeros(0, np.uint64), *held_out])
        for place, subset in enumerate(self.subsets["train"]):
            if self.parts[subset.name].source.train_only:
                dropped = np.isin(subset.encoded.groups[subset.indices], groups)
                self.subsets["train"][place] = replace(subset, indices=subset.indices[~dropped])
                name = f"{subset.name}/{subset.encoded.split}"
                self.counts[name]["dropped: knowledge occurs in validation or test"] = int(dropped.sum())
        if self.split_plan.by_rows:
            log.warning("data.split_by=rows: rows of one group are in training and test, so test figures are too high")
        num_rows = {split: sum(map(len, subsets)) for split, subsets in self.subsets.items()}
        if not self._stream and not num_rows["train"]:
            raise self._no_examples("training", "lower data.validation_fraction or data.test_fraction")
        if not num_rows["validation"]:
            raise self._no_examples("validation", "set data.validation_fraction=0.5")
        if not num_rows["test"]:
            log.warning("no test examples, so the run ends without test metrics; data.test_fraction=0.1 takes some")
        self.encoder.fit(self.subsets["train"])

    def _no_examples(self, use: str, change: str) -> UserError:
        """Makes the error for a division that left no rows for a use."""
        divided = {name for name, part in self.parts.items() if part.only is None}
        subsets = [one for uses in self.subsets.values() for one in uses if one.name in divided and len(one)]
        if not subsets:
            return UserError(f"no {use} examples", hint="check data.path and data.split")
        is_table = any(part.source.name == USER_TABLE for part in self.parts.values())
        other = "name a column with more values: data.columns.group=COLUMN" if is_table else "add rows of other groups"
        if self.split_plan.num_rows is not None:
            other = "raise data.num_rows"
        # Groups are counted by part: two parts may use the same names for different groups.
        groups = {name: [s.encoded.groups[s.indices] for s in subsets if s.name == name] for name in divided}
        num_groups = sum(len(np.unique(np.concatenate(each))) for each in groups.values() if each)
        rows = f"{sum(map(len, subsets)):,} rows are of {num_groups:,} group{'s' * (num_groups != 1)}"
        problem = f"no {use} examples: the {rows}, and a group is never divided"
        return UserError(problem, hint=other if num_groups == 1 else f"{change}; or {other}")

    def _load(self, source: Source, name: str, split: str) -> EncodedSplit:
        num_rows, on_bad_row = self.split_plan.num_rows, self.options.on_bad_row
        encoded = load_encoded(source, split, self.encoder, on_bad_row=on_bad_row, num_rows=num_rows)
        self._record(f"{name}/{split}", encoded)
        return encoded

    def _record(self, name: str, read: EncodedSplit | ReadReport) -> None:
        self.counts[name] = dict(read.counts)
        self.rejects += read.rejects
        log.info("%s: %s", name, ", ".join(f"{n} {c:,}" for n, c in read.counts.items()))

    def summary(self) -> dict[str, Any]:
        """Describes the data: sizes, a hash of the records of each dataset, and what happened to the rows."""
        every = [subset for subsets in self.subsets.values() for subset in subsets]
        sizes = {split: {s.name: len(s) for s in subsets} for split, subsets in self.subsets.items()}
        fingerprints = {f"{s.name}/{s.encoded.split}": s.encoded.fingerprint for s in every}
        if stream := self._stream:
            (name,) = self.parts
            sizes["train"] = {name: stream.num_rows}
            fingerprints[f"{name}/{stream.split}"] = stream.fingerprint()
        return {"sizes": sizes, "fingerprints": fingerprints, "counts": self.counts}

    def keys(self, split: str) -> Iterator[RowKeys]:
        """Yields the keys of all rows of training, validation or test, in parts; streamed rows are read again."""
        if split == "train" and self._stream:
            yield from self._stream.keys()
        yield from (subset.keys() for subset in self.subsets[split])

    @property
    def num_batches(self) -> int:
        """Training batches over all epochs, the same for any number of processes."""
        return len(self._stream or self._sampler(Batches(self.subsets["train"], self.encoder), shuffle=True))

    def validation_interval(self, per_epoch: float) -> int:
        """Returns the batches between two validations, so that the last one comes at, or just before, the end."""
        validations = max(1, round(self.options.num_epochs * per_epoch))
        return max(1, self.num_batches // validations)

    def _sampler(self, batches: Batches, *, shuffle: bool) -> BatchSampler:
        weights = [subset.weight if shuffle else 1.0 for subset in batches.subsets]
        rows = [np.arange(low, high) for low, high in zip(batches.starts[:-1], batches.starts[1:], strict=True)]
        options, world_size = self.options, self.trainer.world_size if self.trainer else 1
        has_second = all("second_length" in subset.encoded.columns for subset in batches.subsets)
        return BatchSampler(
            batches.lengths(),
            [Part(r, w) for r, w in zip(rows, weights, strict=True)],
            batch_size=options.batch_size if shuffle else None,
            max_tokens=options.max_tokens if shuffle else options.eval_max_tokens * world_size,
            shuffle=shuffle,
            num_epochs=options.num_epochs if shuffle else 1,
            seed=options.seed,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=world_size,
            second=batches.lengths("second_length") if has_second else None,
            family=batches.lengths("family") if self.encoder.shares_beginnings else None,
        )

    def _loader(self, batches: "Batches | Stream", sampler: BatchSampler | None) -> DataLoader:
        return DataLoader(
            batches,
            sampler=sampler,
            batch_size=None,  # the sampler's items are whole batches already
            num_workers=self.options.num_workers,
            persistent_workers=False,
            # Starting an iterator draws a number: a separate generator keeps the model's random state unchanged.
            generator=torch.Generator().manual_seed(self.options.seed),
        )

    def train_dataloader(self) -> DataLoader:
        if stream := self._stream:
            stream.start, self._resume_step = self._resume_step, 0
            if self.trainer:
                stream.rank, stream.world_size = self.trainer.global_rank, self.trainer.world_size
            return self._loader(stream, None)
        batches = Batches(self.subsets["train"], self.encoder)
        sampler = self._sampler(batches, shuffle=True)
        sampler.start, self._resume_step = self._resume_step, 0
        return self._loader(batches, sampler)

    def val_dataloader(self) -> DataLoader:
        batches = Batches(self.subsets["validation"], self.encoder)
        return self._loader(batches, self._sampler(batches, shuffle=False))

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of batches trained on, from which training resumes, and the identity of the shards."""
        assert self.trainer is not None
        step = self.trainer.fit_loop.epoch_loop.batch_progress.current.processed  # type: ignore[attr-defined]
        return {"step": step} | ({"shards": pins} if self._stream and (pins := self._stream.pins()) else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._stream:
            self._stream.check_pins(state.get("shards", {}))
        self._resume_step = state["step"]
