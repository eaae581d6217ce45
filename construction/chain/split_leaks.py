"""Divides rows into splits by group, and finds texts that occur in two splits, exactly or nearly.

Near duplicates share at least a given share of their runs of three words (Jaccard). Up to `MAX_TEXTS` distinct texts of
the held-out splits are indexed, and the training split is streamed past them, so memory does not grow with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from construction.chain.steps import CHUNK_SIZE, batched
from data_modules.splits import divide_groups
from faithkit.inference.text import seed_of
from faithkit.provenance.row_keys import group_hash
from faithkit.words import unicode_words

MAX_TEXTS = 50_000
MAX_PAIRS = 20  # in a report
RUN_LENGTH = 3  # words
TRAIN, PAIRS = "train", "pairs"


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


def find_shared_texts(texts: Callable[[], Iterator[TextInSplit]], near: float | None) -> dict[str, Any]:
    """Counts the held-out texts that the training split also contains, exactly or nearly.

    Returns:
        Named counts, and `pairs`: the closest near duplicates with their groups, their share and their texts.

    Args:
        texts: Reads all texts; it is called twice.
        near: The share that near duplicates have in common; None finds equal texts only.
    """
    held_out: dict[int, TextInSplit] = {}
    for one in texts():
        if one.split != TRAIN and len(held_out) < MAX_TEXTS:
            held_out.setdefault(_key(one.text), one)
    index = _RunIndex(held_out, near) if near is not None and held_out else None
    equal: set[int] = set()
    close: dict[int, dict[str, Any]] = {}
    for chunk in batched((one for one in texts() if one.split == TRAIN), CHUNK_SIZE):
        keys = [_key(one.text) for one in chunk]
        equal.update(held_out.keys() & keys)
        others = [one for one, key in zip(chunk, keys, strict=True) if key not in held_out]
        for number, other, share in index.query([one.text for one in others]) if index and others else ():
            if share > close.get(other, {"share": 0.0})["share"]:
                one = others[number]
                pair = {"share": share, "train": one.group, "held_out": held_out[other].group}
                close[other] = {**pair, "texts": [one.text[:200], held_out[other].text[:200]]}
    found: dict[str, Any] = {"different texts held out": len(held_out), "of them in train, word for word": len(equal)}
    pairs = sorted((close[key] for key in close.keys() - equal), key=lambda pair: -pair["share"])
    if near is not None:
        found[f"of them in train nearly, a share of {near}"] = len(pairs)
    return {**found, PAIRS: pairs[:MAX_PAIRS]}


def _key(text: str) -> int:
    return seed_of(" ".join(unicode_words(text)), size=8)


def _runs(text: str) -> set[str]:
    words = unicode_words(text)
    return {" ".join(words[i : i + RUN_LENGTH]) for i in range(max(1, len(words) - RUN_LENGTH + 1))}


class _RunIndex:
    """Indexes held-out texts by their runs of words, as a sparse matrix of texts and runs."""

    def __init__(self, held_out: Mapping[int, TextInSplit], near: float):
        from sklearn.feature_extraction.text import HashingVectorizer

        options = {"binary": True, "norm": None, "alternate_sign": False}
        self.keys, self.near = list(held_out), near
        self.vectorizer = HashingVectorizer(analyzer=_runs, n_features=2**22, **options)  # two runs rarely have one
        self.matrix = self.vectorizer.transform([one.text for one in held_out.values()])
        self.sizes = self.matrix.getnnz(axis=1)

    def query(self, texts: Sequence[str]) -> Iterator[tuple[int, int, float]]:
        """Yields the pairs that share enough: the place of a text, the key of the held-out text, and the share."""
        rows = self.vectorizer.transform(texts)
        shared = (rows @ self.matrix.T).tocoo()
        shares = shared.data / (rows.getnnz(axis=1)[shared.row] + self.sizes[shared.col] - shared.data)
        for place in np.flatnonzero(shares >= self.near).tolist():
            yield int(shared.row[place]), self.keys[shared.col[place]], round(float(shares[place]), 3)
