"""The DataModule of every task: sources in, batches out.

Sources are encoded once (`cache`), divided by group where the corpus has no official split, mixed by weight, and
batched by length (`batching`). What was kept, dropped and cut is logged.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from data_modules.encoding.batching import BatchSampler, Part
from data_modules.encoding.cache import EncodedSplit, content_hash, load_encoded
from data_modules.encoding.pairs import Encoder
from data_modules.encoding.ragged import Ragged, stack_rows
from data_modules.reading.dataset import Source
from data_modules.reading.rows import ReadReport
from data_modules.splits import SplitPlan, Subset, divide, keep_apart, unique_names, use_of
from data_modules.streaming import Stream, divide_groups, stream_parts
from faithkit.errors import UserError

log = logging.getLogger("faithkit")


class Batches(Dataset):
    """Builds whole batches: an item is asked for by all of its rows at once."""

    def __init__(self, subsets: Sequence[Subset], encoder: Encoder):
        self.subsets, self.encoder = list(subsets), encoder
        self.starts = np.cumsum([0] + [len(subset) for subset in self.subsets])

    def lengths(self, column: str = "length") -> NDArray[np.int32]:
        return np.concatenate([np.asarray(s.encoded.columns[column])[s.indices] for s in self.subsets])

    def second_lengths(self) -> NDArray[np.int32] | None:
        """Of the second sequences, where every example has one."""
        every = all("second_length" in s.encoded.columns for s in self.subsets)
        return self.lengths("second_length") if every else None

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, request: tuple[NDArray[np.int64], int]) -> dict[str, torch.Tensor]:
        rows, num_rows = request
        present = np.maximum(rows, 0)  # a padding row repeats the first example; its index tells it apart
        owners = np.searchsorted(self.starts, present, side="right") - 1
        merged = _merge([self._take(int(o), present[owners == o]) for o in np.unique(owners)])
        # Rows arrive grouped by owner: the indices are put in that same order.
        order = np.argsort(owners, kind="stable")
        batch = {name: torch.from_numpy(array) for name, array in self.encoder.collate(merged).items()}
        batch["index"] = torch.from_numpy(rows[order])
        batch["num_rows"] = torch.tensor(num_rows)
        return batch

    def columns(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """The cached columns of some rows, which must ascend."""
        owners = np.searchsorted(self.starts, rows, side="right") - 1
        return _merge([self._take(int(o), rows[owners == o]) for o in np.unique(owners)])

    def _take(self, owner: int, rows: NDArray[np.int64]) -> dict[str, Any]:
        subset = self.subsets[owner]
        indices = subset.indices[rows - self.starts[owner]]
        columns = subset.encoded.columns
        return {n: c.take(indices) if isinstance(c, Ragged) else c[indices] for n, c in columns.items()}


def _merge(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return parts[0]
    merged: dict[str, Any] = {}
    for name, first in parts[0].items():
        columns = [part[name] for part in parts]
        if isinstance(first, Ragged):
            merged[name] = stack_rows(columns)
        else:
            merged[name] = np.concatenate(columns)
    return merged


def split_by_group(encoded: EncodedSplit, fractions: Mapping[str, float], seed: int) -> dict[str, NDArray[np.int64]]:
    """Divides rows so that no group is cut, the same way wherever and in whatever order the rows stand."""
    return divide_groups(encoded.groups, fractions, seed)


class DataModule(pl.LightningDataModule):
    """Batches for training, validation and test from one or several sources.

    Args:
        sources: Each with its weight in training.
        names: Of the sources, in reports and files; None takes their own, made unique.
        only: For each source `train` or `test`, where it is for that alone.
        batch_size: Examples of a step over all processes, so that results do not depend on how many there are.
        max_tokens: Most tokens of a step over all processes, padding counted.
        num_epochs: Training passes, one behind the other as a single sequence of steps.
        validation_fraction: Share of the groups, where a source has no validation split of its own.
        test_fraction: The same for the test split.
        split: Reads this official split alone and divides it by group; None uses the official splits.
        fold: For cross-validation: of `num_folds` parts by group this one is the test set, counted from 0.
        num_rows: The first N examples of each split, after filtering.
        streaming: Training never holds its one source; validation and test are cached as ever.
    """

    def __init__(
        self,
        sources: Sequence[tuple[Source, float]],
        encoder: Encoder,
        *,
        names: Sequence[str] | None = None,
        only: Sequence[str | None] | None = None,
        batch_size: int | None = 32,
        max_tokens: int | None = None,
        eval_max_tokens: int = 16_384,
        num_epochs: int = 1,
        num_workers: int = 0,
        validation_fraction: float = 0.1,
        test_fraction: float = 0.1,
        split: str | None = None,
        fold: int | None = None,
        num_folds: int = 5,
        num_rows: int | None = None,
        on_bad_row: str = "stop",
        seed: int = 0,
        streaming: bool = False,
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
        self.fractions = {"validation": validation_fraction, "test": test_fraction}
        if fold is not None and not (num_folds > 1 and 0 <= fold < num_folds and not streaming):
            problem = f"data.fold={fold} with data.num_folds={num_folds} and data.streaming={streaming}"
            raise UserError(problem, hint="use a fold from 0 to num_folds - 1, and no streaming")
        self.split_plan = SplitPlan(self.fractions, seed, split, None if fold is None else (fold, num_folds), num_rows)
        self.split, self.num_rows, self.on_bad_row = split, num_rows, on_bad_row
        self.subsets: dict[str, list[Subset]] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.rejects: list[dict[str, Any]] = []
        self._resume_step = 0
        self.streaming = streaming
        self._stream: Stream | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.subsets:
            return
        self.subsets = {"train": [], "validation": [], "test": []}
        for (source, weight), name, only in zip(self.sources, self.names, self.only, strict=True):
            if self.streaming:
                self._set_up_stream(source)
                continue
            divided = divide(
                source,
                partial(self._load, source, name),
                name,
                self.split_plan,
                weight=weight,
                only=only,
            )
            for split, subset in divided.items():
                self.subsets[split].append(subset)
        self._keep_weak_apart()
        if not self._stream and not sum(len(subset) for subset in self.subsets["train"]):
            raise UserError("no training examples", hint="check data.path and data.split")
        if not sum(len(subset) for subset in self.subsets["validation"]):
            raise UserError("no validation examples", hint="raise data.validation_fraction")
        if fit := getattr(self.encoder, "fit", None):
            fit(self.subsets["train"])

    def _keep_weak_apart(self) -> None:
        weak = {n for (s, _), n in zip(self.sources, self.names, strict=True) if getattr(s, "train_only", False)}
        held = self.subsets["validation"] + self.subsets["test"]
        for place, subset in enumerate(self.subsets["train"]):
            if subset.name in weak:
                kept = self.subsets["train"][place] = keep_apart(subset, held)
                name = f"{subset.name}/{subset.encoded.split}"
                self.counts[name]["dropped: knowledge stands in validation or test"] = len(subset) - len(kept)

    def _set_up_stream(self, source: Source) -> None:
        parts = stream_parts(source, self.split, self.fractions, self.seed)
        for name in self.fractions:
            share, split = parts[name]
            encoded = self._load(share, source.name, split)
            self.subsets[name].append(Subset(source.name, encoded, np.arange(len(encoded))))
        assert self.batch_size is not None
        self._stream = Stream(
            *parts["train"],
            self.encoder,
            batch_size=self.batch_size,
            num_epochs=self.num_epochs,
            seed=self.seed,
            num_rows=self.num_rows,
            on_bad_row=self.on_bad_row,
        )
        self._note(f"{source.name}/{parts['train'][1]}, streamed", self._stream.report)

    def _load(self, source: Source, name: str, split: str) -> EncodedSplit:
        encoded = load_encoded(source, split, self.encoder, on_bad_row=self.on_bad_row, num_rows=self.num_rows)
        self._note(f"{name}/{split}", encoded)
        return encoded

    def _note(self, name: str, read: EncodedSplit | ReadReport) -> None:
        self.counts[name] = dict(read.counts)
        self.rejects += read.rejects
        log.info("%s: %s", name, ", ".join(f"{n} {c:,}" for n, c in read.counts.items()))

    def summary(self) -> dict[str, Any]:
        """Which data this is: sizes, a hash of the records of each source, and what reading did with the rows."""
        every = [subset for subsets in self.subsets.values() for subset in subsets]
        sizes = {split: {s.name: len(s) for s in subsets} for split, subsets in self.subsets.items()}
        fingerprints = {f"{s.name}/{s.encoded.split}": s.encoded.fingerprint for s in every}
        if stream := self._stream:
            sizes["train"] = {stream.source.name: stream.num_rows}
            # Of the files, not of the records: those are never all there.
            fingerprints[f"{stream.source.name}/{stream.split}"] = content_hash(stream.source, stream.split)
        return {"sizes": sizes, "fingerprints": fingerprints, "counts": self.counts}

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
        )

    def _loader(self, batches: Batches | Stream, sampler: BatchSampler | None) -> DataLoader:
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

    def state_dict(self) -> dict[str, int]:
        """Where training stands: the batches that the model has learnt from."""
        assert self.trainer is not None
        return {"step": self.trainer.fit_loop.epoch_loop.batch_progress.current.processed}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._resume_step = state["step"]
