"""The DataModule of every task: datasets in, batches out.

Datasets are encoded once (`encoding.cache`), divided by group where the corpus has no official split, mixed by weight,
and batched by length (`encoding.batching`). What was kept, dropped and cut is logged.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from data_modules.batches import Batches
from data_modules.datasets.pairs import Pairs
from data_modules.encoding.batching import BatchSampler, Part
from data_modules.encoding.cache import EncodedSplit, load_encoded
from data_modules.encoding.pairs import Encoder
from data_modules.reading.dataset import Source
from data_modules.reading.rows import ReadReport
from data_modules.shards.lanes import NUM_BUFFER_ROWS, NUM_READERS
from data_modules.shards.stream import ShardStream
from data_modules.splits import SplitPlan, Subset, divide, keep_apart, stream_parts, unique_names, use_of
from data_modules.streaming import Stream
from faithkit.errors import UserError
from faithkit.provenance.row_keys import RowKeys

log = logging.getLogger("faithkit")


class DataModule(pl.LightningDataModule):
    """Batches for training, validation and test from one or several datasets.

    Args:
        sources: The datasets, each with its weight in training.
        names: Their names in reports and files; None takes their own, made unique.
        only: For each dataset `train` or `test`, where it is for that alone.
        split_plan: How official splits are divided; None divides nothing but what lacks one, a tenth each.
        batch_size: Examples of a step over all processes, so that results do not depend on how many there are.
        max_tokens: Most tokens of a step over all processes, padding counted.
        num_epochs: Training passes, one behind the other as a single sequence of steps.
        seed: Another seed is another order of the batches.
        streaming: Training reads its one dataset as it goes and never holds it; validation and test are cached.
        num_readers: Stretches that an epoch of streamed shards is cut into (`ShardStream`).
        num_buffer_rows: Rows of streamed shards that are encoded and shuffled at a time.
    """

    def __init__(
        self,
        sources: Sequence[tuple[Source, float]],
        encoder: Encoder,
        *,
        names: Sequence[str] | None = None,
        only: Sequence[str | None] | None = None,
        split_plan: SplitPlan | None = None,
        batch_size: int | None = 32,
        max_tokens: int | None = None,
        eval_max_tokens: int = 16_384,
        num_epochs: int = 1,
        num_workers: int = 0,
        on_bad_row: str = "stop",
        seed: int = 0,
        streaming: bool = False,
        num_readers: int = NUM_READERS,
        num_buffer_rows: int = NUM_BUFFER_ROWS,
    ):
        super().__init__()
        if streaming and (batch_size is None or max_tokens is not None):
            problem = f"data.streaming with data.batch_size={batch_size} and data.max_tokens={max_tokens}"
            raise UserError(problem, hint="set data.batch_size alone: a token budget would leave the steps uncounted")
        if streaming and (len(sources) != 1 or sources[0][1] != 1):
            raise UserError("data.streaming takes one dataset, of weight 1", hint="leave one part in data.parts")
        self.sources, self.encoder = list(sources), encoder
        self.names = list(names) if names else unique_names([source.name for source, _ in sources])
        self.only = [use_of(s, use) for (s, _), use in zip(sources, only or [None] * len(sources), strict=True)]
        if streaming and any(self.only):
            problem = f"data.streaming with a part that is for {self.only[0]} only"
            raise UserError(problem, hint="set data.streaming=false: validation needs labelled examples too")
        self.batch_size, self.max_tokens, self.eval_max_tokens = batch_size, max_tokens, eval_max_tokens
        self.num_epochs, self.num_workers, self.seed = num_epochs, num_workers, seed
        self.split_plan = split_plan or SplitPlan()
        if streaming and self.split_plan.fold is not None:
            raise UserError(f"data.streaming with data.fold={self.split_plan.fold[0]}", hint="set data.streaming=false")
        self.on_bad_row = on_bad_row
        self.subsets: dict[str, list[Subset]] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.rejects: list[dict[str, Any]] = []
        self._resume_step = 0
        self.streaming = streaming
        self.num_readers, self.num_buffer_rows = num_readers, num_buffer_rows
        self._stream: Stream | ShardStream | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.subsets:
            return
        self.subsets = {"train": [], "validation": [], "test": []}
        for (source, weight), name, only in zip(self.sources, self.names, self.only, strict=True):
            if self.streaming:
                self._set_up_stream(source, name)
                continue
            load = partial(self._load, source, name)
            divided = divide(source, load, name, self.split_plan, weight=weight, only=only)
            for split, subset in divided.items():
                self.subsets[split].append(subset)
        self._keep_weak_apart()
        if not self._stream and not sum(len(subset) for subset in self.subsets["train"]):
            raise self._lacks("training", "lower data.validation_fraction or data.test_fraction")
        if not sum(len(subset) for subset in self.subsets["validation"]):
            raise self._lacks("validation", "raise data.validation_fraction")
        if not sum(len(subset) for subset in self.subsets["test"]):
            log.warning("no test examples, so the run ends without test metrics; data.test_fraction=0.1 takes some")
        self.encoder.fit(self.subsets["train"])

    def _lacks(self, use: str, change: str) -> UserError:
        """The error of a division that left nothing for a use; with one group no share of the rows changes that."""
        own = any(source.name == Pairs.name for source, _ in self.sources)
        by = "name a column with more values: data.columns.group=COLUMN" if own else "add rows of other groups"
        # Of a stream nothing comes here: reading it refuses a part of a division without rows.
        divided = {name for name, only in zip(self.names, self.only, strict=True) if only is None}
        subsets = [one for uses in self.subsets.values() for one in uses if one.name in divided and len(one)]
        if not subsets:
            return UserError(f"no {use} examples", hint="check data.path and data.split")
        # Each part has groups of its own: two may name theirs alike.
        parts = {name: [s.encoded.groups[s.indices] for s in subsets if s.name == name] for name in divided}
        num_groups = sum(len(np.unique(np.concatenate(groups))) for groups in parts.values() if groups)
        rows = f"{sum(map(len, subsets)):,} rows are of {num_groups:,} group{'s' * (num_groups != 1)}"
        problem = f"no {use} examples: the {rows}, and no split parts a group"
        return UserError(problem, hint=by if num_groups == 1 else f"{change}; or {by}")

    def _keep_weak_apart(self) -> None:
        weak = {name for (source, _), name in zip(self.sources, self.names, strict=True) if source.train_only}
        held_out = self.subsets["validation"] + self.subsets["test"]
        for place, subset in enumerate(self.subsets["train"]):
            if subset.name in weak:
                kept = self.subsets["train"][place] = keep_apart(subset, held_out)
                name = f"{subset.name}/{subset.encoded.split}"
                self.counts[name]["dropped: knowledge stands in validation or test"] = len(subset) - len(kept)

    def _set_up_stream(self, source: Source, name: str) -> None:
        parts = stream_parts(source, self.split_plan)
        for use in self.split_plan.fractions:
            part, split = parts[use]
            encoded = self._load(part, name, split)
            self.subsets[use].append(Subset(name, encoded, np.arange(len(encoded))))
        assert self.batch_size is not None
        options: dict[str, Any] = {"batch_size": self.batch_size, "num_epochs": self.num_epochs, "seed": self.seed}
        options |= {"num_rows": self.split_plan.num_rows, "on_bad_row": self.on_bad_row}
        if source.files_stand_alone:
            options |= {"num_readers": self.num_readers, "num_buffer_rows": self.num_buffer_rows}
            self._stream = ShardStream(*parts["train"], self.encoder, **options)
        else:
            self._stream = Stream(*parts["train"], self.encoder, **options)
        self._note(f"{name}/{parts['train'][1]}, streamed", self._stream.report)

    def _load(self, source: Source, name: str, split: str) -> EncodedSplit:
        num_rows = self.split_plan.num_rows
        encoded = load_encoded(source, split, self.encoder, on_bad_row=self.on_bad_row, num_rows=num_rows)
        self._note(f"{name}/{split}", encoded)
        return encoded

    def _note(self, name: str, read: EncodedSplit | ReadReport) -> None:
        self.counts[name] = dict(read.counts)
        self.rejects += read.rejects
        log.info("%s: %s", name, ", ".join(f"{n} {c:,}" for n, c in read.counts.items()))

    def summary(self) -> dict[str, Any]:
        """Describes the data: sizes, a hash of the records of each dataset, and what reading did with the rows."""
        every = [subset for subsets in self.subsets.values() for subset in subsets]
        sizes = {split: {s.name: len(s) for s in subsets} for split, subsets in self.subsets.items()}
        fingerprints = {f"{s.name}/{s.encoded.split}": s.encoded.fingerprint for s in every}
        if stream := self._stream:
            sizes["train"] = {self.names[0]: stream.num_rows}
            fingerprints[f"{self.names[0]}/{stream.split}"] = stream.fingerprint()
        return {"sizes": sizes, "fingerprints": fingerprints, "counts": self.counts}

    def keys(self, split: str) -> Iterator[RowKeys]:
        """The keys of all rows of training, validation or test, in parts; streamed ones are read again for it."""
        if split == "train" and self._stream:
            yield from self._stream.keys()
        yield from (subset.keys() for subset in self.subsets[split])

    @property
    def num_batches(self) -> int:
        """Training batches over all epochs, the same for any number of processes."""
        return len(self._stream or self._train_sampler())

    def validation_interval(self, per_epoch: float) -> int:
        """Batches between two validations, so that the last one comes at (or a few batches before) the end."""
        validations = max(1, round(self.num_epochs * per_epoch))
        return max(1, self.num_batches // validations)

    def _train_sampler(self) -> BatchSampler:
        return self._sampler(Batches(self.subsets["train"], self.encoder), shuffle=True)

    def _sampler(self, batches: Batches, *, shuffle: bool) -> BatchSampler:
        weights = [subset.weight if shuffle else 1.0 for subset in batches.subsets]
        rows = [np.arange(low, high) for low, high in zip(batches.starts[:-1], batches.starts[1:], strict=True)]
        world_size = self.trainer.world_size if self.trainer else 1
        return BatchSampler(
            batches.lengths(),
            [Part(r, w) for r, w in zip(rows, weights, strict=True)],
            batch_size=self.batch_size if shuffle else None,
            max_tokens=self.max_tokens if shuffle else self.eval_max_tokens * world_size,
            shuffle=shuffle,
            num_epochs=self.num_epochs if shuffle else 1,
            seed=self.seed,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=world_size,
            second=batches.second_lengths(),
            family=batches.families(),
        )

    def _loader(self, batches: Batches | Stream | ShardStream, sampler: BatchSampler | None) -> DataLoader:
        return DataLoader(
            batches,
            sampler=sampler,
            batch_size=None,  # the sampler's items are whole batches already
            num_workers=self.num_workers,
            persistent_workers=False,
            # A generator of its own: starting an iterator draws a number, and must not draw the model's.
            generator=torch.Generator().manual_seed(self.seed),
        )

    def train_dataloader(self) -> DataLoader:
        if stream := self._stream:
            stream.start, self._resume_step = self._resume_step, 0
            if self.trainer:
                stream.rank, stream.world_size = self.trainer.global_rank, self.trainer.world_size
            return self._loader(stream, None)
        sampler = self._train_sampler()
        sampler.start, self._resume_step = self._resume_step, 0
        return self._loader(Batches(self.subsets["train"], self.encoder), sampler)

    def val_dataloader(self) -> DataLoader:
        batches = Batches(self.subsets["validation"], self.encoder)
        return self._loader(batches, self._sampler(batches, shuffle=False))

    def state_dict(self) -> dict[str, Any]:
        """The number of batches that the model has learnt from, which training goes on behind, and the shards' pins."""
        assert self.trainer is not None
        step = self.trainer.fit_loop.epoch_loop.batch_progress.current.processed  # type: ignore[attr-defined]
        return {"step": step} | ({"shards": self._stream.pins()} if isinstance(self._stream, ShardStream) else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if isinstance(self._stream, ShardStream):
            self._stream.check_pins(state.get("shards"))
        self._resume_step = state["step"]
