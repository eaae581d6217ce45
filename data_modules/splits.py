"""Which rows of which source train, validate and test."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.cache import EncodedSplit
from data_modules.reading.dataset import SPLITS, Source
from data_modules.streaming import divide_groups
from faithkit.errors import UserError
from faithkit.records import Example

Load = Callable[[str], EncodedSplit]  # reads one official split


@dataclass(frozen=True)
class Subset:
    """Rows of an encoded split; `name` is that of their part in the mix."""

    name: str
    encoded: EncodedSplit
    indices: NDArray[np.int64]
    weight: float = 1.0

    def __len__(self) -> int:
        return len(self.indices)

    def examples(self) -> list[Example]:
        return list(self.encoded.examples(self.indices))


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that stood before: two parts of a mix may be of one dataset."""
    return [f"{name}-{names[:i].count(name) + 1}" if name in names[:i] else name for i, name in enumerate(names)]


def use_of(source: Source, only: str | None) -> str | None:
    """What alone a source is for, if anything: weak labels are for training."""
    if only not in (None, "train", "test"):
        raise UserError(f"only is {only!r} in a part of data.parts", hint="use train, test or null")
    if not getattr(source, "train_only", False):
        return only
    if only == "test":
        raise UserError(f"{source.name} has weak labels: nothing can be tested on them", hint="leave out only: test")
    return "train"


@dataclass(frozen=True)
class SplitPlan:
    """How official splits become training, validation and test.

    Args:
        split: This official split alone is read and divided; None uses the official splits, and divides by group what
            has none.
        fold: For cross-validation (this part, of so many) of the rows that would else be divided: it is the test set.
        fractions: Shares of the groups for validation and test.
        num_rows: Of each official split the first rows alone.
    """

    fractions: Mapping[str, float]
    seed: int
    split: str | None = None
    fold: tuple[int, int] | None = None
    num_rows: int | None = None

    @property
    def is_of_one_split(self) -> bool:
        return self.fold is not None or self.split is not None

    def base(self, official: Sequence[str]) -> str | None:
        """The official split that is divided; None where there is nothing to train on."""
        if self.split is not None:
            return self.split
        if self.fold is not None:
            return next((s for s in ("all", "train") if s in official), official[0])
        return next((s for s in ("train", "all", "validation", "test") if s in official), None)

    def rows(self, official: Sequence[str], split: str, groups: NDArray[np.uint64]) -> dict[str, NDArray[np.int64]]:
        """The rows of each part of an official split, given the groups of its rows."""
        if split != self.base(official):
            return {split: np.arange(len(groups))}
        if self.fold is not None:
            test = fold_of(groups, self.fold[1]) == self.fold[0]
            others = np.flatnonzero(~test)
            held = first_groups(groups[others], self.fractions["validation"], self.seed)
            return {"train": others[~held], "validation": others[held], "test": np.flatnonzero(test)}
        own = self.fractions.items()
        missing = {s: f for s, f in own if self.split is not None or s not in official or s == split}
        return divide_groups(groups, missing, self.seed)


def divide(
    source: Source, load: Load, name: str, split_plan: SplitPlan, *, weight: float = 1.0, only: str | None = None
) -> dict[str, Subset]:
    """The subsets that a source gives: its official splits, and by group what it has no official split for.

    Args:
        only: All of it for this use.
    """
    official = list(source.files()) or list(SPLITS)
    if only:
        encoded = load(only if only in official else next(s for s in ("all", *official) if s in official))
        return {only: Subset(name, encoded, np.arange(len(encoded)), weight)}
    base = split_plan.base(official)
    if base is None:
        raise UserError(f"{source.name} has no split to train on", hint=f"set data.split to one of {official}")
    read = [base] if split_plan.is_of_one_split else [s for s in (*SPLITS, base) if s in official]
    loaded = {s: load(s) for s in dict.fromkeys(read)}
    rows = split_plan.rows(official, base, loaded[base].groups)
    result = {s: Subset(name, loaded[base], indices, weight) for s, indices in rows.items()}
    whole = [s for s in split_plan.fractions if s in loaded and s not in result]
    return result | {s: Subset(name, loaded[s], np.arange(len(loaded[s])), weight) for s in whole}


def fold_of(groups: NDArray[np.uint64], num_folds: int) -> NDArray[np.int64]:
    """Which fold each row is in: groups in the order of their hashes, dealt out in turn."""
    _, place = np.unique(groups, return_inverse=True)
    return place % num_folds


def first_groups(groups: NDArray[np.uint64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which rows belong to this share of the groups: exactly, where `divide_groups` leaves the number to chance."""
    names, place = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    return order[place] < round(fraction * len(names))


def keep_apart(weak: Subset, held: Sequence[Subset]) -> Subset:
    """Weak examples less those of groups that are held out: sources that name a group alike may share one."""
    groups = [subset.encoded.groups[subset.indices] for subset in held]
    if not groups:
        return weak
    return replace(weak, indices=weak.indices[~np.isin(weak.encoded.groups[weak.indices], np.concatenate(groups))])
