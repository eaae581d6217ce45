"""Recognises copies of a text by its letters and digits alone."""

import re
from functools import cache
from itertools import groupby
from unicodedata import category, normalize

# Accents, whatever the letter, and variants of glyphs. All other marks are letters of their script: vowel signs of
# Hindi, points of Arabic, the voicing of Japanese. Without these, different words would have one key.
_ACCENTS = re.compile("[\u0300-\u036f\u180b-\u180f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]")
_LAST_MARK = 0x1F000  # above it only variants of glyphs are left
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
    """Finds what does not count, underscores aside; made when a text first needs it: that takes time."""
    marks = [code for code in range(0x300, _LAST_MARK) if category(chr(code)) in ("Mn", "Mc")]
    kept = [code for code in marks if not _ACCENTS.match(chr(code))]
    runs = (list(run) for _, run in groupby(enumerate(kept), lambda pair: pair[1] - pair[0]))
    ranges = "".join(f"{chr(run[0][1])}-{chr(run[-1][1])}" for run in runs)
    return re.compile(rf"[^\w{ranges}]+")
