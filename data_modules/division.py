"""Which rows of which source train, validate and test."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.records import Example
from data_modules.cache import EncodedSplit
from data_modules.source import SPLITS, Source
from data_modules.streaming import divide_groups

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
        raise UserError(f"only is {only!r} in a part of data.parts", mend="use train, test or null")
    if not getattr(source, "train_only", False):
        return only
    if only == "test":
        raise UserError(f"{source.name} has weak labels: nothing can be tested on them", mend="leave out only: test")
    return "train"


def divide(
    source: Source,
    load: Load,
    name: str,
    *,
    weight: float = 1.0,
    only: str | None = None,
    split: str | None = None,
    fold: tuple[int, int] | None = None,
    fractions: Mapping[str, float],
    seed: int,
) -> dict[str, Subset]:
    """The subsets that a source gives: its official splits, and by group what it has no official split for.

    Args:
        only: All of it for this use.
        split: Reads this official split alone and divides it.
        fold: For cross-validation (this part, of so many) of the rows that would else be divided: it is the test set.
        fractions: Shares of the groups for validation and test.
    """
    official = list(source.files()) or list(SPLITS)
    if only:
        encoded = load(only if only in official else next(s for s in ("all", *official) if s in official))
        return {only: Subset(name, encoded, np.arange(len(encoded)), weight)}
    if fold is not None:
        encoded = load(split or next((s for s in ("all", "train") if s in official), official[0]))
        test = fold_of(encoded.groups, fold[1]) == fold[0]
        others = np.flatnonzero(~test)
        held = first_groups(encoded.groups[others], fractions["validation"], seed)
        parts = {"train": others[~held], "validation": others[held], "test": np.flatnonzero(test)}
        return {s: Subset(name, encoded, indices, weight) for s, indices in parts.items()}
    if split is not None:
        encoded = load(split)
        rows = divide_groups(encoded.groups, fractions, seed)
        return {s: Subset(name, encoded, indices, weight) for s, indices in rows.items()}
    base = next((s for s in ("train", "all", "validation", "test") if s in official), None)
    if base is None:
        raise UserError(f"{source.name} has no split to train on", mend=f"set data.split to one of {official}")
    loaded = {s: load(s) for s in dict.fromkeys((*SPLITS, base)) if s in official}
    missing = {s: f for s, f in fractions.items() if s not in loaded or s == base}
    rows = divide_groups(loaded[base].groups, missing, seed)
    result = {s: Subset(name, loaded[base], indices, weight) for s, indices in rows.items()}
    whole = [s for s in fractions if s not in result]  # official splits
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
