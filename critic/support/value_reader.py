"""Reads the values of a text: quantities, dates, times of day, identifiers and names, with what they are about.

    The warranty lasts two years.        duration  24 months, of warranty, last
    Call A-113 before 5 pm on 1 May.     identifier a113; time 17:00; date 1 May
    Half of the price, over EUR 40.      share 50; money 40 euro, above

>>> [(value.text, value.kind, value.amount, value.name) for value in read_values("Two years, or 5 pm.")]
[('Two years', 'duration', 24.0, 'year'), ('5 pm', 'time', 1020.0, '')]
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from critic.support.date_reader import (
    ADJECTIVES,
    CODE,
    DURATION,
    MEASURE,
    MONEY,
    PLAIN,
    RANGE_SIGNS,
    RANGE_WORDS,
    SHARE,
    TIME,
    TITLE,
    DateReader,
    Value,
)
from critic.support.normal_forms import CURRENCIES, NAME, NUMBER, UNIT, WORD, convert, parse_number, read_words

MAX_CACHED_CHARACTERS = 8192  # the values of longer texts are not cached
_ONE, _EACH = frozenset({"a", "an", "one", "another"}), frozenset({"a", "an", "one", "per", "each", "every", "another"})
_FRACTIONS = {
    "fifth": 0.2,
    "tenth": 0.1,
    "half": 0.5,
    "quarter": 0.25,
    "quarters": 0.25,
    "third": 1 / 3,
    "thirds": 1 / 3,
}
_SCALES = frozenset({"dozen", "hundred", "thousand", "million", "billion"})
_TIMES = {"noon": 720, "midday": 720, "midnight": 0}
_ORDINALS = frozenset("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split())
_TITLES = frozenset("dr mr mrs ms prof".split())  # their point ends no sentence
_NO_NAMES = frozenset("i i'm i've i'd i'll ok".split())
_HEADING = re.compile(r"(?:[:–•*\"“(]|\n\W*|\b\d{1,2}[.)])\s*\Z")
_REFERENCES = frozenset("passage passages step steps option options source sources document documents".split())
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th)", re.IGNORECASE)
_WHOLES = frozenset({3, 4, 5, 6, 10, 20, 50, 100, 1_000, 10_000, 100_000})  # of shares such as "1 in 10"
_SIGNS = {"½": 0.5, "¼": 0.25, "¾": 0.75}
_PREPOSITIONS = frozenset(
    "within for after of in than least most to about roughly over have almost under up until".split()
)


def read_values(text: str) -> tuple[Value, ...]:
    """Reads the values of a text, in their order."""
    return _cached_values(text) if len(text) <= MAX_CACHED_CHARACTERS else _read_values(text)


def _read_values(text: str) -> tuple[Value, ...]:
    return tuple(sorted(_Reader(text, read_words(text)).read(), key=lambda value: value.start))


_cached_values = lru_cache(maxsize=512)(_read_values)  # contexts come again with other answers


class _Reader(DateReader):
    """Reads all values of one text."""

    def read(self) -> Iterator[Value]:
        yield from self._read_patterns()
        yield from self._read_dates()
        for place in range(len(self.words)):
            if not self.used[place] and (value := self._read_number(place) or self._read_unit(place)):
                yield value
        for place, word in enumerate(self.words):
            is_heading = _HEADING.search(self.text, max(0, word.start - 8), word.start)  # its capital begins a phrase
            is_holiday = word.lower == "new" and self._lower(place + 1, place + 2) in (["year"], ["year's"])
            is_titled = place > 0 and self.words[place - 1].lower in _TITLES and self.text[word.start].isupper()
            is_name = (word.kind == NAME or is_titled) and word.lower not in _NO_NAMES and not is_holiday
            if is_name and not self.used[place] and not is_heading:
                yield self._make(place, place, TITLE, TITLE, word.norm)

    def _cents_behind(self, place: int) -> float:
        """Reads the part behind a currency, as in "one euro fifty"; 0 if there is none."""
        if place + 1 >= len(self.words) or self._between(place, place + 1) or not self.words[place].lower.isalpha():
            return 0.0
        cents = self.words[place + 1]
        is_number = cents.kind == NUMBER and cents.norm.isdecimal() and 10 <= int(cents.norm) < 100
        is_counting = self._unit_behind(place + 1) is not None or self._lower(place + 2, place + 3) == ["times"]
        return int(cents.norm) / 100 if is_number and not is_counting else 0.0

    def _read_number(self, place: int) -> Value | None:
        """Reads a number with its unit, a time of day, or a fraction of a unit."""
        word = self.words[place]
        if word.lower in _TIMES:
            return self._make(place, place, TIME, TIME, float(_TIMES[word.lower]))
        is_fraction = word.lower in _FRACTIONS and (
            word.lower not in ("third", "fifth", "tenth") or self._lower(place - 1, place) in (["a"], ["one"])
        )
        if is_fraction and (value := self._read_fraction(place)):
            return value
        if word.lower in ("two", "three") and self._lower(place + 1, place + 2) in (["thirds"], ["quarters"]):
            return self._read_fraction(place + 1)
        if word.lower == "one" and (part := self._and_part(place)) and self._is_unit(place + 4):
            return self._quantity(place, place + 4, 1 + part, self.words[place + 4].norm)
        if word.lower == "one" and (unit := self._unit_of_range(place)):  # one or two days
            return self._quantity(place, place, 1.0, unit)
        if (word.kind == NUMBER or word.lower == "one") and (share := self._read_share(place)):
            return share
        if word.kind != NUMBER:
            return None
        if re.fullmatch(r"\d{1,2}:\d{2}", word.norm):
            hours, minutes = map(int, word.norm.split(":"))
            return self._make(place, place, TIME, TIME, float(60 * hours + minutes))
        amount = parse_number(word.norm)
        if amount is None:
            return self._make(place, place, CODE, CODE, re.sub(r"\W", "", word.norm))
        if place and self.words[place - 1].lower in _REFERENCES:
            return None  # of the answer's own steps, or of the context's parts
        if (
            place
            and word.end - word.start == 2
            and self._is_year(place - 1)
            and self._between(place - 1, place) in RANGE_SIGNS
        ):
            return None  # 2018-19
        behind = self._lower(place + 1, place + 2)
        is_ratio = behind == ["times"] and self._lower(place + 2, place + 3) in (["the"], ["as"], ["more"])
        if (
            is_ratio
            or (word.lower == "twice" and behind == ["as"])
            or (word.lower in _ORDINALS and behind in (["few"], ["couple"]))
        ):
            return None
        if word.lower == "twice":  # a day
            return replace(self._make(place, place, PLAIN, PLAIN, amount), is_open=False, noun=frozenset())
        amount += _SIGNS.get(self.text[word.end : word.end + 1], 0.0)
        first, last = place, place
        if word.lower in _SCALES:
            amount *= self._part_before(place)
        if self._lower(place + 1, place + 2) == ["dozen"]:
            amount, last, self.used[place + 1] = 12 * amount, place + 1, True
        if amount >= 100 and word.lower[0].isalpha() and self._lower(place + 1, place + 2) == ["and"]:
            rest = self.words[place + 2] if place + 2 < len(self.words) else word
            if (
                rest.kind == NUMBER
                and rest.lower[0].isalpha()
                and rest.norm.isdecimal()
                and int(rest.norm) < 100 <= amount
            ):
                amount, last, self.used[place + 2] = amount + int(rest.norm), place + 2, True
        if (time := self._time_in_words(place, amount)) is not None:
            return time
        is_ordinal = word.lower in _ORDINALS or bool(_ORDINAL.fullmatch(self.text, word.start, word.end))
        start = last
        before = self.words[place - 1] if place and not self.used[place - 1] else None
        is_money = before is not None and before.norm in CURRENCIES and before.sentence == word.sentence
        scale = re.match(r"(m|mn|bn|k)\b" if is_money else r"(k)\b", self.text[word.end : word.end + 3])
        amount *= {"m": 1e6, "mn": 1e6, "bn": 1e9, "k": 1e3}[scale[1]] if scale else 1
        if before is not None and is_money:
            first, unit = place - 1, before.norm
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
        elif not is_ordinal and (part := self._and_part(place)) and self._is_unit(place + 4):
            amount, last, unit = amount + part, place + 4, self.words[place + 4].norm
        else:
            unit = ""
        if unit and not is_ordinal and last > place and (part := self._and_part(last)):
            amount, last = amount + part, last + 3
        if not unit and not is_ordinal:
            unit = self._unit_of_range(start)
        return self._quantity(first, last, amount, unit, is_ordinal=is_ordinal)

    def _read_share(self, place: int) -> Value | None:
        """Reads "1 in 10 people", "nine out of ten" and "one person in a hundred" as shares."""
        part = 1.0 if self.words[place].lower == "one" else parse_number(self.words[place].norm)
        following = self._lower(place + 1, place + 6)
        at = next((n for n in (0, 1) if following[n : n + 1] == ["in"] or following[n : n + 2] == ["out", "of"]), None)
        if part is None or at is None:
            return None
        last = place + at + (2 if following[at] == "in" else 3)
        last += self._lower(last, last + 1) in (["a"], ["every"])
        if (
            last >= len(self.words)
            or self.words[last].kind != NUMBER
            or self.words[last].sentence != self.words[place].sentence
        ):
            return None
        whole = parse_number(self.words[last].norm)
        if whole not in _WHOLES or part >= whole or self._unit_behind(last) is not None:
            return None
        return self._make(place, last, SHARE, "percent", float(f"{100 * part / whole:.6g}"), "percent")

    def _quantity(
        self, first: int, last: int, amount: float, unit: str, *, is_ordinal: bool = False, is_unit: bool = False
    ) -> Value:
        if not unit:
            return self._make(first, last, PLAIN, PLAIN, amount, is_ordinal=is_ordinal)
        dimension, factor = convert(unit)
        kind = {"time": DURATION, "calendar": DURATION, "percent": SHARE}.get(
            dimension, MONEY if unit in (*CURRENCIES, "cent") else MEASURE
        )
        return self._make(
            first, last, kind, dimension, float(f"{amount * factor:.12g}"), unit, is_unit=is_unit, is_ordinal=is_ordinal
        )

    def _is_unit(self, place: int) -> bool:
        if place >= len(self.words) or self.used[place]:
            return False
        return self.words[place].kind == UNIT or self.words[place].norm in ("pound", "cup", "ton", "yard")

    def _and_part(self, place: int) -> float:
        """Reads the part behind a number or a unit, as in "two and a half hours", "an hour and three quarters"."""
        behind = self._lower(place + 1, place + 4)
        if behind[:2] == ["and", "a"] and behind[2:] in (["half"], ["quarter"]):
            return _FRACTIONS[behind[2]]
        return 0.75 if behind == ["and", "three", "quarters"] else 0.0

    def _part_before(self, place: int) -> float:
        """Reads the part before a dozen or a million, as in "half a dozen", "a quarter of a million"."""
        before = self._lower(max(0, place - 4), place)
        if before[-2:] == ["half", "a"]:
            return 0.5
        if before[-2:] == ["of", "a"] and before[-3:-2] in (["quarter"], ["quarters"]):
            return 0.75 if before[-4:-3] == ["three"] else 0.25
        return 1.0

    def _unit_of_range(self, place: int) -> str:
        """Finds the unit behind the second number of a range, as in "20 to 60 mm" or "two or three days"."""
        if place + 1 >= len(self.words):
            return ""
        second = place + 1 if self._between(place, place + 1) in RANGE_SIGNS else place + 2
        joins = second == place + 1 or self.words[place + 1].lower in (*RANGE_WORDS, "or")
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
            if unit not in CURRENCIES and (word == "half" or convert(unit)[0] in ("time", "calendar", "percent")):
                first = place - (times > 1 and not self.used[place - 1])
                return self._quantity(first, behind[0], times * _FRACTIONS[word], unit)
        if behind and self.words[behind[0]].lower in _SCALES:
            return None
        if word == "half" and self._lower(place + 1, place + 2) in (["a"], ["an"], ["past"]):
            return None
        is_change = self._lower(max(0, place - 2), place) == ["by", "a"]
        if word != "half" and self._lower(place + 1, place + 2) != ["of"] and times == 1.0 and not is_change:
            return None
        first = place - 1 if times > 1 and not self.used[place - 1] else place
        return self._make(first, place, SHARE, "percent", 100 * times * _FRACTIONS[word], "percent", is_ordinal=True)

    def _read_unit(self, place: int) -> Value | None:
        """Reads a unit after a, one, per or each: "once a week", "a month"."""
        word = self.words[place]
        if word.kind != UNIT or not place or word.norm in (*CURRENCIES, "percent", "degree"):
            return None
        is_part = self._lower(place + 1, place + 2) == ["of"] or self._lower(max(0, place - 2), place) == ["and", "a"]
        if word.norm == "quarter" and is_part:  # a quarter of it, one and a quarter times
            return None
        before = place - 1
        while before > 0 and self.words[before].lower in ADJECTIVES:
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
        if before and self.words[before - 1].lower in ("each", "every") and self.words[before].lower != "second":
            before -= self.words[before].kind == WORD  # each missing month
        elif self.words[before].lower == "and" and "per" in self._lower(max(0, before - 2), before):
            before -= 2  # per person and year
        if self.words[before].lower not in _EACH and not ending:
            return None
        if word.norm == "hour" and before and convert(self.words[before - 1].norm)[0] in ("length", "mile"):
            return None  # a speed
        first = place if ending or self.words[before].lower not in _ONE or self.words[before].kind == NUMBER else before
        if part := self._and_part(place):
            return self._quantity(first, place + 3, 1 + part, word.norm)
        article, earlier = self.words[before].lower, self.words[before - 1].lower if before else ""
        is_rate = article != "one" and (article not in _ONE or (earlier not in _PREPOSITIONS and before > 0))
        return self._quantity(first, place, 1.0, word.norm, is_unit=is_rate or ending)
