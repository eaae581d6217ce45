"""Finds texts that stand in two splits, word for word or nearly: what is learnt in one is then known in the other.

Near duplicates share at least a share (0.8, say) of their runs of three words (Jaccard), estimated by MinHash
(Broder 1997) and found by locality-sensitive hashing, of `datasketch`. The held-out splits are indexed, at most `MOST`
different texts of them, and the training split is read past them: memory does not grow with it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from faithkit.checks import check_number
from faithkit.errors import UserError
from faithkit.inference.decoding import seed_of
from faithkit.words import unicode_words

MOST = 50_000  # held-out texts that are compared for near duplicates
SHOWN = 20  # pairs that a report has
RUN = 3  # words in a row that are compared
PERMUTATIONS = 64
TRAIN = "train"


@dataclass(frozen=True, slots=True)
class TextInSplit:
    """A text of a group (a dialogue, a source) in a split."""

    split: str
    group: str
    text: str


@dataclass(slots=True)
class SharedTexts:
    """Texts that stand in two splits.

    Args:
        lines: Counts by what they count.
        pairs: Some near duplicates: both groups, the estimated share, both texts.
    """

    lines: dict[str, int] = field(default_factory=dict)
    pairs: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Gives the fields as the manifest has them."""
        return {**self.lines, "pairs": self.pairs}


def find_shared_texts(texts: Callable[[], Iterator[TextInSplit]], near: float | None) -> SharedTexts:
    """Counts the texts of held-out splits that the training split has too, and those that it nearly has.

    Args:
        texts: Reads all texts, each time anew.
        near: The share that near duplicates have in common; None looks for equal ones alone.

    Raises:
        UserError: `datasketch` is not installed.
    """
    held_out: dict[int, TextInSplit] = {}
    for one in texts():
        if one.split != TRAIN and len(held_out) < MOST:
            held_out.setdefault(_key(one.text), one)
    index = None if near is None else _index(held_out, near)
    equal: set[int] = set()
    close: dict[int, dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for one in texts():
        seen[one.split] += 1
        if one.split != TRAIN:
            continue
        key = _key(one.text)
        if key in held_out:
            equal.add(key)
        elif index is not None:
            for other, share in index.query(one.text):
                pair = {"share": share, "train": one.group, "held_out": held_out[other].group}
                if share > close.get(other, {"share": 0.0})["share"]:
                    close[other] = {**pair, "texts": [one.text[:200], held_out[other].text[:200]]}
    found = SharedTexts({"different texts held out": len(held_out), "of them in train, word for word": len(equal)})
    if near is not None:
        found.lines[f"of them in train nearly, a share of {near}"] = len(close.keys() - equal)
    found.pairs = sorted((close[key] for key in close.keys() - equal), key=lambda pair: -pair["share"])[:SHOWN]
    return found


def _key(text: str) -> int:
    return seed_of(" ".join(unicode_words(text)), size=8)


def _index(held_out: dict[int, TextInSplit], near: float) -> "_Index":
    check_number("pipeline.near_duplicates", near, 0.1, 1)
    try:
        import datasketch
    except ImportError as error:
        hint = "pip install '.[construction]', or pipeline.near_duplicates=null"
        raise UserError("near duplicates are found by the package datasketch", hint=hint) from error
    return _Index(datasketch, held_out, near)


class _Index:
    """Held-out texts by their MinHashes."""

    def __init__(self, datasketch: Any, held_out: dict[int, TextInSplit], near: float):
        self.datasketch, self.near = datasketch, near
        self.index = datasketch.MinHashLSH(threshold=near, num_perm=PERMUTATIONS)
        self.hashes = {key: self._hash(one.text) for key, one in held_out.items()}
        for key, own in self.hashes.items():
            self.index.insert(key, own)

    def _hash(self, text: str) -> Any:
        words = unicode_words(text)
        runs = {" ".join(words[i : i + RUN]) for i in range(max(1, len(words) - RUN + 1))}
        made = self.datasketch.MinHash(num_perm=PERMUTATIONS)
        made.update_batch([run.encode(errors="surrogatepass") for run in runs])
        return made

    def query(self, text: str) -> Iterator[tuple[int, float]]:
        """Yields the held-out texts that share enough with a text, with the estimated share."""
        own = self._hash(text)
        for key in self.index.query(own):
            share = float(own.jaccard(self.hashes[key]))
            if share >= self.near:
                yield key, round(share, 3)
