"""Reads the dates, times of day and identifiers of a text, each with the words around it.

1 October 2024; October 1; 1 to 3 October; 2026-05-03; Monday; spring      date
5 pm; 17:00; seven in the morning; noon                                    time
A-113                                                                      identifier
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from critic.support.normal_forms import CONTENT, CURRENCIES, DATE, NAME, NUMBER, UNIT, WORD, Word

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
_DAY_NAMES = tuple("monday tuesday wednesday thursday friday saturday sunday".split())
WEEKDAYS = tuple(name[:3] for name in _DAY_NAMES)
HEAD_WORDS = 3  # content words on each side that say what a value is about
_ABOUT = frozenset("about around roughly approximately approx some nearly almost circa close".split())
_ABOVE, _BELOW = frozenset("over above exceeding".split()), frozenset("under below".split())
ADJECTIVES = frozenset(
    "working business calendar full whole square cubic consecutive metric single extra paid unpaid fully".split()
)
_SEASONS = {"spring": "spring", "summer": "summer", "autumn": "autumn", "fall": "autumn", "winter": "winter"}
_LABELS = frozenset(
    "section sections step art article page chapter day phase level no number version paragraph".split()
)
_QUOTED = re.compile(r' ["“][^"“”.]{1,40}["”] ')
_ISO = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})\b")
_NUMERIC_DATE = re.compile(r"\b(\d{1,2})[./](\d{1,2})[./](\d{4}|\d{2})\b")
_ADDRESS = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,8}"  # an e-mail address
    r"|\b(?:https?://|www\.)[^\s<>\"')\]]{0,2000}[\w/]"
    r"|(?<![\w./-])(?:[\w.-]{1,64}/){1,20}[\w.-]{1,64}\.[A-Za-z]\w{0,4}\b"  # a path of a file
    r"|\b[A-Za-z]\w*_\w+\b"  # a name in code
)
_CODE = re.compile(r"\b(?=[A-Za-z-]{0,64}\d)(?=\d*-?[A-Za-z])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\b")
_MEASURED = re.compile(
    r"\d+(?:st|nd|rd|th|am|pm|[a-zA-Z]{1,3})|\d+(?:st|nd|rd|th)?(?:-[a-zA-Z]{2,})+|[a-z]{3,}-\d+s?|\d*(?-i:[kcm]?m[23])",
    re.IGNORECASE,
)  # 5th, 10mg, 24-hour, 9th-grade, mid-1990s, 72m2
_TIME = re.compile(r"\b(\d{1,2})(?:[:.](\d{2}))?\s?([ap])\.?\s?m\b\.?", re.IGNORECASE)
_HOURS = {
    name: hour
    for hour, name in enumerate("midnight one two three four five six seven eight nine ten eleven twelve".split())
}
_CLOCK = re.compile(
    r"\b(?P<minutes>(?:a )?quarter|half|five|ten|twenty|twenty-five|5|10|20|25)(?: minutes)? "
    rf"(?P<side>past|to|after|before) (?P<hour>{'|'.join(_HOURS)}|noon|1[0-2]|[1-9])\b(?![:.]\d)",
    re.IGNORECASE,
)
_MINUTES = {"quarter": 15, "half": 30, "five": 5, "ten": 10, "twenty": 20, "twenty-five": 25}
CLOCK = "clock"  # the name of a time that may be before or after noon, as half past six
_PARTS_OF_DAY = {"morning": 0, "afternoon": 720, "evening": 720, "night": 720}
_DAY_PARTS = frozenset({*_PARTS_OF_DAY, "am", "pm"})
_AT = frozenset("at until till by before after around about since".split())
DAY_MINUTES = 24 * 60
_BEFORE_TIME = frozenset("at by from to until till between and past after before around".split())
RANGE_WORDS = frozenset({"to", "and", "until", "till", "through"})
RANGE_SIGNS = frozenset({"-", "–", "—"})
Parts = tuple[int | str | None, ...]  # of a date: year, month, day, weekday, season
_MONTHS = {
    name: number
    for number, name in enumerate(
        "january february march april may june july august september october november december".split(), 1
    )
}


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


class DateReader:
    """Reads the dates, times and identifiers of one text from its words; a word belongs to one value at most."""

    def __init__(self, text: str, words: Sequence[Word]):
        self.text, self.words = text, words
        self.used = [False] * len(words)
        self.starts = [word.start for word in words]
        self.nouns = [place for place, word in enumerate(words) if word.kind in (WORD, NAME)]
        self.units: dict[int, set[str]] = {}  # of each sentence
        for word in words:
            if word.kind == UNIT:
                self.units.setdefault(word.sentence, set()).add(word.norm)

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
        behind = self.words[last + 1 : last + 3]
        found = {w.norm for w in behind if w.kind in CONTENT and w.sentence == sentence}
        if self._is_open(last):  # it may have the unit of a number of this sentence, or of the two before it
            found.update(*(self.units.get(near, ()) for near in (sentence, sentence - 1, sentence - 2)))
        return frozenset(found)

    def _is_open(self, last: int) -> bool:
        behind = self.words[last + 1] if last + 1 < len(self.words) else None
        word = self.words[last]
        if (last and self.words[last - 1].lower in _LABELS) or self.text[word.end : word.end + 2] == " |":
            return False  # page 2; a cell of a table
        is_first = not last or self.words[last - 1].sentence < word.sentence
        if is_first and self.text.startswith((".", ")"), word.end):
            return False  # the number of an item
        is_joined = behind is not None and behind.sentence == self.words[last].sentence and not behind.after_break
        return not is_joined or behind is None or behind.kind not in (WORD, NAME, UNIT)

    def _heads(self, first: int, last: int) -> frozenset[str]:
        """Collects the normal forms of the content words of the sentence that are nearest to a value."""
        before, behind = bisect_left(self.nouns, first), bisect_right(self.nouns, last)
        near = self.nouns[max(0, before - HEAD_WORDS) : before] + self.nouns[behind : behind + HEAD_WORDS]
        found = (self.words[place] for place in near)
        return frozenset(word.norm for word in found if word.sentence == self.words[first].sentence)

    def _approximation(self, first: int, last: int) -> str:
        if self._lower(last + 1, last + 3) == ["or", "so"]:
            return "about"
        sentence = self.words[first].sentence
        before = [word.lower for word in self.words[max(0, first - 4) : first] if word.sentence == sentence]
        before = (before[:-1] if before[-1:] in (["a"], ["an"], ["the"]) else before)[-3:]  # less than a fifth
        near = before[-2:]
        if before[:1] == ["no"]:
            return ""  # no more than
        if _ABOUT & set(near):
            return "about"
        if _ABOVE & set(near) or near == ["more", "than"]:
            return "above"
        return "below" if _BELOW & set(near) or near in (["less", "than"], ["fewer", "than"], ["not", "quite"]) else ""

    def _places(self, start: int, end: int) -> tuple[int, int] | None:
        """Finds the first and the last unused word that overlaps some characters."""
        first = max(0, bisect_right(self.starts, start) - 1)
        span = range(first, bisect_left(self.starts, end))
        found = [place for place in span if start < self.words[place].end and not self.used[place]]
        return (found[0], found[-1]) if found and not any(self.used[found[0] : found[-1] + 1]) else None

    def _read_patterns(self) -> Iterator[Value]:
        """Reads addresses, dates in figures, and identifiers such as A-113."""
        for found in _ADDRESS.finditer(self.text):
            if places := self._places(*found.span()):
                address = re.sub(r"^(https?://)?(www\.)?", "", found.group().lower())
                yield self._make(*places, CODE, CODE, re.sub(r"[\W_]", "", address))
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
        yield from self._read_clock()
        for found in _CODE.finditer(self.text):
            if _MEASURED.fullmatch(found.group()) or not (places := self._places(*found.span())):
                continue
            yield self._make(*places, CODE, CODE, re.sub(r"[\W_]", "", found.group()).lower())

    def _read_clock(self) -> Iterator[Value]:
        """Reads "quarter to seven", "half past two in the afternoon", "at twenty past six"."""
        for found in _CLOCK.finditer(self.text):
            places = self._places(*found.span())
            if places is None:
                continue
            first, last = places
            minutes, behind = found["minutes"].lower().removeprefix("a "), self._part_of_day(last)
            is_sure = minutes in ("quarter", "half") or behind or set(self._lower(first - 1, first)) & _AT
            if not is_sure or (minutes == "half" and found["side"] != "past") or self._unit_behind(last) is not None:
                continue  # "ten to twelve people", "half to two thirds"
            hour, past = found["hour"].lower(), _MINUTES.get(minutes) or int(minutes)
            is_named = hour in ("noon", "midnight")
            time = 60 * ((_HOURS[hour] if hour in _HOURS else 12 if hour == "noon" else int(hour)) % 12)
            time += past if found["side"] in ("past", "after") else -past
            time = (time + (_PARTS_OF_DAY[behind] if behind else 720 * (hour == "noon"))) % DAY_MINUTES
            yield self._make(first, last, TIME, TIME, float(time), "" if behind or is_named else CLOCK)

    def _part_of_day(self, place: int) -> str:
        """Finds the part of the day behind a time, as in "in the morning" or "at night"; empty if there is none."""
        behind = self._lower(place + 1, place + 4)
        part = behind[2:3] if behind[:2] == ["in", "the"] else behind[1:2] if behind[:1] == ["at"] else behind[:1]
        return {"am": "morning", "pm": "evening"}.get(part[0], part[0]) if part and part[0] in _DAY_PARTS else ""

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
                elif (number := self._day(place + 1)) is not None and self._unit_behind(place + 1) is None:
                    day, last = number, place + 1
                if self._is_year(last + 1) and words[last + 1].sentence == word.sentence:
                    year, last = int(words[last + 1].norm), last + 1
                month = _MONTHS[word.norm]
                earlier = self._range_start(first) if day is not None else None
                yield self._make(first, last, DAY, DAY, (year, month, day, None, None))
                if earlier is not None:
                    yield self._make(earlier, earlier, DAY, DAY, (year, month, self._day(earlier), None, None))
            elif word.kind == DATE or word.lower.removesuffix("s") in _DAY_NAMES:
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
        if place >= 2 and self.words[place - 1].lower in RANGE_WORDS and self._day(place - 2) is not None:
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
        return int(norm) if norm.isdecimal() and 1 <= int(norm) <= 31 else None

    def _is_year(self, place: int) -> bool:
        if not 0 <= place < len(self.words):
            return False
        word = self.words[place]
        return (
            word.kind == NUMBER
            and word.end - word.start == 4
            and word.norm.isdecimal()
            and 1500 <= int(word.norm) <= 2100
        )

    def _unit_behind(self, place: int) -> int | None:
        """Finds the place of the unit of a number: at most one adjective is between them."""
        words, sentence = self.words, self.words[place].sentence
        if quoted := _QUOTED.match(self.text, words[place].end):  # ten "keep in touch" days
            place = next((n for n in range(place, len(words)) if words[n].end > quoted.end()), place) - 1
        for step in (1, 2):
            behind = place + step
            if behind >= len(words) or words[behind].sentence != sentence or self.used[behind]:
                return None
            if words[behind].kind == UNIT:
                return behind
            if words[behind].lower not in ADJECTIVES and not (
                step == 1 and words[behind].kind == WORD and words[behind].lower.endswith("ing")
            ):
                return None
        return None

    def _lower(self, begin: int, end: int) -> list[str]:
        return [word.lower for word in self.words[begin:end]]

    def _time_in_words(self, place: int, hour: float) -> Value | None:
        """Reads "11 o'clock", "from 11 to 15 o'clock", "seven in the morning", "from 1 to 3 pm"."""
        if not 0 < hour <= 24 or hour != int(hour):
            return None
        before, words = self._lower(place - 1, place) if place else [], self.words
        at = place
        if place + 2 < len(words) and words[place + 1].lower in RANGE_WORDS and words[place + 2].kind == NUMBER:
            at = place + 2
        behind = self._lower(at + 1, at + 4)
        if behind[:1] == ["o'clock"]:
            part = self._part_of_day(at + 1)
            time = 60 * (hour % 12) + _PARTS_OF_DAY[part] if part and hour <= 12 else 60 * hour
            name = CLOCK if hour <= 12 and not part else ""
            return self._make(place, place + (at == place), TIME, TIME, time, name)
        part = self._part_of_day(at) if behind[:1] in (["in"], ["at"]) else ""
        is_count = before[:1] == ["and"] and "between" not in self._lower(max(0, place - 8), place)  # two puffs and two
        if part in _PARTS_OF_DAY and hour <= 12 and before and before[0] in _BEFORE_TIME and not is_count:
            return self._make(place, place, TIME, TIME, 60 * (hour % 12) + _PARTS_OF_DAY[part])
        return None
