"""Keys of rows, by which a test row is recognised among those that a model was trained on.

Texts are compared by their letters and digits alone (`text_key`): a row that was tokenised, cased, accented or
punctuated in another way has the same key. Each row has three:

- row: its knowledge and its response together;
- knowledge: before any cut. A row without knowledge has none;
- group: its name within its dataset and official split (dialogue 7 of one corpus is not dialogue 7 of another).
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faithkit.provenance.text_key import text_key
from faithkit.records import WHOLE_KNOWLEDGE, Example

NO_KEY = 0  # of a text that is empty

_SIZE = 8  # bytes of a key

Keys = NDArray[np.uint64]


class RowKeys(NamedTuple):
    """The keys of some rows, each [rows]."""

    row: Keys
    knowledge: Keys
    group: Keys


def row_keys(examples: Iterable[Example]) -> RowKeys:
    """Computes the keys of examples, which may be of any number: none is held."""
    digests = bytearray()
    for example in examples:
        knowledge = _shortened(example.meta.get(WHOLE_KNOWLEDGE, example.knowledge))
        response = _shortened(example.response)
        digests += _digest(knowledge, response) if knowledge or response else bytes(_SIZE)
        digests += _digest(knowledge) if knowledge else bytes(_SIZE)
        digests += _digest(example.source, example.split, example.group)
    return RowKeys(*np.frombuffer(bytes(digests), "<u8").reshape(-1, len(RowKeys._fields)).T)


def _shortened(text: str) -> str:
    """The text's key; what has no letter, such as an emoji, stands for itself."""
    return text_key(text) or text.strip()


def _digest(*parts: str) -> bytes:
    # A zero byte parts them: "ab" and "c" are not "a" and "bc".
    return hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=_SIZE).digest()
