"""Recognises copies of a text by its letters and digits alone."""

import re
from functools import cache
from unicodedata import normalize

from faithkit.words import mark_ranges

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
