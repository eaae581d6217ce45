"""Decides which entities can replace each other in a sentence so that it stays grammatical."""

import re
from typing import NamedTuple

from data_modules.negatives.entities import Entity
from faithkit.words import cased_words, unicode_words

NUMERIC = {"CARDINAL", "ORDINAL", "QUANTITY", "PERCENT", "MONEY", "DATE", "TIME"}
MAX_LENGTH = 60  # characters: longer ones are sentences that were mistaken for titles

_NUMBERS = "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty hundred dozen"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth"
_MONTHS = "january february march april may june july august september october november december"
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
_SEASONS = "spring summer autumn fall winter"
WORD_CLASSES = {
    word: name
    for name, words in (("n", _NUMBERS), ("o", _ORDINALS), ("m", _MONTHS), ("d", _DAYS), ("s", _SEASONS))
    for word in words.split()
}
_ARTICLE = re.compile(r"(?:the|a|an)\s+", re.IGNORECASE)
_BEFORE = re.compile(r"\b(the|a|an)\s+$", re.IGNORECASE)
_VOWEL = re.compile(r"[aeiou]|8|1[18](?!\d)", re.IGNORECASE)  # eight, eleven and eighteen too
_SENTENCE_START = re.compile(r"(?:^|[.!?]\s+)\W*$")
_ALIASES = (
    {"us", "usa", "america", "unitedstates", "unitedstatesofamerica", "states"},
    {"uk", "britain", "greatbritain", "unitedkingdom", "england"},
)


class Slot(NamedTuple):
    """The form that a replacement needs: entities of one slot can replace each other in a sentence."""

    label: str
    form: str
    article: str  # the article before it, if any: another entity may need another one, or none


class Mention(NamedTuple):
    """An entity's occurrence in a text, without article and possessive."""

    start: int
    end: int
    text: str
    slot: Slot
    opens_sentence: bool


def mention(text: str, entity: Entity) -> Mention | None:
    """Makes the mention of an entity, or returns None where its form is unclear."""
    start, end = entity.start, entity.end
    if found := _ARTICLE.match(text, start, end):
        start = found.end()
    surface = text[start:end].removesuffix("'s").removesuffix("’s").removesuffix("'").rstrip()
    whole = surface[:1].isalnum() and (surface[-1:].isalnum() or surface[-1:] in ".%") and "\n" not in surface
    if not whole or not 2 <= len(surface) <= MAX_LENGTH or surface.lower() == "one":  # "one of the": no number
        return None
    before = _BEFORE.search(text[:start])
    article = before.group(1).lower() if before else ""
    if article in ("a", "an"):
        article = "an" if _VOWEL.match(surface) else "a"
    slot = Slot(entity.label, form(surface, entity.label), article)
    return Mention(start, start + len(surface), surface, slot, bool(_SENTENCE_START.search(text[: entity.start])))


def form(surface: str, label: str) -> str:
    """Describes the form of an entity: a pattern for numbers and times; for names, one word or many, and plural."""
    if label in NUMERIC:
        words = re.sub(r"\d", "9", surface.lower()).replace("-", " ").split()
        return " ".join(WORD_CLASSES.get(word.rstrip(",."), word) for word in words)
    many = "many" if " " in surface else "one"
    return f"{many}, plural" if label == "NORP" and surface.endswith("s") else many


def are_distinct(one: str, other: str, label: str) -> bool:
    """Tells whether two entities of one slot certainly mean different things."""
    first, second = (frozenset(unicode_words(text)) for text in (one, other))
    if label in NUMERIC:
        return first != second
    keys = ["".join(unicode_words(text)) for text in (one, other)]
    if any(keys[0] in same and keys[1] in same for same in _ALIASES):
        return False
    initials = ["".join(word[0] for word in cased_words(text)).lower() for text in (one, other)]
    return not (first & second or keys[0] == initials[1] or keys[1] == initials[0])
