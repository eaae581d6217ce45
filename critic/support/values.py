"""Compares the values of an answer (quantities, dates, times, identifiers, names) with those of its context.

    The warranty lasts two years.        duration  24 months, of warranty, last
    Call A-113 before 5 pm on 1 May.     identifier a113; time 17:00; date 1 May

A value of the answer is *equal* to one of the context after normalisation: units are converted, number words are read,
and an approximation ("about 90") and a rounded figure allow a tolerance. It is *computed* if it follows by one sum,
difference or product of values of its kind, of which the answer shows one; or if it is an age, a fraction or an
approximation inside a range of the context, or an example. Any other value is *different* if the context has values of
its kind, and *absent* if it has none.

An equal value can still be wrong: it may belong to another subject. Whether it does needs a model that reads.

>>> pairs = compare_values("It lasts 24 months.", "Three years.")
>>> [(pair.value.text, pair.relation, pair.closest.text) for pair in pairs]
[('Three years', 'different', '24 months')]
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import combinations

from critic.support.arithmetic import SMALL, TOLERANCE, Arithmetic, base_amount, first_number
from critic.support.date_reader import (
    CLOCK,
    CODE,
    DAY,
    DAY_MINUTES,
    DURATION,
    MONEY,
    PLAIN,
    SHARE,
    TIME,
    TITLE,
    WEEKDAYS,
    Parts,
    Value,
)
from critic.support.normal_forms import NAME, PEOPLE_ENDINGS, PEOPLES, WORD, read_words
from critic.support.value_reader import read_values

EQUAL, COMPUTED, ASKED, DIFFERENT, ABSENT = "equal", "computed", "in the question", "different", "absent"
_POUNDS = {"pound", "sterling"}  # of money, if the context says so
UNSUPPORTED = frozenset({DIFFERENT, ABSENT})
CALENDAR_DAYS = 30.44 * 24 * 60  # minutes of a month
_SEASONS = {"spring": (3, 4, 5), "summer": (6, 7, 8), "autumn": (9, 10, 11), "winter": (12, 1, 2)}  # months
_EXAMPLE = re.compile(
    r"\b(?:(?:some|any)(?:one|body)|an? (?:child|person|adult|patient|boy|girl|man|woman|employee|visitor|member|"
    r"item|claim|order|purchase|bill|contract))"
    r" (?:of|aged|weighing) |\b(?:for (?:example|instance),?|e\.g\.,?|say,) ",
    re.IGNORECASE,
)
ALIKE, MIN_NAME = 0.6, 4  # of the letters of two names; letters that a short form has
ABOUT, MONTH_TOLERANCE, DATA_TOLERANCE = 0.1, 0.09, 0.05  # two months are eight weeks, 2 GB 2,048 MB
EXACT = 1e-12  # without a conversion
MANY = 100  # an approximation of a smaller count needs a word in common


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of the answer with the value of the context that it was compared with.

    Args:
        relation: equal, computed, in the question, different or absent.
        closest: The equal value, or the value of the same kind with most words in common around it; None if absent.
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
    values = read_values(answer)
    arithmetic = Arithmetic([*known, *asked], context, f"{question} {answer}", [*asked, *values])
    free = [
        other
        for other in known
        if not any(
            value.kind == other.kind and _is_comparable(value, other) and _is_equal(value, other) for value in values
        )
    ]
    pairs = (_compare(value, known, free, asked, context, question, arithmetic) for value in values)
    found = [pair for pair in pairs if pair is not None]
    parts = [pair.value for pair in found if not pair.is_unsupported]
    has_name = any(pair.is_unsupported and pair.value.kind == TITLE for pair in found)
    spelled = set[int]()  # the places of names in the answer that the context abbreviates to initials, such as FLSA
    if has_name:
        short = set(re.findall(r"\b[A-Z]{2,6}(?=s?\b)", context))
        for run in re.finditer(r"[A-Z][\w'-]*(?: (?:of |and |the |for )*[A-Z][\w'-]*)+", answer):
            initials = "".join(re.findall(r"\b[A-Z]", run.group()))
            spelled |= {*range(*run.span())} if any(letters in initials for letters in short) else set()
    allowed = _find_examples(answer, [pair.value for pair in found], known)
    converted = {one.value.sentence for one in found if one.relation == COMPUTED and arithmetic.converts(one.value)}
    allowed |= {value.start for value in values if value.kind == DURATION and value.sentence in converted}  # a year
    return [
        replace(pair, relation=COMPUTED)
        if pair.is_unsupported
        and (_is_total(pair.value, parts) or pair.value.start in (spelled if pair.value.kind == TITLE else allowed))
        else pair
        for pair in found
    ]


def _compare(
    value: Value,
    known: Sequence[Value],
    free: Sequence[Value],
    asked: Sequence[Value],
    context: str,
    question: str,
    arithmetic: Arithmetic,
) -> Pair | None:
    """Compares one value; None if nothing follows from it: a small count, or an ordinal of something else."""
    alike = [other for other in known if _is_comparable(value, other)]
    ranked = sorted(alike, key=lambda other: (-len(value.heads & other.heads), other.start))
    for other in ranked:
        if _is_equal(value, other):
            return Pair(value, EQUAL, other, bool(value.heads & other.heads))
    if isinstance(value.amount, tuple) and (weekday := value.amount[3]):
        group = "weekend" if weekday in WEEKDAYS[5:] else "weekday"
        if re.search(rf"\b{group}s?\b", context, re.IGNORECASE):
            return Pair(value, EQUAL, None, False)
    if isinstance(value.amount, str) and _occurs(value, context):
        return Pair(value, EQUAL, None, False)
    if any(_is_comparable(value, other) and _is_equal(value, other) for other in asked) or (
        value.kind == TITLE and _occurs(value, question)
    ):
        return Pair(value, ASKED, None, False)
    # A short answer is about what was asked.
    heads = value.heads or {word.norm for word in read_words(question) if word.kind in (WORD, NAME)}
    rivals = [other for other in alike if other.kind == value.kind and _is_rival(value, other)]
    rivals.sort(key=lambda other: (-len(heads & other.heads), other.name != value.name, other.start))
    closest = next((other for other in rivals if other in free), None)  # not one that the answer has too
    if value.kind == TITLE and closest is not None:
        likeness = SequenceMatcher(None, value.text.lower(), closest.text.lower()).ratio()
        closest = closest if likeness > ALIKE else None  # another name says nothing about this one
    shares_head = closest is not None and bool(heads & closest.heads)
    if arithmetic.gives(value):
        return Pair(value, COMPUTED, closest, shares_head)
    is_count = value.kind == PLAIN and isinstance(value.amount, float) and value.amount <= SMALL
    if (is_count or value.is_ordinal) and not any(_counts_the_same(value, other) for other in rivals):
        return None
    if value.is_unit and not shares_head and any(one.text.endswith("ly") for one in (value, *rivals[:1])):
        return None  # "the monthly period" is no rate
    is_loose = (value.is_unit and not rivals) or value.text.lower().startswith("half ")
    if value.kind == DURATION and is_loose and not shares_head:
        return None  # "twice a day", "half a century": often an inference, as many were right as wrong
    if not rivals and value.kind == DURATION and arithmetic.may_be_between(value):
        return None
    return Pair(value, DIFFERENT if rivals else ABSENT, closest, shares_head)


def _is_total(value: Value, parts: Sequence[Value]) -> bool:
    """Whether a value is the sum of parts that the answer gives, as in "20 weeks: twelve paid and eight unpaid"."""
    alike = [part for part in parts if part.kind in (value.kind, PLAIN) and part.name in ("", value.name)]
    numbers = [first_number(part.text) for part in alike]
    return len(numbers) > 1 and None not in numbers and sum(filter(None, numbers)) == first_number(value.text)


def _find_examples(answer: str, values: Sequence[Value], known: Sequence[Value]) -> set[int]:
    """Finds values that an answer chose as an example.

    They follow "for example", are the age or the weight of some person, as in "a child of ten", or are two times that
    are a duration of the context apart, as in "applied at 8:00, dry at 8:25".

    Returns:
        Their first characters.
    """
    persons = {found.end() for found in _EXAMPLE.finditer(answer)}
    ages = {value.start for value in values if answer.startswith(("-old", " old"), value.end)}
    chosen = ages | {value.start for value in values if value.start in persons}
    lengths = {other.amount for other in known if other.kind == DURATION and other.unit == "time"}
    times = [(value, value.amount) for value in values if value.kind == TIME and isinstance(value.amount, float)]
    return chosen | {
        value.start
        for (one, mine), (two, its) in combinations(times, 2)
        if one.sentence == two.sentence and lengths & {abs(mine - its), DAY_MINUTES - abs(mine - its)}
        for value in (one, two)
    }


def _occurs(value: Value, text: str) -> bool:
    """Whether an identifier, or the beginning of a name, is anywhere in a text."""
    if value.kind == TITLE:
        name = value.text.lower().removesuffix("'s")
        if value.text.isupper() and name in "".join(word.lower[0] for word in read_words(text)):
            return True  # the initials of words, as BJT of "bipolar junction transistor"
        lower = text.lower()
        if (name in lower) if len(name) > MIN_NAME else re.search(rf"\b{re.escape(name)}", lower):
            return True
        return any(_is_same_name(name, word) for word in _words_of(text))
    return str(value.amount) in re.sub(r"[\W_]", "", text).lower()


def _is_same_name(name: str, word: str) -> bool:
    """Whether a word is a longer or a shorter form of a name, or one is a country and the other its people."""
    if name in PEOPLES and PEOPLES.get(word) == PEOPLES[name]:
        return True
    if name[:2] != word[:2]:  # most words
        return False
    shorter = min(len(name), len(word))
    common = next((place for place in range(shorter) if name[place] != word[place]), shorter)
    if common == shorter >= MIN_NAME:
        return True
    ends = name[common:], word[common:].removesuffix("s")
    return ends in PEOPLE_ENDINGS or ends[::-1] in PEOPLE_ENDINGS


@lru_cache(maxsize=8)
def _words_of(text: str) -> frozenset[str]:
    """Returns the words of a text in lower case."""
    return frozenset(re.findall(r"[^\W\d_]+", text.lower()))


def _counts_the_same(value: Value, other: Value) -> bool:
    """Whether two counts, ordinals or fractions are of one thing."""
    if value.kind == SHARE:
        return bool(value.heads & other.heads)
    if value.is_ordinal and value.amount == 1 and not other.is_ordinal:
        return False  # the first day, not one of three days
    return bool(value.noun & other.noun) or (value.is_open and bool(value.heads & other.heads))


def _is_rival(value: Value, other: Value) -> bool:
    """Whether another value of the same kind could stand in the place of this one."""
    if isinstance(value.amount, tuple) and isinstance(other.amount, tuple):
        return any(None not in pair for pair in zip(value.amount, other.amount, strict=True))
    return value.is_unit == other.is_unit


def _is_comparable(value: Value, other: Value) -> bool:
    """Whether two values can be equal: of one kind, or one of them a number without a unit."""
    if value.kind == other.kind:
        are_degrees = value.unit.startswith("degree") and other.unit.startswith("degree")
        return value.unit == other.unit or value.kind in (DAY, DURATION, MONEY) or are_degrees
    if {value.name, other.name} == _POUNDS:
        return True
    kinds = {value.kind, other.kind}
    return PLAIN in kinds and CODE not in kinds and not (value.is_unit or other.is_unit)


def _is_equal(value: Value, other: Value) -> bool:
    """Whether a value of the answer says the same as one of the context."""
    if isinstance(value.amount, tuple):  # 9 November of "by the 9th"
        return _is_date_of(value.amount, other.amount) or (
            other.is_ordinal and other.text[0].isdigit() and value.amount[2] == other.amount
        )
    if isinstance(other.amount, tuple):  # a year or a day alone
        year, _, day, *_ = other.amount
        return value.amount == year or (value.amount == day and (value.is_ordinal or value.is_open))
    if isinstance(value.amount, str) or isinstance(other.amount, str):
        return value.amount == other.amount
    is_pounds = {value.name, other.name} == _POUNDS
    if TIME in (value.kind, other.kind) and value.kind != other.kind:  # open from 8 to 17
        time, number = (value, other) if value.kind == TIME else (other, value)
        hours, minutes = number.amount, time.amount
        assert isinstance(hours, float) and isinstance(minutes, float), "dates and codes are compared above"
        return number.is_open and hours <= 24 and (minutes - 60 * hours) % 720 == 0
    if PLAIN in (value.kind, other.kind) and value.kind != other.kind and not is_pounds:
        bare, full = (value, other) if value.kind == PLAIN else (other, value)
        is_age = bare is not value and full.name == "year"  # adults over 18
        names = _POUNDS if full.name == "sterling" else {full.name}
        has_unit = bool(names & bare.noun) or (bare.is_open and not bare.is_ordinal and (bare is value or is_age))
        return has_unit and first_number(full.text) == bare.amount
    if (value.is_unit or other.is_unit) and value.unit != other.unit:
        return False
    mine: float = value.amount
    its: float = other.amount
    if is_pounds:
        mine, its = first_number(value.text) or 0.0, first_number(other.text) or 0.0
    if value.kind == other.kind == TIME and CLOCK in (value.name, other.name):
        return abs(mine - its) % 720 == 0  # before or after noon
    tolerance = TOLERANCE if value.name != other.name else EXACT
    if value.unit != other.unit and "degree f" in (value.unit, other.unit):  # rounded to a degree
        celsius, fahrenheit = (its, mine) if value.unit == "degree f" else (mine, its)
        is_unnamed = "degree" in (value.unit, other.unit) and mine == its
        return is_unnamed or abs(32 + 1.8 * celsius - fahrenheit) < 1
    if value.kind == MONEY and value.unit != other.unit and not is_pounds:
        if "cent" not in (value.unit, other.unit):
            return False
        mine, its = (base_amount(v) or 0.0 for v in (value, other))
    elif value.kind == DURATION and value.unit != other.unit:  # days and months
        mine, its = (
            amount * (CALENDAR_DAYS if v.unit == "calendar" else 1) for amount, v in ((mine, value), (its, other))
        )
        tolerance = MONTH_TOLERANCE
    elif value.unit == "data" and value.name != other.name:
        tolerance = DATA_TOLERANCE
    if abs(mine - its) <= tolerance * abs(its):
        return True
    if value.is_unit or other.is_unit or (value.is_ordinal and value.kind == PLAIN) or TIME in (value.kind, other.kind):
        return False
    if value.kind == other.kind == PLAIN and its < MANY and not value.heads & other.heads:
        return False  # fifteen calls are not 16 metres
    is_share = value.kind == SHARE and value.is_ordinal  # nearly half
    if value.approximation == "about" and abs(mine - its) <= (1.5 if is_share else 1) * ABOUT * abs(its):
        return True
    if value.approximation == "above" and is_share and 0.8 * its <= mine <= its:
        return True
    is_floor = mine == float(f"{its:.0e}") and len(_digits(mine)) == 1  # over 300 of 340
    if value.approximation == "above" and (0.9 * its <= mine <= its or (is_floor and mine < its)):
        return True
    most = 1.2 if len(_digits(value.amount)) < len(_digits(other.amount)) else 1.1
    if value.approximation == "below" and its <= mine <= most * its:
        return True
    # A figure of at least two digits may be the exact one, rounded to its digits.
    digits = len(_digits(mine))
    if digits < 2 or not its:
        return False
    return float(f"{its:.{digits}g}") == float(f"{mine:.{digits}g}") and abs(mine - its) < 0.03 * abs(its)


def _is_date_of(date: Parts, other: float | str | Parts) -> bool:
    """Whether another date has all parts of a date; years may be missing on either side."""
    year, *parts = date
    if not isinstance(other, tuple):
        return not any(parts) and year == other
    if None not in (year, other[0]) and year != other[0]:
        return False
    has_parts = any(part is not None for part in parts)
    is_same = all(part is None or part == its for part, its in zip(parts, other[1:], strict=True))
    if is_same and (has_parts or other[0] is not None):
        return True
    _, month, day, *_ = other  # spring is in May, and before April until 31 March
    if parts[3] and isinstance(month, int):
        return month in _SEASONS[str(parts[3])]
    is_month = isinstance(parts[0], int) and not any(parts[1:])
    return is_month and isinstance(month, int) and isinstance(day, int) and day >= 30 and parts[0] == month % 12 + 1


def _digits(amount: float) -> str:
    """Returns the significant digits of a number."""
    return f"{amount:.10g}".replace(".", "").strip("0")
