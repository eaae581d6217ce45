"""Divides the rows of a dataset into training, validation and test.

Rows of one group (a dialogue, a document) stay together, unless rows are divided by themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import EncodedSplit, Subset
from data_modules.reading.dataset import SPLITS, FilteringSource, Source, describe_files
from faithkit.errors import UserError
from faithkit.provenance.row_keys import group_hash
from faithkit.records import Example


@dataclass(frozen=True)
class SplitPlan:
    """A division of official splits into training, validation and test.

    Args:
        fractions: Shares of the groups for validation and test, if there is no official split for them.
        seed: Another seed is another division into groups; cross-validation's folds do not depend on it.
        split: Reads this official split alone and divides it; None uses the official splits.
        fold: For cross-validation `(fold, num_folds)`: of so many parts by group this one, counted from 0, is the test
            set.
        num_rows: The first rows of each official split alone, counted after filtering.
        by_rows: Divides rows in place of groups. Then a group can be in several parts, so test figures are too high; it
            is for comparison with published figures.
    """

    fractions: Mapping[str, float] = field(default_factory=lambda: {"validation": 0.1, "test": 0.1})
    seed: int = 0
    split: str | None = None
    fold: tuple[int, int] | None = None
    num_rows: int | None = None
    by_rows: bool = False

    def __post_init__(self) -> None:
        if self.fold is None:
            return
        fold, num_folds = self.fold
        if num_folds < 2 or not 0 <= fold < num_folds:
            problem = f"data.fold={fold} with data.num_folds={num_folds}"
            raise UserError(problem, hint="use a fold from 0 to num_folds - 1, of at least 2")

    def base(self, official: Sequence[str]) -> str | None:
        """Returns the official split that is divided; None if there is nothing to train on."""
        if self.split is not None:
            return self.split
        if self.fold is not None:
            return next((s for s in ("all", "train") if s in official), official[0])
        return next((s for s in ("train", "all", "validation", "test") if s in official), None)

    def rows(self, official: Sequence[str], split: str, groups: NDArray[np.uint64]) -> dict[str, NDArray[np.int64]]:
        """Returns the rows of an official split that go to training, validation and test.

        Args:
            groups: The hash of each row's group.
        """
        if split != self.base(official):
            return {split: np.arange(len(groups))}
        if self.by_rows:
            shares = self.missing(official, split)  # exact ones; what they leave is `train`
            order = np.random.default_rng(self.seed).permutation(len(groups))
            bounds = [round(len(groups) * share) for share in np.cumsum(list(shares.values()))]
            parts = zip([*shares, "train"], np.split(order, bounds), strict=True)
            return {name: np.sort(rows) for name, rows in parts}
        if self.fold is None:
            return divide_groups(groups, self.missing(official, split), self.seed)
        fold, num_folds = self.fold
        # Groups in the order of their hashes, dealt out in turn.
        in_test = np.unique(groups, return_inverse=True)[1] % num_folds == fold
        others = np.flatnonzero(~in_test)
        # An exact share of the other groups, where `divide_groups` leaves it to chance.
        names, place = np.unique(groups[others], return_inverse=True)
        order = np.random.default_rng(self.seed).permutation(len(names))
        in_validation = order[place] < round(self.fractions["validation"] * len(names))
        return {
            "train": others[~in_validation],
            "validation": others[in_validation],
            "test": np.flatnonzero(in_test),
        }

    def missing(self, official: Sequence[str], base: str) -> dict[str, float]:
        """Returns the shares of the base split that replace missing official splits."""
        return {
            split: fraction
            for split, fraction in self.fractions.items()
            if self.split is not None or split not in official or split == base
        }


@dataclass(frozen=True)
class MixPart:
    """One dataset of a mix.

    Args:
        weight: In training: 2 takes each row twice an epoch, 0.5 another half of the rows every epoch.
        name: In reports and files; None takes the dataset's.
        only: `train` or `test` if the dataset is used for that alone. Weak labels are always for training alone.
    """

    source: Source
    weight: float = 1.0
    name: str | None = None
    only: str | None = None

    def __post_init__(self) -> None:
        if self.only not in (None, "train", "test"):
            raise UserError(f"only is {self.only!r} in a part of data.parts", hint="use train, test or null")
        if self.source.train_only:
            if self.only == "test":
                hint = "leave out only: test"
                raise UserError(f"{self.source.name} has weak labels and cannot be a test set", hint=hint)
            object.__setattr__(self, "only", "train")


def divide(
    source: Source,
    load: Callable[[str], EncodedSplit],
    name: str,
    split_plan: SplitPlan,
    *,
    weight: float = 1.0,
    only: str | None = None,
) -> dict[str, Subset]:
    """Returns a dataset's rows for training, validation and test: its official splits, the missing ones taken by group.

    Args:
        load: Reads one official split.
        only: All rows are for this use.
    """
    official = source.split_names()
    if only:
        encoded = load(only if only in official else next(s for s in ("all", *official) if s in official))
        return {only: Subset(name, encoded, np.arange(len(encoded)), weight)}
    base = split_plan.base(official)
    if base is None:
        raise UserError(
            f"{source.name} has no split to train on",
            hint=f"set data.split to one of {official}{describe_files(source, 'train')}",
        )
    reads_one = split_plan.fold is not None or split_plan.split is not None
    read = [base] if reads_one else [s for s in (*SPLITS, base) if s in official]
    loaded = {s: load(s) for s in dict.fromkeys(read)}
    divided = split_plan.rows(official, base, loaded[base].groups)
    subsets = {s: Subset(name, loaded[base], rows, weight) for s, rows in divided.items()}
    whole = [s for s in split_plan.fractions if s in loaded and s not in subsets]
    return subsets | {s: Subset(name, loaded[s], np.arange(len(loaded[s])), weight) for s in whole}


def divide_groups(
    groups: NDArray[np.uint64], fractions: Mapping[str, float], seed: int
) -> dict[str, NDArray[np.int64]]:
    """Divides rows by the hashes of their groups; what the fractions leave is `train`.

    Each group is drawn by itself: the rest of the corpus and its order change nothing.
    """
    mixed = groups ^ np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    # Multiplying by an odd constant spreads the bits; the upper 53 make a uniform number in 0..1.
    place = (((mixed * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)).astype(np.float64)) / 2**53
    rows, low = {}, 0.0
    for name, fraction in fractions.items():
        high = low + fraction
        rows[name] = np.flatnonzero((place >= low) & (place < high))
        low = high
    rows["train"] = np.flatnonzero(place >= low)
    return rows


def part_of(source: Source, part: str, fractions: Mapping[str, float], seed: int) -> Source:
    """Returns the groups of a dataset's split that belong to one part of a division, as a dataset."""
    drops = partial(_drops_other_parts, part=part, fractions=fractions, seed=seed)
    return FilteringSource(source, drops, {"part": [part, dict(fractions), seed]})


def _drops_other_parts(example: Example, *, part: str, fractions: Mapping[str, float], seed: int) -> str | None:
    group = np.array([group_hash(example.group)], np.uint64)
    return None if len(divide_groups(group, fractions, seed)[part]) else "in another part of the division"


def stream_parts(source: Source, split_plan: SplitPlan) -> dict[str, tuple[Source, str]]:
    """Training, validation and test of a dataset that is streamed, each as a source and the official split to read.

    Raises:
        UserError: There is nothing to train on, or a corpus without files would have to be divided.
    """
    official = source.split_names()
    base = split_plan.split or next((name for name in ("train", "all") if name in official), None)
    if base is None or base not in official:
        hint = f"set data.split: {', '.join(official)}"
        raise UserError(f"no split {base or 'train'!r} to stream", place=source.path, hint=hint)
    missing = split_plan.missing(official, base)
    if missing and source.generated:
        raise UserError(f"{source.name} has no files: streaming cannot divide it", hint="set data.split=null")
    parts = {name: (source, name) for name in split_plan.fractions if name not in missing}
    for name in (*missing, "train"):
        parts[name] = (part_of(source, name, missing, split_plan.seed) if missing else source, base)
    return parts
