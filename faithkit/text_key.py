"""Recognises copies of a text by its letters and digits alone."""

import re
import unicodedata

_OTHERS = re.compile(r"[\W_]+")
# Many times faster where a text is ASCII, as most are.
_LOWER = bytes(range(128)).lower() + bytes(range(128, 256))
_ASCII_OTHERS = bytes(code for code in range(128) if not chr(code).isalnum())


def text_key(text: str) -> str:
    """Reduces a text to lower-case letters and digits without accents.

    Copies of one text that were tokenised differently have the same key.
    """
    if text.isascii():
        return text.encode().translate(_LOWER, _ASCII_OTHERS).decode()
    decomposed = unicodedata.normalize("NFKD", text)  # "é" becomes "e" and an accent, which is no letter
    return _OTHERS.sub("", decomposed.lower())
