"""Converts offsets between a text and what Label Studio shows of it.

Label Studio's Text tag counts code points from 0, as Python does; releases before 1.5 counted UTF-16 units, so every
emoji before a span moved it by one. A browser shows "\\r\\n" and "\\r" as one line break each, so such a text has other
offsets there than here. Therefore tasks carry the text as a browser shows it, and offsets are converted back.

>>> text = "one\\r\\ntwo"
>>> shown_text(text), to_shown(text, 5), to_original(text, 4)
('one\\ntwo', 4, 5)
>>> from_utf16("🙂 hi", 3)
2
"""

import re

_BREAK = re.compile("\r\n?")
_NUL, _REPLACEMENT = "\0", "\ufffd"  # HTML has no NUL: a browser shows this in its place


def shown_text(text: str) -> str:
    """Rewrites a text as a browser shows it: with "\\n" as the only line break, and without NUL."""
    return _BREAK.sub("\n", text).replace(_NUL, _REPLACEMENT)


def to_shown(text: str, offset: int) -> int:
    """Converts an offset of the text to one of the shown text; inside "\\r\\n" it becomes that of the line break."""
    return offset - text.count("\r\n", 0, offset)


def to_original(text: str, offset: int) -> int:
    """Reverses `to_shown`: an offset behind a line break stays behind the whole of it."""
    removed = 0
    for match in re.finditer("\r\n", text):
        if match.start() - removed >= offset:
            break
        removed += 1
    return offset + removed


def from_utf16(text: str, offset: int) -> int | None:
    """Converts an offset in UTF-16 units to characters; None inside a character and beyond the text."""
    units = 0
    for place, character in enumerate(text):
        if units >= offset:
            return place if units == offset else None
        units += 2 if ord(character) > 0xFFFF else 1
    return len(text) if units == offset else None


def same_quote(quoted: str, text: str) -> bool:
    """Compares a span's text with what Label Studio quotes of it.

    It may write a line break as the two characters "\\\\n", and leave out spaces that a browser does not show.
    """
    return _visible(quoted.replace("\\n", "\n")) == _visible(text.replace("\\n", "\n"))


def _visible(text: str) -> str:
    return "".join(text.split())
