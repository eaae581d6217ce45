"""Keys of rows, by which a test row is recognised among those that a model was trained on.

Texts are compared by their letters and digits alone (`text_key`): a row that was tokenised, cased, accented or
punctuated in another way has the same key. Each row has three:

- row: its knowledge and its response together;
- knowledge: before any cut. A row without knowledge has none;
- group: its name within its dataset and official split (dialogue 7 of one corpus is not dialogue 7 of another).
"""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import normalize

from faithkit.records import WHOLE_KNOWLEDGE, Example
from faithkit.words import mark_ranges

if TYPE_CHECKING:  # the command line is checked before numpy is loaded
    import numpy as np
    from numpy.typing import NDArray

NO_KEY = 0  # of a text that is empty

_SIZE = 8  # bytes of a key


class RowKeys(NamedTuple):
    """The keys of some rows, each [rows]."""

    row: "NDArray[np.uint64]"
    knowledge: "NDArray[np.uint64]"
    group: "NDArray[np.uint64]"


def group_hash(group: str) -> int:
    """Returns a group's name as a number that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(group.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def row_keys(examples: Iterable[Example]) -> RowKeys:
    """Computes the keys of examples, which may be of any number: none is held."""
    import numpy as np

    digests = bytearray()
    for example in examples:
        texts = example.meta.get(WHOLE_KNOWLEDGE, example.knowledge), example.response
        # The key of a text, or the text itself if it has no letter, such as an emoji.
        knowledge, response = (text_key(text) or text.strip() for text in texts)
        digests += _digest(knowledge, response) if knowledge or response else bytes(_SIZE)
        digests += _digest(knowledge) if knowledge else bytes(_SIZE)
        digests += _digest(example.source, example.split, example.group)
    return RowKeys(*np.frombuffer(bytes(digests), "<u8").reshape(-1, len(RowKeys._fields)).T)


def _digest(*parts: str) -> bytes:
    # A zero byte parts them: "ab" and "c" are not "a" and "bc".
    return hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=_SIZE).digest()


# Accents, whatever the letter, and variants of glyphs. All other marks are letters of their script: vowel signs of
# Hindi, points of Arabic, the voicing of Japanese. Without these, different words would have one key.
_ACCENTS = re.compile("[\u0300-\u036f\u180b-\u180f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]")
# Many times faster where a text is ASCII, as most are.
_LOWER = bytes(range(128)).lower() + bytes(range(128, 256))
_ASCII_OTHERS = bytes(code for code in range(128) if not chr(code).isalnum())


def text_key(text: str) -> str:
    """Reduces a text to lower-case letters and digits without accents; marks that are no accents stay.

    Copies of one text that were tokenised differently have the same key.
    """
    if text.isascii():
        return text.encode().translate(_LOWER, _ASCII_OTHERS).decode()
    decomposed = normalize("NFKD", text)  # "é" becomes "e" and an accent, which is no letter
    return _others().sub("", decomposed.lower().replace("_", ""))


@cache
def _others() -> re.Pattern[str]:
    """Finds what does not count, underscores aside."""
    return re.compile(rf"[^\w{mark_ranges(lambda mark: not _ACCENTS.match(mark))}]+")
