"""Divides rows into splits by group, and finds texts that occur in two splits, exactly or nearly.

Near duplicates share at least a given share of their runs of three words (Jaccard), estimated by MinHash (Broder 1997)
and found by the locality-sensitive hashing of `datasketch`. Up to `MAX_TEXTS` distinct texts of the held-out splits are
indexed, and the training split is streamed past them, so memory does not grow with it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from data_modules.encoding.encoding_cache import group_hash
from data_modules.splits import divide_groups
from faithkit.arguments import check_number
from faithkit.errors import UserError
from faithkit.inference.decoding import seed_of
from faithkit.words import unicode_words

MAX_TEXTS = 50_000
MAX_PAIRS = 20  # in a report
RUN_LENGTH = 3  # words
PERMUTATIONS = 64
TRAIN = "train"


@dataclass(frozen=True, slots=True)
class Division:
    """Divides groups into splits; the rest is `train`. A group's split depends on its name and the seed alone.

    Args:
        fractions: Shares of the groups by split.
    """

    fractions: Mapping[str, float]
    seed: int = 0

    def split_of(self, group: str) -> str:
        """Gives the split of a group."""
        # Salted, because training divides groups by their plain hashes: the same ones would leave no validation set.
        salted = group_hash(f"construction:{group}")
        found = divide_groups(np.array([salted], np.uint64), self.fractions, self.seed)
        return next(name for name, rows in found.items() if len(rows))


@dataclass(frozen=True, slots=True)
class TextInSplit:
    """A text of a group (a dialogue, a source) in a split."""

    split: str
    group: str
    text: str


@dataclass(slots=True)
class SharedTexts:
    """Texts that occur in two splits.

    Args:
        lines: Named counts.
        pairs: The closest near duplicates: both groups, the estimated share, both texts.
    """

    lines: dict[str, int] = field(default_factory=dict)
    pairs: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Converts to the form of the manifest."""
        return {**self.lines, "pairs": self.pairs}


def find_shared_texts(texts: Callable[[], Iterator[TextInSplit]], near: float | None) -> SharedTexts:
    """Counts the held-out texts that the training split also contains, exactly or nearly.

    Args:
        texts: Reads all texts; it is called twice.
        near: The share that near duplicates have in common; None finds equal texts only.

    Raises:
        UserError: `datasketch` is not installed.
    """
    held_out: dict[int, TextInSplit] = {}
    for one in texts():
        if one.split != TRAIN and len(held_out) < MAX_TEXTS:
            held_out.setdefault(_key(one.text), one)
    index = None if near is None else _build_index(held_out, near)
    equal: set[int] = set()
    close: dict[int, dict[str, Any]] = {}
    for one in texts():
        if one.split != TRAIN:
            continue
        key = _key(one.text)
        if key in held_out:
            equal.add(key)
        elif index is not None:
            for other, share in index.query(one.text):
                if share > close.get(other, {"share": 0.0})["share"]:
                    pair = {"share": share, "train": one.group, "held_out": held_out[other].group}
                    close[other] = {**pair, "texts": [one.text[:200], held_out[other].text[:200]]}
    found = SharedTexts({"different texts held out": len(held_out), "of them in train, word for word": len(equal)})
    if near is not None:
        found.lines[f"of them in train nearly, a share of {near}"] = len(close.keys() - equal)
    found.pairs = sorted((close[key] for key in close.keys() - equal), key=lambda pair: -pair["share"])[:MAX_PAIRS]
    return found


def _key(text: str) -> int:
    return seed_of(" ".join(unicode_words(text)), size=8)


def _build_index(held_out: Mapping[int, TextInSplit], near: float) -> "_MinHashIndex":
    check_number("pipeline.near_duplicates", near, 0.1, 1)
    try:
        import datasketch
    except ImportError as error:
        hint = "pip install '.[construction]', or pipeline.near_duplicates=null"
        raise UserError("near duplicates are found by the package datasketch", hint=hint) from error
    return _MinHashIndex(datasketch, held_out, near)


class _MinHashIndex:
    """Indexes held-out texts by their MinHashes."""

    def __init__(self, datasketch: Any, held_out: Mapping[int, TextInSplit], near: float):
        self.datasketch, self.near = datasketch, near
        self.index = datasketch.MinHashLSH(threshold=near, num_perm=PERMUTATIONS)
        self.hashes = {key: self._hash(one.text) for key, one in held_out.items()}
        for key, hashed in self.hashes.items():
            self.index.insert(key, hashed)

    def _hash(self, text: str) -> Any:
        words = unicode_words(text)
        runs = {" ".join(words[i : i + RUN_LENGTH]) for i in range(max(1, len(words) - RUN_LENGTH + 1))}
        hashed = self.datasketch.MinHash(num_perm=PERMUTATIONS)
        hashed.update_batch([run.encode(errors="surrogatepass") for run in runs])
        return hashed

    def query(self, text: str) -> Iterator[tuple[int, float]]:
        """Yields the held-out texts that share enough with a text, with the estimated share."""
        hashed = self._hash(text)
        for key in self.index.query(hashed):
            share = float(hashed.jaccard(self.hashes[key]))
            if share >= self.near:
                yield key, round(share, 3)
