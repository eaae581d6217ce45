"""Splits English text into words with their kind and normal form, so that "20 mg" and "twenty milligrams" are equal.

| kind                              | examples                    | normal form                      |
|-----------------------------------|-----------------------------|----------------------------------|
| number                            | 1,500; fifteen hundred; 5 pm | 1500; 1500; 17:00                |
| unit, date                        | hrs, €; Sept                | hour, euro; september            |
| negation, quantifier, modal       | n't; every; might           | not; all; can                    |
| answer                            | Yes at the start            | yes                              |
| name, word                        | Danube; countries           | the stem: danub; country         |
| stop                              | the                         | the                              |

>>> [(word.kind, word.norm) for word in read_words("Yes, it lasts twenty-four months.")]
[('answer', 'yes'), ('stop', 'it'), ('word', 'last'), ('number', '24'), ('unit', 'month')]
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from data_modules.reading.formats import read_sections

NUMBER, UNIT, DATE, NAME, WORD = "number", "unit", "date", "name", "word"
NEGATION, QUANTIFIER, MODAL, ANSWER, STOP = "negation", "quantifier", "modal", "answer", "stop"
CONTENT = frozenset({WORD, NAME, NUMBER, DATE, UNIT})
CURRENCIES = ("euro", "dollar", "sterling")  # may stand before their number
MAX_DIGITS, LARGEST = 12, 1e15  # a longer run of digits is the number of an order or a parcel, and no amount

# 10 000; 2 1/2; 1,500.5; 7:30; m2; don't; €
_TOKEN = re.compile(
    r"[Pp]er cent\b|(?<![\d.,:/-])\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?:[.,]\d{1,2})?(?![\d/:-]|[.,]\d)"
    r"|(?<![\d.,:/-])(?:\d+ )?[1-7]/[2348](?![\d/-])|\d+(?:[.,:]\d+)*|[kcm]?m[23]\b"
    r"|[^\W\d_]+(?:['’][^\W\d_]+)*|[$€£%°]"
)
SENTENCE_END = re.compile(r"(?<=[.!?;])[\"')\]]*\s+|\n+")
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
_BREAKS = frozenset(",;:()|")  # marks that separate phrases
_ENDINGS = (
    ("ies", "y"),
    ("sses", "ss"),
    ("ing", ""),
    ("edly", ""),
    ("ed", ""),
    ("ly", ""),
    ("es", ""),
    ("s", ""),
    ("e", ""),
)
_PREFIXES = ("un", "in", "im", "non", "dis", "ir", "il", "de")


def stem(word: str) -> str:
    """Removes the common endings of an English word in lower case."""
    if len(word) <= 3:
        return word
    for ending, other in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not (ending == "s" and word.endswith("ss")):
            word = word[: len(word) - len(ending)] + other
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "sle":
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


_GROUPS = {
    title: [group.split() for line in lines for group in line.split("|")]
    for title, lines in read_sections(Path(__file__).with_name("lexicon.txt"))
}


def _names(title: str) -> dict[str, str]:
    """Maps each word of a section's groups to the first word of its group."""
    return {word: group[0] for group in _GROUPS[title] for word in group if not word.startswith("=")}


def _words(title: str) -> frozenset[str]:
    return frozenset(word for group in _GROUPS[title] for word in group)


_UNITS = {word: unit for word, unit in _names("units").items() if not word.replace(".", "").isdigit()}
_MONTHS, _WEEKDAYS = _names("months"), _names("weekdays")
_AMBIGUOUS = _words("ambiguous units")
_CONVERSIONS = {
    group[0]: (group[-2][1:], float(group[-1])) for group in _GROUPS["units"] if len(group) > 2 and group[-2][0] == "="
}
_NUMBERS, _SCALES = ({word: float(value) for word, value in _GROUPS[title]} for title in ("numbers", "scales"))
_QUANTIFIERS, _MODALS = _names("quantifiers"), _names("modals")
_NEGATIONS, _STOP_WORDS = _words("negations"), _words("stop words")
CLAUSE_WORDS = _words("clause words")
PEOPLES, PEOPLE_ENDINGS = _names("peoples"), frozenset(map(tuple, _GROUPS["endings of peoples"]))
_OPPOSITES: dict[str, set[str]] = {}
for _word, *_others in _GROUPS["opposites"]:
    for _other in _others:
        _OPPOSITES.setdefault(stem(_word), set()).add(stem(_other))
        _OPPOSITES.setdefault(stem(_other), set()).add(stem(_word))


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text.

    Args:
        start: Its first character.
        end: After its last character.
        lower: The word in lower case, with straight apostrophes.
        norm: Its normal form.
        kind: What it is; see the table of this module.
        sentence: The number of its sentence.
        after_break: A comma, a bracket or another mark separates it from the previous word.
    """

    start: int
    end: int
    lower: str
    norm: str
    kind: str
    sentence: int
    after_break: bool = False


def read_words(text: str) -> list[Word]:
    """Splits a text into words; compound numbers and times of day become one word."""
    words: list[Word] = []
    sentence_starts = [found.end() for found in SENTENCE_END.finditer(text)]
    sentence, is_first, end, after_number = 0, True, 0, False
    for found in _TOKEN.finditer(text):
        while sentence < len(sentence_starts) and found.start() >= sentence_starts[sentence]:
            sentence += 1
            is_first = True
        before, behind = text[end : found.start()], text[found.end() : found.end() + 1]
        end = found.end()
        lower = found.group().lower().replace("’", "'").replace("per cent", "percent")
        kind, norm = _classify(found.group(), lower, is_first, after_number and len(before) <= 1, behind)
        is_first, after_number = False, kind == NUMBER
        word = Word(found.start(), end, lower, norm, kind, sentence, after_break=not _BREAKS.isdisjoint(before))
        joined = _join(words[-1], word, text) if words else None
        if joined:
            words[-1] = joined
        else:
            words.append(word)
    return words


def _classify(token: str, lower: str, is_first: bool, after_number: bool, behind: str) -> tuple[str, str]:
    """Returns the kind and the normal form of a token.

    Args:
        lower: It in lower case, as `Word` has it.
        is_first: It begins its sentence.
        after_number: It follows a number closely.
        behind: The next character.
    """
    is_capitalised = token[0].isupper()
    if token[0].isdigit():
        return NUMBER, _normalise_digits(token)
    if lower in ("yes", "no") and is_first and behind in {",", ".", "!", ";", ""}:
        return ANSWER, lower
    if lower in _NEGATIONS or lower.endswith("n't"):
        return NEGATION, lower if lower in ("unless", "except", "without") else "not"
    for values in (_NUMBERS, _SCALES):
        if lower in values:
            return NUMBER, f"{values[lower]:g}"
    for dates in (_MONTHS, _WEEKDAYS):
        if lower in dates and (is_capitalised or lower.endswith("day")) and not (lower == "may" and is_first):
            return DATE, dates[lower]
    if lower in _UNITS and (after_number or lower not in _AMBIGUOUS):
        return UNIT, _UNITS[lower]
    for kind, names in ((QUANTIFIER, _QUANTIFIERS), (MODAL, _MODALS)):
        if lower in names:
            return kind, names[lower]
    if lower in _STOP_WORDS or len(lower) == 1:
        return STOP, lower
    is_name = is_capitalised and (not is_first or (token.isupper() and len(token) > 1))
    return NAME if is_name else WORD, stem(lower.removesuffix("'s"))


def _normalise_digits(token: str) -> str:
    if token.isdigit() and len(token) > MAX_DIGITS:
        return token
    if "/" in token:  # 2 1/2
        *whole, part = token.split()
        return f"{sum(map(float, whole)) + int(part[0]) / int(part[-1]):.12g}"
    token = re.sub(r"\s", "", token)
    if ":" in token:
        return token.zfill(5) if token.count(":") == 1 else token  # 7:00 and 07:00
    digits = token.replace(",", "") if _THOUSANDS.fullmatch(token) else token.replace(",", ".")
    try:
        return f"{float(digits):.12g}"
    except ValueError:  # 1.2.3, a version
        return token


def _join(last: Word, word: Word, text: str) -> Word | None:
    """Joins a word to the number before it: twenty-five, 3 million, 5 pm, 21st; None if it is a separate word."""
    gap = text[last.end : word.start]
    if last.kind != NUMBER or last.sentence != word.sentence or len(gap) > 1:
        return None
    if word.lower in ("st", "nd", "rd", "th") and not gap:
        return replace(last, end=word.end)
    if word.lower in ("am", "pm"):
        hour, _, minutes = last.norm.replace(".", ":").partition(":")
        if not hour.isdecimal() or int(hour) > 12:
            return None
        value = int(hour) % 12 + (12 if word.lower == "pm" else 0)
        return replace(last, end=word.end, norm=f"{value:02}:{minutes.ljust(2, '0')}")
    first, second = parse_number(last.norm), parse_number(word.norm)
    if word.lower == "one" and gap == "-" and last.lower in _NUMBERS and first is not None and first >= 20:
        return replace(last, end=word.end, norm=f"{first + 1:g}", lower=word.lower)  # forty-one
    if word.kind != NUMBER or first is None or second is None or gap not in ("", " ", "-", "\u00a0", "\u202f"):
        return None
    if word.lower in _SCALES:
        return replace(last, end=word.end, norm=f"{first * second:.12g}")
    if last.lower in _NUMBERS and word.lower in _NUMBERS and first >= 20 and first % 10 == 0 and second < 10:
        return replace(last, end=word.end, norm=f"{first + second:g}", lower=word.lower)
    return None


def parse_number(norm: str) -> float | None:
    """Reads a normal form as a number; None if it is none, such as a version, or names something by many digits."""
    try:
        number = float(norm)
    except ValueError:
        return None
    return None if number >= LARGEST or (norm.isdigit() and len(norm) > MAX_DIGITS) else number


class Quantity(NamedTuple):
    """A number with its unit.

    Args:
        amount: In the base unit of its dimension; its text for a time of day or a version.
        dimension: The dimension, the unit itself if it does not convert, or "" without a unit.
        unit: The unit's normal form, or "".
    """

    amount: float | str
    dimension: str
    unit: str

    def equals(self, other: "Quantity") -> bool:
        """Whether both are the same quantity; if one has no unit, whether the numbers are equal."""
        return self[:2] == other[:2]


def read_quantities(words: list[Word]) -> dict[int, Quantity]:
    """Finds the quantity of each number, by the number's place in the list of words."""
    found = {}
    for place, number in enumerate(words):
        if number.kind != NUMBER:
            continue
        unit = ""
        behind = [word for word in words[place + 1 : place + 3] if word.sentence == number.sentence]
        if place and words[place - 1].norm in CURRENCIES:
            unit = words[place - 1].norm
        elif behind and behind[0].kind == UNIT:
            unit = behind[0].norm
        elif len(behind) == 2 and behind[1].kind == UNIT and behind[0].kind == WORD and behind[0].lower != "per":
            unit = behind[1].norm  # five working days
        amount = parse_number(number.norm)
        if amount is None:
            found[place] = Quantity(number.norm, unit, unit)
        else:
            dimension, factor = convert(unit)
            digits = 12 if factor == 1 else 5  # two units of one amount differ by the rounding of their factors
            found[place] = Quantity(float(f"{amount * factor:.{digits}g}"), dimension, unit)
    return found


@lru_cache(maxsize=4096)
def opposites(norm: str) -> frozenset[str]:
    """Returns the normal forms of the opposite meaning: listed ones, and those with or without a negative prefix."""
    prefixed = {prefix + norm for prefix in _PREFIXES} if len(norm) >= 4 else set()
    bare = {norm.removeprefix(prefix) for prefix in _PREFIXES if norm.startswith(prefix)}
    return frozenset(_OPPOSITES.get(norm, set()) | prefixed | {word for word in bare if len(word) >= 4})


def convert(unit: str) -> tuple[str, float]:
    """Returns the dimension of a unit and its factor; a unit that does not convert is its own dimension."""
    return _CONVERSIONS.get(unit, (unit, 1.0))
