"""Reads the values of a text (quantities, dates, times, identifiers) and compares those of an answer with its context.

    The warranty lasts two years.        duration  24 months, of warranty, last
    Call A-113 before 5 pm on 1 May.     identifier a113; time 17:00; date 1 May

A value of the answer is *equal* to one of the context after normalisation: units are converted, number words are read,
an approximation ("about 90") and a rounded figure allow a tolerance, and a value inside a range of the context belongs
to it. A value that follows from the context by one sum, difference or product of values of its kind is *computed*. Any
other value is *different* if the context has values of its kind, and *absent* if it has none.

An equal value can still be wrong: it may belong to another subject. Whether it does needs a model that reads.

>>> [(pair.value.text, pair.relation, pair.closest.text) for pair in compare_values("It lasts 24 months.", "Three years.")]
[('Three years', 'different', '24 months')]
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from critic.support.normal_forms import (
    CONTENT,
    CURRENCIES,
    DATE,
    NAME,
    NUMBER,
    STOP,
    UNIT,
    WORD,
    Word,
    convert,
    read_words,
)

EQUAL, COMPUTED, ASKED, DIFFERENT, ABSENT = "equal", "computed", "in the question", "different", "absent"
UNSUPPORTED = frozenset({DIFFERENT, ABSENT})
DURATION, MONEY, SHARE, DAY, TIME, PLAIN, CODE = "duration", "money", "percentage", "date", "time", "number", "identifier"
MEASURE, TITLE = "quantity", "name"
CALENDAR_DAYS = 30.44 * 24 * 60  # minutes of a month
SMALL = 12  # counts up to this are often made by counting what the context lists
TOLERANCE, ABOUT, MONTH_TOLERANCE = 1e-4, 0.1, 0.085
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
_HALVES, _DOUBLES = frozenset({"half", "halve", "halved", "halves"}), frozenset({"double", "doubles", "doubled", "twice", "both", "two"})
_EACHES = frozenset({"each", "per", "times", "every", "apiece"})
_NO_NAMES = frozenset("i i'm i've i'd i'll ok".split())
_CUES = _HALVES | _DOUBLES | _EACHES
_SIGNS = {"½": 0.5, "¼": 0.25, "¾": 0.75}
_ISO = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})\b")
_NUMERIC_DATE = re.compile(r"\b(\d{1,2})[./](\d{1,2})[./](\d{4}|\d{2})\b")
_CODE = re.compile(r"\b(?=[A-Za-z-]*\d)(?=\d*-?[A-Za-z])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\b")
_MEASURED = re.compile(r"\d+(?:st|nd|rd|th|am|pm|[a-zA-Z]{1,3})|\d+(?:-[a-zA-Z]{3,})+", re.IGNORECASE)  # 5th, 10mg, 24-hour
_TIME = re.compile(r"\b(\d{1,2})(?:[:.](\d{2}))?\s?([ap])\.?\s?m\b\.?", re.IGNORECASE)
_PARTS_OF_DAY = {"morning": 0, "afternoon": 720, "evening": 720, "night": 720}
_BEFORE_TIME = frozenset("at by from to until till between and past after before around".split())
_PREPOSITIONS = frozenset("within for after of in than least most to about roughly over have almost under up until".split())
_RANGE_WORDS = frozenset({"to", "and", "until", "till", "through"})
_RANGE_SIGNS = frozenset({"-", "–", "—"})


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
    amount: float | str | tuple[int | str | None, ...]
    heads: frozenset[str]
    approximation: str = ""
    sentence: int = 0
    noun: frozenset[str] = frozenset()
    name: str = ""
    is_ordinal: bool = False
    is_unit: bool = False
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of the answer with the value of the context that it was compared with.

    Args:
        relation: equal, computed, in the question, different or absent.
        closest: The equal value; or else the one of the same kind whose surroundings share most words; None if absent.
        shares_head: The surroundings share a word.
    """

    value: Value
    relation: str
    closest: Value | None
    shares_head: bool

    @property
    def is_unsupported(self) -> bool:
        """Whether the context neither has the value nor implies it."""
        return self.relation in UNSUPPORTED


def compare_values(context: str, answer: str, question: str = "") -> list[Pair]:
    """Compares each value of an answer with those of its context; a value of the question is not judged."""
    known, asked = read_values(context), read_values(question) if question else ()
    cues = _CUES & {word for text in (context, question, answer) for word in re.findall(r"[a-z]+", text.lower())}
    values = read_values(answer)
    answered = {number for number, other in enumerate(known) if any(_is_same(value, other) for value in values)}
    free = [other for number, other in enumerate(known) if number not in answered]
    pairs = (_compare(value, known, free, asked, context, question, cues) for value in values)
    return [pair for pair in pairs if pair is not None]


def _compare(value: Value, known: Sequence[Value], free: Sequence[Value], asked: Sequence[Value], context: str, question: str, cues: Set[str]) -> Pair | None:
    """Compares one value; None if nothing follows from it: a small count, or an ordinal of something else."""
    alike = [other for other in known if _is_comparable(value, other)]
    ranked = sorted(alike, key=lambda other: (-len(value.heads & other.heads), other.start))
    for other in ranked:
        if _is_equal(value, other):
            return Pair(value, EQUAL, other, bool(value.heads & other.heads))
    if isinstance(value.amount, str) and _occurs(value, context):
        return Pair(value, EQUAL, None, False)
    if any(_is_comparable(value, other) and _is_equal(value, other) for other in asked) or (
        value.kind == TITLE and _occurs(value, question)
    ):
        return Pair(value, ASKED, None, False)
    rivals = [other for other in ranked if other.kind == value.kind and _is_rival(value, other)]
    closest = next((other for other in rivals if other in free), None)  # not one that the answer has too
    shares_head = closest is not None and bool(value.heads & closest.heads)
    if not value.is_unit and (_is_inside_range(value, alike, context) or _is_computed(value, [*known, *asked], cues)):
        return Pair(value, COMPUTED, closest, shares_head)
    is_count = value.kind == PLAIN and isinstance(value.amount, float) and value.amount <= SMALL
    if (is_count or value.is_ordinal) and not any(_counts_the_same(value, other) for other in rivals):
        return None
    if not rivals and (value.is_unit or (isinstance(value.amount, tuple) and value.amount[4])):
        return None
    return Pair(value, DIFFERENT if rivals else ABSENT, closest, shares_head)


def _occurs(value: Value, text: str) -> bool:
    """Whether an identifier, or the beginning of a name, is anywhere in a text."""
    if value.kind == TITLE:
        return value.text.lower().removesuffix("'s")[:5] in text.lower()
    return str(value.amount) in re.sub(r"[\W_]", "", text).lower()


def _counts_the_same(value: Value, other: Value) -> bool:
    """Whether two counts, ordinals or fractions are of one thing."""
    if value.kind == SHARE:
        return bool(value.heads & other.heads)
    if value.is_ordinal and value.amount == 1 and not other.is_ordinal:
        return False  # the first day, not one of three days
    return bool(value.noun & other.noun) or (value.is_open and bool(value.heads & other.heads))


def _is_same(value: Value, other: Value) -> bool:
    return value.kind == other.kind and _is_comparable(value, other) and _is_equal(value, other)


def _is_rival(value: Value, other: Value) -> bool:
    """Whether another value of the same kind could stand in the place of this one."""
    if isinstance(value.amount, tuple) and isinstance(other.amount, tuple):
        return any(None not in pair for pair in zip(value.amount, other.amount, strict=True))
    return value.is_unit == other.is_unit


def _is_comparable(value: Value, other: Value) -> bool:
    """Whether two values can be equal: of one kind, or one of them a number without a unit."""
    if value.kind == other.kind:
        degrees = value.unit.startswith("degree") and other.unit.startswith("degree") and "degree" in (value.unit, other.unit)
        return value.unit == other.unit or value.kind in (DAY, DURATION, MONEY) or degrees
    kinds = {value.kind, other.kind}
    return PLAIN in kinds and CODE not in kinds and not (value.is_unit or other.is_unit)


def _is_equal(value: Value, other: Value) -> bool:
    if isinstance(value.amount, tuple) and isinstance(other.amount, tuple):
        pairs = list(zip(value.amount, other.amount, strict=True))
        years, *parts = pairs
        if None not in years and years[0] != years[1]:
            return False
        has_parts = any(mine is not None for mine, _ in parts)
        return all(mine is None or mine == its for mine, its in parts) and (has_parts or years[1] is not None)
    if isinstance(value.amount, tuple) or isinstance(other.amount, tuple):
        date, number = (value, other) if isinstance(value.amount, tuple) else (other, value)
        is_year = all(part is None for part in date.amount[1:]) if isinstance(date.amount, tuple) else False
        return number.amount in date.amount[:3] if number is value else is_year and number.amount == date.amount[0]
    if isinstance(value.amount, str) or isinstance(other.amount, str):
        return value.amount == other.amount
    if TIME in (value.kind, other.kind) and value.kind != other.kind:  # open from 8 to 17
        time, number = (value, other) if value.kind == TIME else (other, value)
        return number.is_open and time.amount in (number.amount * 60, number.amount * 60 + 720)
    if PLAIN in (value.kind, other.kind) and value.kind != other.kind:
        bare, full = (value, other) if value.kind == PLAIN else (other, value)
        can_be_elliptic = bare.is_open and not bare.is_ordinal and (bare is value or full.name == "year")  # adults over 18
        has_unit = full.name in bare.noun or can_be_elliptic
        return has_unit and _first_number(full.text) == bare.amount
    if (value.is_unit or other.is_unit) and value.unit != other.unit:
        return False
    mine, its, tolerance = value.amount, other.amount, TOLERANCE
    if value.kind == MONEY and value.unit != other.unit:
        if "cent" not in (value.unit, other.unit):
            return False
        mine, its = (amount / (100 if v.unit == "cent" else 1) for amount, v in ((mine, value), (its, other)))
    elif value.kind == DURATION and value.unit != other.unit:  # days and months
        mine, its = (
            amount * (CALENDAR_DAYS if v.unit == "calendar" else 1) for amount, v in ((mine, value), (its, other))
        )
        tolerance = MONTH_TOLERANCE
    if abs(mine - its) <= tolerance * abs(its):
        return True
    if value.is_unit or other.is_unit or value.is_ordinal or TIME in (value.kind, other.kind):
        return False
    if value.approximation == "about" and abs(mine - its) <= ABOUT * abs(its):
        return True
    is_rounder = len(_digits(value.amount)) < len(_digits(other.amount))
    if is_rounder and value.approximation == "above" and 0.75 * its <= mine <= its:
        return True
    if is_rounder and value.approximation == "below" and its <= mine <= 1.3 * its:
        return True
    return _is_rounded(mine, its)


def _is_rounded(value: float, exact: float) -> bool:
    """Whether a figure of at least two digits is the exact one, rounded to its digits."""
    digits = _digits(value)
    if len(digits) < 2 or not exact:
        return False
    return float(f"{exact:.{len(digits)}g}") == float(f"{value:.{len(digits)}g}") and abs(value - exact) < 0.03 * abs(exact)


def _digits(amount: float) -> str:
    """Returns the significant digits of a number."""
    return f"{amount:.10g}".replace(".", "").strip("0")


def _is_inside_range(value: Value, alike: Sequence[Value], context: str) -> bool:
    """Whether the value lies between the ends of a range of the context, as 30 in "20 to 60 mm"."""
    if not isinstance(value.amount, float):
        return False
    ordered = sorted((other for other in alike if isinstance(other.amount, float)), key=lambda other: other.start)
    for low, high in zip(ordered, ordered[1:], strict=False):
        between = context[low.end : high.start].strip().lower()
        is_range = between in _RANGE_SIGNS or between == "to" or (between == "and" and "between" in context[max(0, low.start - 9) : low.start].lower())
        if is_range and isinstance(low.amount, float) and isinstance(high.amount, float) and low.amount < value.amount < high.amount:
            return True
    return False


def _is_computed(value: Value, given: Sequence[Value], cues: Set[str]) -> bool:
    """Whether one sum, difference or product of values of the context, in the same unit, gives the value.

    Args:
        cues: The words of context, question and answer: a product needs "each", "per" or "times", a half "half".
    """
    if not isinstance(value.amount, float) or value.is_ordinal or (value.kind == PLAIN and value.amount <= SMALL):
        return False
    alike = [v for v in given if v.kind == value.kind and v.name == value.name and not v.is_unit and not v.is_ordinal]
    numbers = [(v.amount, v.sentence) for v in alike if isinstance(v.amount, float)]
    found = [100 - amount for amount, _ in numbers] if value.kind == SHARE else []
    if value.kind != SHARE or value.noun & {"point"}:
        for place, (one, sentence) in enumerate(numbers):
            near = takewhile(lambda number: number[1] <= sentence + 1, numbers[place + 1 :])  # in the order of the text
            found += [result for other, _ in near for result in (one + other, abs(one - other))]
    if _HALVES & cues:
        found += [amount / 2 for amount, _ in numbers]
    if _DOUBLES & cues and value.kind != DURATION:
        found += [2 * amount for amount, _ in numbers]
    if _EACHES & cues and value.kind not in (SHARE, DURATION):
        others = (v for v in given if v.kind not in (SHARE, DAY, TIME, CODE, TITLE) and v.name != value.name)
        counts = {count for v in others if (count := _first_number(v.text)) is not None and count > 1}
        found += [amount * round(value.amount / amount) for amount, _ in numbers if amount and round(value.amount / amount) in counts]
    times = [v.amount for v in given if v.kind == TIME and isinstance(v.amount, float)] if value.kind == DURATION else []
    found += [(two - one) % 1440 for one, two in zip(times, times[1:], strict=False)]
    return any(_close(value.amount, result) for result in found)


def _close(one: float, other: float) -> bool:
    return other != 0 and abs(one - other) <= TOLERANCE * abs(other)


def _first_number(text: str) -> float | None:
    found = next((word for word in read_words(text) if word.kind == NUMBER), None)
    try:
        return float(found.norm) if found else None
    except ValueError:
        return None


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

    def _make(self, first: int, last: int, kind: str, unit: str, amount: float | str | tuple[int | str | None, ...], name: str = "", **more: bool) -> Value:
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
        sentence, found = self.words[first].sentence, []
        for places in (range(first - 1, -1, -1), range(last + 1, len(self.words))):
            near = []
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
            elif word.lower in _SEASONS and (word.lower != "fall" or (place and words[place - 1].lower in ("in", "the", "of"))):
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
            return place - 1 if self._between(place - 1, place) in _RANGE_SIGNS else None
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
        return word.kind == NUMBER and word.end - word.start == 4 and word.norm.isdigit() and 1500 <= int(word.norm) <= 2100

    def _unit_behind(self, place: int) -> int | None:
        """Finds the place of the unit of a number: at most one adjective is between them."""
        words, sentence = self.words, self.words[place].sentence
        for step in (1, 2):
            behind = place + step
            if behind >= len(words) or words[behind].sentence != sentence or self.used[behind]:
                return None
            if words[behind].kind == UNIT:
                return behind
            if words[behind].lower not in _ADJECTIVES and not (step == 1 and words[behind].kind == WORD and words[behind].lower.endswith("ing")):
                return None
        return None

    def _read_number(self, place: int) -> Value | None:
        """Reads a number with its unit, a time of day, or a fraction of a unit."""
        word = self.words[place]
        if word.lower in _TIMES:
            return self._make(place, place, TIME, TIME, float(_TIMES[word.lower]))
        is_fraction = word.lower in _FRACTIONS and (word.lower != "third" or self._lower(place - 1, place) in (["a"], ["one"]))
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
        if amount >= 100 and word.lower[0].isalpha() and self._lower(place + 1, place + 2) == ["and"]:
            rest = self.words[place + 2] if place + 2 < len(self.words) else word
            if rest.kind == NUMBER and rest.lower[0].isalpha() and rest.norm.isdigit() and int(rest.norm) < 100 <= amount:
                amount, last, self.used[place + 2] = amount + int(rest.norm), place + 2, True
        if (time := self._time_in_words(place, amount)) is not None:
            return time
        is_ordinal = word.lower in _ORDINALS or self.text[word.end - 2 : word.end].lower() in ("st", "nd", "rd", "th")
        start = last
        if place and self.words[place - 1].norm in CURRENCIES and self.words[place - 1].sentence == word.sentence:
            first, unit = place - 1, self.words[place - 1].norm
            scale = re.match(r"(m|mn|bn|k)\b", self.text[word.end : word.end + 3])
            amount *= {"m": 1e6, "mn": 1e6, "bn": 1e9, "k": 1e3}[scale[1]] if scale else 1
        elif not is_ordinal and (found := self._unit_behind(start)) is not None:
            last, unit = found, self.words[found].norm
            following = self._lower(last + 1, last + 2)
            if unit == "degree" and following and following[0] in ("c", "f", "celsius", "fahrenheit"):
                last, unit = last + 1, f"degree {following[0][0]}"
        elif not is_ordinal and (half := self._and_a_half(place)) is not None:
            amount, last, unit = amount + 0.5, half, self.words[half].norm
        else:
            unit = ""
        if unit and not is_ordinal and last > place and self._lower(last + 1, last + 4) == ["and", "a", "half"]:
            amount, last = amount + 0.5, last + 3
        if not unit and not is_ordinal:
            unit = self._unit_of_range(start)
        return self._quantity(first, last, amount, unit, is_ordinal=is_ordinal)

    def _quantity(self, first: int, last: int, amount: float, unit: str, *, is_ordinal: bool = False, is_unit: bool = False) -> Value:
        if not unit:
            return self._make(first, last, PLAIN, PLAIN, amount, is_ordinal=is_ordinal)
        dimension, factor = convert(unit)
        kind = {"time": DURATION, "calendar": DURATION, "percent": SHARE}.get(dimension, MONEY if unit in CURRENCIES else MEASURE)
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
        part = behind[2] if behind[:2] == ["in", "the"] and len(behind) > 2 else behind[1] if behind[:1] == ["at"] and behind[1:] else ""
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
        second = place + 1 if self._between(place, place + 1) in _RANGE_SIGNS else place + 2
        joins = second == place + 1 or self.words[place + 1].lower in (*_RANGE_WORDS, "or")
        if not joins or second >= len(self.words) or self.words[second].kind != NUMBER or self.words[second].sentence != self.words[place].sentence:
            return ""
        unit = self._unit_behind(second)
        return self.words[unit].norm if unit is not None else ""

    def _read_fraction(self, place: int) -> Value | None:
        """Reads "half an hour" and "a quarter of a year" as durations, "half", "a third" and "two thirds" as shares."""
        word, before = self.words[place].lower, self._lower(max(0, place - 1), place)
        times = {"two": 2.0, "three": 3.0}.get(before[0], 1.0) if before else 1.0
        behind = [p for p in range(place + 1, min(place + 4, len(self.words))) if self.words[p].lower not in ("of", "a", "an", "the")]
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
        ending = word.lower.endswith("ly") and word.lower in ("hourly", "daily", "weekly", "monthly", "quarterly", "yearly", "annually")
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
