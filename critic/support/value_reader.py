"""Reads the values of a text: quantities, dates, times of day, identifiers and names, with what they are about.

    The warranty lasts two years.        duration  24 months, of warranty, last
    Call A-113 before 5 pm on 1 May.     identifier a113; time 17:00; date 1 May
    Half of the price, over EUR 40.      share 50; money 40 euro, above

>>> [(value.text, value.kind, value.amount, value.name) for value in read_values("Two years, or 5 pm.")]
[('Two years', 'duration', 24.0, 'year'), ('5 pm', 'time', 1020.0, '')]
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from critic.support.normal_forms import (
    CONTENT,
    CURRENCIES,
    DATE,
    NAME,
    NUMBER,
    UNIT,
    WORD,
    Word,
    convert,
    read_words,
)

DURATION, MONEY, SHARE, DAY, TIME, PLAIN, CODE = (
    "duration",
    "money",
    "percentage",
    "date",
    "time",
    "number",
    "identifier",
)
MEASURE, TITLE = "quantity", "name"
MAX_CACHED_CHARACTERS = 8192  # the values of longer texts are not cached
HEAD_WORDS = 3  # content words on each side that say what a value is about
_ABOUT = frozenset("about around roughly approximately approx some nearly almost circa close".split())
_ABOVE, _BELOW = frozenset("over above exceeding".split()), frozenset("under below".split())
_ONE, _EACH = frozenset({"a", "an", "one", "another"}), frozenset({"a", "an", "one", "per", "each", "every", "another"})
_ADJECTIVES = frozenset("working business calendar full whole square cubic consecutive metric single extra".split())
_SEASONS = {"spring": "spring", "summer": "summer", "autumn": "autumn", "fall": "autumn", "winter": "winter"}
_FRACTIONS = {"half": 0.5, "quarter": 0.25, "quarters": 0.25, "third": 1 / 3, "thirds": 1 / 3}
_TIMES = {"noon": 720, "midday": 720, "midnight": 0}
_ORDINALS = frozenset("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split())
_NO_NAMES = frozenset("i i'm i've i'd i'll ok".split())
_SIGNS = {"½": 0.5, "¼": 0.25, "¾": 0.75}
_ISO = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})\b")
_NUMERIC_DATE = re.compile(r"\b(\d{1,2})[./](\d{1,2})[./](\d{4}|\d{2})\b")
_CODE = re.compile(r"\b(?=[A-Za-z-]*\d)(?=\d*-?[A-Za-z])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\b")
_MEASURED = re.compile(
    r"\d+(?:st|nd|rd|th|am|pm|[a-zA-Z]{1,3})|\d+(?:-[a-zA-Z]{3,})+", re.IGNORECASE
)  # 5th, 10mg, 24-hour
_TIME = re.compile(r"\b(\d{1,2})(?:[:.](\d{2}))?\s?([ap])\.?\s?m\b\.?", re.IGNORECASE)
_PARTS_OF_DAY = {"morning": 0, "afternoon": 720, "evening": 720, "night": 720}
_BEFORE_TIME = frozenset("at by from to until till between and past after before around".split())
_PREPOSITIONS = frozenset(
    "within for after of in than least most to about roughly over have almost under up until".split()
)
_RANGE_WORDS = frozenset({"to", "and", "until", "till", "through"})
RANGE_SIGNS = frozenset({"-", "–", "—"})
Parts = tuple[int | str | None, ...]  # of a date: year, month, day, weekday, season


@dataclass(frozen=True, slots=True)
class Value:
    """A value in a text.

    Args:
        start: Its first character.
        end: The character after its last.
        text: These characters.
        kind: duration, money, percentage, date, time, number, identifier, or quantity for other units.
        unit: What its amount counts, after conversion; a currency, a unit, or the parts that a date has.
        amount: In this unit; a date's parts (year, month, day, weekday, season), None where it has none; a code.
        heads: Normal forms of the words near it: what it is about.
        approximation: about, above or below, if a word before it says so.
        sentence: The number of its sentence.
        noun: The normal forms of the two words behind it: what is counted.
        name: The unit before conversion.
        is_ordinal: As in "the third attempt"; also a fraction, as in "a third of the cost".
        is_unit: A unit without a number, as in "per week".
        is_open: No noun follows a number without a unit, which may so have that of another number, as in "10 or 12 km".
    """

    start: int
    end: int
    text: str
    kind: str
    unit: str
    amount: float | str | Parts
    heads: frozenset[str]
    approximation: str = ""
    sentence: int = 0
    noun: frozenset[str] = frozenset()
    name: str = ""
    is_ordinal: bool = False
    is_unit: bool = False
    is_open: bool = False


def read_values(text: str) -> tuple[Value, ...]:
    """Reads the values of a text, in their order."""
    return _cached_values(text) if len(text) <= MAX_CACHED_CHARACTERS else _read_values(text)


def _read_values(text: str) -> tuple[Value, ...]:
    return tuple(sorted(_Reader(text, read_words(text)).read(), key=lambda value: value.start))


_cached_values = lru_cache(maxsize=512)(_read_values)  # contexts come again with other answers


class _Reader:
    """Reads the values of one text from its words; a word belongs to one value at most."""

    def __init__(self, text: str, words: Sequence[Word]):
        self.text, self.words = text, words
        self.used = [False] * len(words)

    def read(self) -> Iterator[Value]:
        yield from self._read_patterns()
        yield from self._read_dates()
        for place in range(len(self.words)):
            if not self.used[place] and (value := self._read_number(place) or self._read_unit(place)):
                yield value
        for place, word in enumerate(self.words):
            if word.kind == NAME and not self.used[place] and word.lower not in _NO_NAMES:
                yield self._make(place, place, TITLE, TITLE, word.norm)

    def _make(
        self,
        first: int,
        last: int,
        kind: str,
        unit: str,
        amount: float | str | Parts,
        name: str = "",
        **more: bool,
    ) -> Value:
        """Makes the value of the words from `first` to `last`."""
        for place in range(first, last + 1):
            self.used[place] = True
        start, end = self.words[first].start, self.words[last].end
        if end < len(self.text) and self.text[end] == "%":
            end += 1
        return Value(
            start,
            end,
            self.text[start:end],
            kind,
            unit,
            amount,
            self._heads(first, last),
            self._approximation(first, last),
            self.words[first].sentence,
            self._noun(last),
            name,
            is_open=self._is_open(last),
            **more,
        )

    def _noun(self, last: int) -> frozenset[str]:
        sentence = self.words[last].sentence
        behind = [w for w in self.words[last + 1 : last + 3] if w.kind in CONTENT and w.sentence == sentence]
        units = [w for w in self.words if w.kind == UNIT and w.sentence == sentence] if self._is_open(last) else []
        return frozenset(w.norm for w in (*behind, *units))

    def _is_open(self, last: int) -> bool:
        behind = self.words[last + 1] if last + 1 < len(self.words) else None
        is_joined = behind is not None and behind.sentence == self.words[last].sentence and not behind.after_break
        return not is_joined or behind is None or behind.kind not in (WORD, NAME, UNIT)

    def _heads(self, first: int, last: int) -> frozenset[str]:
        """Collects the normal forms of the content words of the sentence that are nearest to a value."""
        sentence = self.words[first].sentence
        found: list[str] = []
        for places in (range(first - 1, -1, -1), range(last + 1, len(self.words))):
            near: list[str] = []
            for place in places:
                word = self.words[place]
                if word.sentence != sentence or len(near) == HEAD_WORDS:
                    break
                if word.kind in (WORD, NAME):
                    near.append(word.norm)
            found += near
        return frozenset(found)

    def _approximation(self, first: int, last: int) -> str:
        if self._lower(last + 1, last + 3) == ["or", "so"]:
            return "about"
        sentence = self.words[first].sentence
        before = [word.lower for word in self.words[max(0, first - 3) : first] if word.sentence == sentence]
        near = before[-2:]
        if _ABOUT & set(near):
            return "about"
        if _ABOVE & set(near) or near == ["more", "than"]:
            return "above"
        return "below" if _BELOW & set(near) or near in (["less", "than"], ["fewer", "than"]) else ""

    def _places(self, start: int, end: int) -> tuple[int, int] | None:
        """Finds the first and the last unused word that overlaps some characters."""
        found = [p for p, word in enumerate(self.words) if word.start < end and start < word.end and not self.used[p]]
        return (found[0], found[-1]) if found and not any(self.used[found[0] : found[-1] + 1]) else None

    def _read_patterns(self) -> Iterator[Value]:
        """Reads dates in figures, and identifiers such as A-113."""
        for pattern in (_ISO, _NUMERIC_DATE):
            for found in pattern.finditer(self.text):
                numbers = [int(part) for part in found.groups()]
                year, month, day = numbers if pattern is _ISO else numbers[::-1]
                year += 2000 * (year < 100)
                places = self._places(*found.span())
                if places and month <= 12 and 1 <= day <= 31:
                    yield self._make(*places, DAY, DAY, (year, month, day, None, None))
        for found in _TIME.finditer(self.text):
            hour, minutes, half = int(found[1]), int(found[2] or 0), found[3].lower()
            if 1 <= hour <= 12 and minutes < 60 and (places := self._places(*found.span())):
                yield self._make(*places, TIME, TIME, float(60 * (hour % 12 + 12 * (half == "p")) + minutes))
        for found in _CODE.finditer(self.text):
            if _MEASURED.fullmatch(found.group()) or not (places := self._places(*found.span())):
                continue
            yield self._make(*places, CODE, CODE, re.sub(r"[\W_]", "", found.group()).lower())

    def _read_dates(self) -> Iterator[Value]:
        """Reads dates in words: 1 October 2024; October 1, 2024; 1 to 3 October; Monday; spring; 2024."""
        words = self.words
        for place, word in enumerate(words):
            if self.used[place]:
                continue
            if word.kind == DATE and word.norm in _MONTHS:
                first = last = place
                day = year = None
                if (number := self._day(place - 1)) is not None and not self.used[place - 1]:
                    day, first = number, place - 1
                elif place >= 2 and words[place - 1].lower == "of" and (number := self._day(place - 2)) is not None:
                    day, first = number, place - 2
                elif (number := self._day(place + 1)) is not None and not self._is_year(place + 1):
                    day, last = number, place + 1
                if self._is_year(last + 1) and words[last + 1].sentence == word.sentence:
                    year, last = int(words[last + 1].norm), last + 1
                month = _MONTHS[word.norm]
                earlier = self._range_start(first) if day is not None else None
                yield self._make(first, last, DAY, DAY, (year, month, day, None, None))
                if earlier is not None:
                    yield self._make(earlier, earlier, DAY, DAY, (year, month, self._day(earlier), None, None))
            elif word.kind == DATE or word.lower.removesuffix("s") in _WEEKDAYS:
                yield self._make(place, place, DAY, DAY, (None, None, None, word.lower[:3], None))
            elif word.lower in _SEASONS and (
                word.lower != "fall" or (place and words[place - 1].lower in ("in", "the", "of"))
            ):
                yield self._make(place, place, DAY, DAY, (None, None, None, None, _SEASONS[word.lower]))
        for place, word in enumerate(words):
            has_unit = self._unit_behind(place) is not None or (place and words[place - 1].norm in CURRENCIES)
            if not self.used[place] and self._is_year(place) and not has_unit:
                yield self._make(place, place, DAY, DAY, (int(word.norm), None, None, None, None))

    def _range_start(self, place: int) -> int | None:
        """Finds the day before "to 3 October", or None."""
        if place >= 2 and self.words[place - 1].lower in _RANGE_WORDS and self._day(place - 2) is not None:
            return None if self.used[place - 2] else place - 2
        if place >= 1 and self._day(place - 1) is not None and not self.used[place - 1]:
            return place - 1 if self._between(place - 1, place) in RANGE_SIGNS else None
        return None

    def _between(self, place: int, other: int) -> str:
        return self.text[self.words[place].end : self.words[other].start].strip()

    def _day(self, place: int) -> int | None:
        """Reads a day of the month."""
        if not 0 <= place < len(self.words) or self.words[place].kind != NUMBER:
            return None
        norm = self.words[place].norm
        return int(norm) if norm.isdigit() and 1 <= int(norm) <= 31 else None

    def _is_year(self, place: int) -> bool:
        if not 0 <= place < len(self.words):
            return False
        word = self.words[place]
        return (
            word.kind == NUMBER
            and word.end - word.start == 4
            and word.norm.isdigit()
            and 1500 <= int(word.norm) <= 2100
        )

    def _unit_behind(self, place: int) -> int | None:
        """Finds the place of the unit of a number: at most one adjective is between them."""
        words, sentence = self.words, self.words[place].sentence
        for step in (1, 2):
            behind = place + step
            if behind >= len(words) or words[behind].sentence != sentence or self.used[behind]:
                return None
            if words[behind].kind == UNIT:
                return behind
            if words[behind].lower not in _ADJECTIVES and not (
                step == 1 and words[behind].kind == WORD and words[behind].lower.endswith("ing")
            ):
                return None
        return None

    def _cents_behind(self, place: int) -> float:
        """Reads the part behind a currency, as in "one euro fifty"; 0 if there is none."""
        if place + 1 >= len(self.words) or self._between(place, place + 1) or not self.words[place].lower.isalpha():
            return 0.0
        cents = self.words[place + 1]
        is_number = cents.kind == NUMBER and cents.norm.isdigit() and 10 <= int(cents.norm) < 100
        is_counting = self._unit_behind(place + 1) is not None or self._lower(place + 2, place + 3) == ["times"]
        return int(cents.norm) / 100 if is_number and not is_counting else 0.0

    def _read_number(self, place: int) -> Value | None:
        """Reads a number with its unit, a time of day, or a fraction of a unit."""
        word = self.words[place]
        if word.lower in _TIMES:
            return self._make(place, place, TIME, TIME, float(_TIMES[word.lower]))
        is_fraction = word.lower in _FRACTIONS and (
            word.lower != "third" or self._lower(place - 1, place) in (["a"], ["one"])
        )
        if is_fraction and (value := self._read_fraction(place)):
            return value
        if word.lower in ("two", "three") and self._lower(place + 1, place + 2) in (["thirds"], ["quarters"]):
            return self._read_fraction(place + 1)
        if word.kind != NUMBER:
            return None
        if re.fullmatch(r"\d{1,2}:\d{2}", word.norm):
            hours, minutes = map(int, word.norm.split(":"))
            return self._make(place, place, TIME, TIME, float(60 * hours + minutes))
        try:
            amount = float(word.norm)
        except ValueError:
            return self._make(place, place, CODE, CODE, re.sub(r"\W", "", word.norm))
        if word.lower == "twice" and self._lower(place + 1, place + 2) == ["as"]:
            return None
        amount += _SIGNS.get(self.text[word.end : word.end + 1], 0.0)
        first, last = place, place
        if word.lower in ("hundred", "thousand", "million") and self._lower(place - 2, place) == ["half", "a"]:
            amount /= 2
        if self._lower(place + 1, place + 2) == ["dozen"]:
            amount, last, self.used[place + 1] = 12 * amount, place + 1, True
        if amount >= 100 and word.lower[0].isalpha() and self._lower(place + 1, place + 2) == ["and"]:
            rest = self.words[place + 2] if place + 2 < len(self.words) else word
            if (
                rest.kind == NUMBER
                and rest.lower[0].isalpha()
                and rest.norm.isdigit()
                and int(rest.norm) < 100 <= amount
            ):
                amount, last, self.used[place + 2] = amount + int(rest.norm), place + 2, True
        if (time := self._time_in_words(place, amount)) is not None:
            return time
        is_ordinal = word.lower in _ORDINALS or self.text[word.end - 2 : word.end].lower() in ("st", "nd", "rd", "th")
        start = last
        before = self.words[place - 1] if place and not self.used[place - 1] else None
        if before is not None and before.norm in CURRENCIES and before.sentence == word.sentence:
            first, unit = place - 1, before.norm
            scale = re.match(r"(m|mn|bn|k)\b", self.text[word.end : word.end + 3])
            amount *= {"m": 1e6, "mn": 1e6, "bn": 1e9, "k": 1e3}[scale[1]] if scale else 1
            if self._lower(place - 2, place - 1) in (["one"], ["a"]) and (cents := self._cents_behind(place - 1)):
                first, amount = place - 2, 1 + cents
        elif not is_ordinal and (found := self._unit_behind(start)) is not None:
            last, unit = found, self.words[found].norm
            following = self._lower(last + 1, last + 2)
            if unit == "degree" and following and following[0] in ("c", "f", "celsius", "fahrenheit"):
                last, unit = last + 1, f"degree {following[0][0]}"
            elif unit in CURRENCIES and amount == int(amount) and (cents := self._cents_behind(last)):
                last, amount = last + 1, amount + cents
                self.used[last] = True
        elif not is_ordinal and (half := self._and_a_half(place)) is not None:
            amount, last, unit = amount + 0.5, half, self.words[half].norm
        else:
            unit = ""
        if unit and not is_ordinal and last > place and self._lower(last + 1, last + 4) == ["and", "a", "half"]:
            amount, last = amount + 0.5, last + 3
        if not unit and not is_ordinal:
            unit = self._unit_of_range(start)
        return self._quantity(first, last, amount, unit, is_ordinal=is_ordinal)

    def _quantity(
        self, first: int, last: int, amount: float, unit: str, *, is_ordinal: bool = False, is_unit: bool = False
    ) -> Value:
        if not unit:
            return self._make(first, last, PLAIN, PLAIN, amount, is_ordinal=is_ordinal)
        dimension, factor = convert(unit)
        kind = {"time": DURATION, "calendar": DURATION, "percent": SHARE}.get(
            dimension, MONEY if unit in CURRENCIES else MEASURE
        )
        return self._make(
            first, last, kind, dimension, float(f"{amount * factor:.6g}"), unit, is_unit=is_unit, is_ordinal=is_ordinal
        )

    def _lower(self, begin: int, end: int) -> list[str]:
        return [word.lower for word in self.words[begin:end]]

    def _time_in_words(self, place: int, hour: float) -> Value | None:
        """Reads "11 o'clock", "from 11 to 15 o'clock", "seven in the morning", "from 1 to 3 pm"."""
        if not 0 < hour <= 24 or hour != int(hour):
            return None
        before, words = self._lower(place - 1, place) if place else [], self.words
        at = place
        if place + 2 < len(words) and words[place + 1].lower in _RANGE_WORDS and words[place + 2].kind == NUMBER:
            at = place + 2
        behind = self._lower(at + 1, at + 4)
        half = 30 * (self._lower(max(0, place - 2), place) == ["half", "past"])
        if behind[:1] == ["o'clock"]:
            return self._make(place, place + (at == place), TIME, TIME, 60 * hour + half)
        part = (
            behind[2]
            if behind[:2] == ["in", "the"] and len(behind) > 2
            else behind[1]
            if behind[:1] == ["at"] and behind[1:]
            else ""
        )
        if part in _PARTS_OF_DAY and hour <= 12 and before and before[0] in _BEFORE_TIME:
            return self._make(place, place, TIME, TIME, 60 * (hour % 12) + _PARTS_OF_DAY[part] + half)
        return None

    def _and_a_half(self, place: int) -> int | None:
        """Finds the unit of "two and a half hours"."""
        unit = place + 4
        is_half = self._lower(place + 1, unit) == ["and", "a", "half"]
        return unit if is_half and unit < len(self.words) and self.words[unit].kind == UNIT else None

    def _unit_of_range(self, place: int) -> str:
        """Finds the unit behind the second number of a range, as in "20 to 60 mm" or "two or three days"."""
        if place + 1 >= len(self.words):
            return ""
        second = place + 1 if self._between(place, place + 1) in RANGE_SIGNS else place + 2
        joins = second == place + 1 or self.words[place + 1].lower in (*_RANGE_WORDS, "or")
        if (
            not joins
            or second >= len(self.words)
            or self.words[second].kind != NUMBER
            or self.words[second].sentence != self.words[place].sentence
        ):
            return ""
        unit = self._unit_behind(second)
        return self.words[unit].norm if unit is not None else ""

    def _read_fraction(self, place: int) -> Value | None:
        """Reads "half an hour" and "a quarter of a year" as durations, "half", "a third" and "two thirds" as shares."""
        word, before = self.words[place].lower, self._lower(max(0, place - 1), place)
        times = {"two": 2.0, "three": 3.0}.get(before[0], 1.0) if before else 1.0
        behind = [
            p
            for p in range(place + 1, min(place + 4, len(self.words)))
            if self.words[p].lower not in ("of", "a", "an", "the")
        ]
        if behind and self.words[behind[0]].kind == UNIT and not self.used[behind[0]]:
            unit = self.words[behind[0]].norm
            if convert(unit)[0] in ("time", "calendar", "percent"):
                return self._quantity(place, behind[0], times * _FRACTIONS[word], unit)
        if word == "half" and self._lower(place + 1, place + 2) in (["a"], ["an"], ["past"]):
            return None
        if word != "half" and self._lower(place + 1, place + 2) != ["of"] and times == 1.0:
            return None
        first = place - 1 if times > 1 and not self.used[place - 1] else place
        return self._make(first, place, SHARE, "percent", 100 * times * _FRACTIONS[word], "percent", is_ordinal=True)

    def _read_unit(self, place: int) -> Value | None:
        """Reads a unit after a, one, per or each: "once a week", "a month"."""
        word = self.words[place]
        if word.kind != UNIT or not place or word.norm in (*CURRENCIES, "percent", "degree"):
            return None
        if word.norm == "quarter" and self._lower(place + 1, place + 2) == ["of"]:
            return None
        before = place - 1
        while before > 0 and self.words[before].lower in _ADJECTIVES:
            before -= 1
        ending = word.lower.endswith("ly") and word.lower in (
            "hourly",
            "daily",
            "weekly",
            "monthly",
            "quarterly",
            "yearly",
            "annually",
        )
        if self.words[before].lower not in _EACH and not ending:
            return None
        if word.norm == "hour" and before and convert(self.words[before - 1].norm)[0] in ("length", "mile"):
            return None  # a speed
        first = place if ending or self.words[before].lower not in _ONE or self.words[before].kind == NUMBER else before
        if self._lower(place + 1, place + 4) == ["and", "a", "half"]:
            return self._quantity(first, place + 3, 1.5, word.norm)
        article, earlier = self.words[before].lower, self.words[before - 1].lower if before else ""
        is_rate = article != "one" and (article not in _ONE or (earlier not in _PREPOSITIONS and before > 0))
        return self._quantity(first, place, 1.0, word.norm, is_unit=is_rate or ending)


_WEEKDAYS = frozenset("monday tuesday wednesday thursday friday saturday sunday".split())
_MONTHS = {
    name: number
    for number, name in enumerate(
        "january february march april may june july august september october november december".split(), 1
    )
}
