"""Finds texts in languages that a detector does not read, by their script and by function words.

A detector declares the languages that it reads by an attribute `languages`: ISO 639 codes, or `any`; without it, it
reads English. Scripts are found by letters, at least `MIN_LETTERS`; languages that share a script by the words of
`languages.toml`, in texts of at least `MIN_WORDS` words. What is not clear is never reported: the language of a short
text, of a list of names, or of a language that the table does not have.

>>> identify_language("Die Garantie gilt für zwei Jahre, und der Filter ist nicht dabei.")
'de'
>>> identify_language("El Niño, La Niña and the coast of Los Angeles") is None
True
"""

import logging
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import name

from faithkit.errors import UserError
from faithkit.words import unicode_words, word_set

ENGLISH, ANY = "en", "any"
WARN, STOP, IGNORE = "warn", "stop", "ignore"
ON_LANGUAGE = (WARN, STOP, IGNORE)
MIN_LETTERS = 8  # of the script that most letters have
MIN_WORDS = 8  # where function words decide
MIN_DIFFERENT = 2  # function words that English texts do not have: "de la Cruz" shows no language
MIN_SHARE = 0.2  # of the words
MIN_RATIO = 1.5  # to the function words of the languages that are expected
MIN_KANA = 0.1  # share in Japanese texts, which also have Chinese letters
MAX_CHARACTERS = 2000  # that are read of a text
HANI, KANA, LATIN = "Hani", "Kana", "Latn"
TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SCRIPTS, SINGLE, IN_NAMES = TABLE.pop("scripts"), TABLE.pop("single"), word_set(TABLE.pop("in_names"))
WORDS = {script: {code: word_set(words) for code, words in of_script.items()} for script, of_script in TABLE.items()}
SCRIPT_OF = {code: script for script, words in WORDS.items() for code in words} | {
    code: script for script, code in SINGLE.items()
}
log = logging.getLogger("faithkit")


def identify_language(text: str, expected: Collection[str] = (ENGLISH,)) -> str | None:
    """Identifies the language of a text if it is clearly none of the expected ones.

    Args:
        expected: ISO 639 codes, or `any`. Next to a code that the table does not have, nothing is clear.

    Returns:
        The code; `und-` and the script where several languages have it and none is clear; None for expected languages,
        and where it is not clear.
    """
    codes = {code.partition("-")[0].lower() for code in expected}
    if not codes <= SCRIPT_OF.keys():
        return None
    text = text[:MAX_CHARACTERS]
    script = _find_script(text)
    if script is None:
        return None
    is_expected = any(SCRIPT_OF[code] == script for code in codes)
    if (single := SINGLE.get(script)) is not None:
        return None if is_expected else single
    words = unicode_words(text)
    found = {code: [word for word in words if word in known] for code, known in WORDS.get(script, {}).items()}
    most = max((len(found[code]) for code in codes & found.keys()), default=0)
    best = max(found, key=lambda code: (len(found[code]), code), default=None)
    if not is_expected and script != LATIN:  # it is none of the expected languages, whichever it is
        return best if best and len(found[best]) >= MIN_DIFFERENT else f"und-{script}"
    if best is None or best in codes or len(words) < MIN_WORDS:
        return None
    has_enough = len(found[best]) >= max(MIN_SHARE * len(words), MIN_RATIO * most)
    return best if has_enough and len(set(found[best]) - IN_NAMES) >= MIN_DIFFERENT else None


def _find_script(text: str) -> str | None:
    """Finds the script that most letters of a text have; None for few letters."""
    if text.isascii():
        return LATIN
    counts: Counter[str] = Counter()
    for letter, count in Counter(text).items():
        if letter.isalpha():
            counts[_script_of(letter)] += count
    kana, han = counts[KANA], counts[HANI]
    if kana > MIN_KANA * (kana + han):
        counts[KANA] += counts.pop(HANI, 0)
    script, most = counts.most_common(1)[0] if counts else ("", 0)
    return script if script and most >= MIN_LETTERS and 2 * most > counts.total() else None


@cache
def _script_of(letter: str) -> str:
    return str(SCRIPTS.get(name(letter, "").partition(" ")[0], ""))


def languages_of(detector: Any) -> tuple[str, ...]:
    """Returns the languages that a detector declares."""
    return tuple(getattr(detector, "languages", (ENGLISH,)))


def find_other_language(response: str, knowledge: str, languages: Collection[str]) -> str | None:
    """Identifies the language of a response, or else of its knowledge, if it is none of a detector's languages."""
    found = (identify_language(text, languages) for text in (response, knowledge))
    return next(filter(None, found), None)


def describe_other_languages(found: Iterable[str | None], languages: Sequence[str]) -> str:
    """Describes how many rows are in languages that a detector does not read; empty if none is."""
    counts = Counter(found)
    num_rows = counts.total()
    counts.pop(None, None)
    if not counts:
        return ""
    what, listed = "the text is", "".join(map(str, counts))
    if num_rows > 1:
        what = f"{counts.total():,} of {num_rows:,} rows ({100 * counts.total() / num_rows:.1f}%) are"
        listed = ", ".join(f"{code} {count:,}" for code, count in counts.most_common())
    return f"{what} in a language that the detector does not read: {listed}; it reads {', '.join(languages)}"


def report_other_languages(found: Iterable[str | None], languages: Sequence[str], on_language: str) -> None:
    """Logs a warning about rows in other languages, once, or stops.

    Raises:
        UserError: There is such a row, and `on_language` is `stop`.
    """
    if on_language == IGNORE or not (text := describe_other_languages(found, languages)):
        return
    if on_language == STOP:
        raise UserError(text, hint="choose a detector of this language, or on_language=warn")
    log.warning("%s", text)
