"""Decides whether a value of an answer follows from those of its context by one step of arithmetic.

    The first 12 weeks are paid in full, the next 8 at 60 percent.     20 weeks, 12 + 8 weeks
    From 11.80 to 12.40 euros per square metre.                        60 cents, 12.40 - 11.80 euros
    Open until 7 pm, from May two hours longer.                        9 pm, 7 pm + 2 hours
    From May until August; 60 monthly instalments.                     three months; five years
    29 euros a month.                                                  348 euros a year

>>> from critic.support.value_reader import read_values
>>> context = "The ride takes 3 h 20 min."
>>> Arithmetic(read_values(context), context, "").gives(read_values("200 minutes")[0])
True
"""

import re
from collections.abc import Iterator, Sequence, Set
from datetime import date, timedelta
from functools import cached_property
from itertools import combinations, pairwise, permutations

from critic.support.date_reader import (
    CODE,
    DAY,
    DAY_MINUTES,
    DURATION,
    MEASURE,
    MONEY,
    PLAIN,
    RANGE_SIGNS,
    SHARE,
    TIME,
    TITLE,
    WEEKDAYS,
    Parts,
    Value,
)
from critic.support.normal_forms import NUMBER, UNIT, Word, convert, parse_number, read_words

SMALL = 12  # counts up to this are often made by counting what the context lists
SOME_YEAR, MAX_YEARS, MAX_TIMES = 2001, 110, 50
RATE_CHARACTERS = 30  # between a number and its rate, as in "29 euros for members per month"
_AGES = frozenset({"age", "aged", "old", "at"})
TOLERANCE = 1e-4
_HALVES = frozenset({"half", "halve", "halved", "halves"})
_DOUBLES = frozenset({"double", "doubles", "doubled", "twice", "both", "couple", "return"})
_EACHES = frozenset({"each", "per", "times", "every", "apiece"})
_MORE = frozenset(
    "more less fewer extra difference higher lower longer shorter later earlier dearer cheaper heavier lighter older "
    "younger larger smaller bigger deeper wider faster slower taller save saves saved adds added "
    "rose rises fell falls grew grows increased increases decreased dropped drops raised reduced "
    "majority".split()
)
_COMPARED = re.compile(r" (?:(less|fewer|lower|below)|more|higher|above) (?:than )?(?:in|a|the|last)\b")
_REST = frozenset("other others rest remaining left lack".split())
_SHIFTS = frozenset(
    "before after later earlier longer shorter ahead ago next following previous within until by".split()
)
_LIMITS = frozenset({"within", "until", "by"})  # in a context they bound a duration, and shift no date
_NEXT_DAY = re.compile(
    r"\b(tomorrow|yesterday|eve|(next|following|previous) (day|morning|evening|night)|"
    r"(day|night|evening) (before|after))\b",
    re.IGNORECASE,
)
# How many of a period another has, such as the months of a year.
_PERIODS = {("month", "year"): 12.0, ("quarter", "year"): 4.0, ("week", "year"): 52.0, ("day", "year"): 365.0}
_PERIODS |= {("month", "quarter"): 3.0, ("week", "month"): 4.0, ("day", "week"): 7.0}
_PERIODS |= {(whole, part): 1 / times for (part, whole), times in _PERIODS.items()}
_TOTALS = frozenset("total totals totally altogether together sum sums combined overall all".split())
_CUES = _TOTALS | _HALVES | _DOUBLES | _EACHES | _MORE | _SHIFTS | _REST | _AGES


class Arithmetic:
    """One step of arithmetic with the values of a context and a question.

    Question or answer must have a number that a sum, a difference or a product starts from, or words such as
    "altogether" and "how many"; "more" and the like suffice for a difference. A product also needs a word such as
    "each", and a half "half" anywhere, the double "twice" in the same sentence or in the answer.

    Args:
        given: The values of context and question.
        context: The text that the first of them are from.
        answer: Question and answer.
        answered: The values of the two.
    """

    def __init__(self, given: Sequence[Value], context: str, answer: str, answered: Sequence[Value] = ()):
        self.answered = answered
        self._all_given = given
        self.given = [value for value in given if not (value.is_unit or value.is_ordinal or value.kind == TITLE)]
        self.context, self.answer = context, answer

    @cached_property
    def context_words(self) -> list[Word]:
        return read_words(self.context)

    @cached_property
    def answer_words(self) -> list[Word]:
        return read_words(self.answer)

    @cached_property
    def _answer_lower(self) -> list[str]:
        return [word.lower for word in self.answer_words]

    @cached_property
    def answer_cues(self) -> set[str]:
        """The cues of question and answer; "no more than" is a limit, and "in all" a total."""
        pairs = pairwise(["", *self._answer_lower])
        return {word for before, word in pairs if before != "no" and (word != "all" or before == "in")} & _CUES

    @cached_property
    def is_comparison(self) -> bool:
        """Whether the answer compares two things, as in "12 metres deeper than the other"."""
        return bool(_MORE & self.answer_cues) or any(
            word.endswith("er") and behind == "than" for word, behind in pairwise(self._answer_lower)
        )

    @cached_property
    def answer_numbers(self) -> set[float]:
        """The numbers of question and answer."""
        numbers = (parse_number(word.norm) for word in self.answer_words if word.kind == NUMBER)
        return {number for number in numbers if number is not None}

    @cached_property
    def answer_years(self) -> set[int]:
        """The numbers of the answer that may be years of age, or between two dates."""
        return {int(number) for number in self.answer_numbers if 1 < number <= MAX_YEARS}

    @cached_property
    def cues(self) -> set[str]:
        return self.answer_cues.union(*self.cues_of.values())

    @cached_property
    def cues_of(self) -> dict[int, set[str]]:
        """The cues of the context, by sentence."""
        cues: dict[int, set[str]] = {}
        for word in self.context_words:
            if word.lower in _CUES:
                cues.setdefault(word.sentence, set()).add(word.lower)
        return cues

    @cached_property
    def lengths_of(self) -> dict[int, list[Value]]:
        """The durations of context and question, by sentence."""
        lengths: dict[int, list[Value]] = {}
        for value in self.given:
            if value.kind == DURATION:
                lengths.setdefault(value.sentence, []).append(value)
        return lengths

    def gives(self, value: Value) -> bool:
        """Whether a value is inside a range of the context, or the result of one step."""
        if isinstance(value.amount, tuple):
            for other in self.dates:  # it may lack parts, but must share one and contradict none
                pairs = [(part, its) for part, its in zip(value.amount, other, strict=True) if part is not None]
                if any(part == its for part, its in pairs) and all(its in (part, None) for part, its in pairs):
                    return True
            return False
        amount = base_amount(value)
        if amount is None or value.is_unit:
            return False
        if self._is_inside_range(value) or self.converts(value):
            return True
        limits = [] if value.is_ordinal else [one for one in self.given if one.kind == PLAIN and one.unit == value.unit]
        for limit in limits:  # 15 is the last whole number "under 16"
            step = {"below": 1, "above": -1}.get(limit.approximation)
            if step is not None and limit.amount == amount + step:
                return True
        if value.is_ordinal:  # the seventh week, after six
            return any(
                other.kind == DURATION and other.name in value.noun and first_number(other.text) == amount - 1
                for other in self.given
            )
        is_small = value.kind == PLAIN and amount <= SMALL and amount == int(amount)
        is_counted = is_small and not (_REST | _MORE) & self.answer_cues
        return not is_counted and any(result and _is_close(amount, result) for result in self._results(value, amount))

    @cached_property
    def shown(self) -> set[float]:
        """The amounts of question and answer, in base units and as written."""
        amounts = {base_amount(value) for value in self.answered}
        return {amount for amount in amounts if amount is not None} | self.answer_numbers

    @cached_property
    def asks_how_much(self) -> bool:
        """Whether the question is for an amount, which may be a sum."""
        return bool(re.search(r"\bhow (many|much)\b", self.answer, re.IGNORECASE))

    def _shows(self, *amounts: float) -> bool:
        """Whether question or answer have a number that a step starts from, or a word such as "altogether"."""
        has_cue = bool(_TOTALS & self.answer_cues) or self.asks_how_much
        return has_cue or not self.shown.isdisjoint(amounts)

    @cached_property
    def time_differences(self) -> set[float]:
        """The minutes between any two of the context's first times of day."""
        times = [other.amount for other in self.given if other.kind == TIME and isinstance(other.amount, float)]
        apart = {abs(one - two) for one, two in combinations(times[:MAX_TIMES], 2)}
        return apart | {DAY_MINUTES - minutes for minutes in apart}

    def may_be_between(self, value: Value) -> bool:
        """Whether a duration may lie between two dates or times of the context, as in "43 minutes", "a year before"."""
        is_relative = bool({"before", "after", "later", "earlier", "since", "ago", "between"} & {*self._answer_lower})
        return (is_relative and any(other.kind in (DAY, TIME) for other in self.given)) or (
            value.amount in self.time_differences
        )

    def _is_inside_range(self, value: Value) -> bool:
        """Whether the value lies between the ends of a range of the context: an age, a fraction or "about 30"."""
        is_age = value.name == "year" or (value.kind == PLAIN and _AGES & self.answer_cues)
        if not (is_age or value.is_ordinal or value.approximation == "about"):
            return False
        ends = [
            other for other in self.given if other.kind in (value.kind, PLAIN) and other.unit in (value.unit, PLAIN)
        ]
        for low, high in pairwise(ends):
            between = self.context[low.end : high.start].strip().lower()
            opens = self.context[max(0, low.start - len("between ")) : low.start].lower()
            if between in RANGE_SIGNS or between == "to" or (between == "and" and "between" in opens):
                least, amount, most = (base_amount(end) or 0.0 for end in (low, value, high))
                if least < amount < most:
                    return True
        return False

    def _results(self, value: Value, amount: float) -> Iterator[float]:
        """Yields what one step gives, in the unit of a value."""
        if value.kind == PLAIN and (value.is_open or (_MORE | _REST) & self.answer_cues):  # 240 in total, 700 more
            every = [(other, base) for other in self.given if (base := base_amount(other)) is not None]
            for (first, one), (second, two) in _near(every):
                if first.name == second.name:
                    is_shown = self._shows(one, two)
                    yield from [one + two] if is_shown else []
                    yield from [abs(one - two)] if is_shown or _MORE & self.answer_cues else []
        alike = [(other, base) for other in self.given if (base := base_amount(other, value)) is not None]
        if value.kind == SHARE:
            yield from (100 - number for _, number in alike)
            yield from [50.0] if _HALVES & self.cues else []
            plain = {base_amount(other) or 0.0 for other in self.given if other.kind == PLAIN} & self.shown
            pairs = permutations(plain, 2) if len(plain) <= 2 * SMALL else ()
            yield from (float(round(100 * part / whole)) for part, whole in pairs if part and whole)
        elif value.kind in (PLAIN, MONEY):
            shares = [other for other in self.given if other.kind == SHARE and other.amount in self.shown]
            wholes = [base for other in self.given if other.kind == value.kind and (base := base_amount(other))]
            yield from (whole * (base_amount(share) or 0) / 100 for share in shares[:SMALL] for whole in wholes)
            if value.kind == MONEY:  # 25% off
                parts = [1 - (base_amount(other) or 0) / 100 for other in self.given if other.kind == SHARE]
                yield from (whole * part for part in parts[:SMALL] for whole in wholes)
        if self.is_comparison:
            for (first, one), (second, two) in combinations(alike, 2) if len(alike) <= 2 * SMALL else ():
                if first.name == second.name and (len(alike) <= SMALL or self._shows(one, two)):
                    yield abs(one - two)
        if value.kind != SHARE or "point" in value.noun:
            for (first, one), (second, two) in _near(alike):
                names = {first.name, second.name} - {""}
                between = self.context[first.end : min(second.start, first.end + RATE_CHARACTERS)].strip()
                is_compound = between == "plus" or len(between) <= len("and")  # 3 h 20 min
                is_shown = self._shows(one, two)
                if is_compound or (is_shown and (names <= {value.name} or value.kind == MONEY)):
                    yield one + two
                is_compared = _COMPARED.match(self.context, second.end)  # 1.2 million, 200,000 more than in May
                if _MORE & self.answer_cues or is_compared or (is_shown and first.name == second.name):
                    yield one + two if is_compared and is_compared[1] else abs(one - two)
        kinds = (SHARE, DAY, TIME, CODE)
        has_counts = _EACHES & self.cues and (value.kind not in (SHARE, DURATION) or _TOTALS & self.answer_cues)
        others = [one for one in self.given if one.kind not in kinds and one.name != value.name] if has_counts else []
        counts = {first_number(one.text) for one in others}
        for count, other in pairwise(self.given):  # 12 lessons of 90 minutes
            is_of = " of " in self.context[count.end : other.start] and other.start - count.end < RATE_CHARACTERS
            if is_of and count.kind == PLAIN and (number := base_amount(other, value)):
                yield number * (base_amount(count) or 0)
        for other, number in alike:
            if other.name in ("", value.name):
                yield from self._multiples(value, amount, other, number, counts)
        is_age = value.kind == PLAIN and value.amount in self.answer_years and bool(_AGES & self.answer_cues)
        if is_age or (value.kind == DURATION and value.unit == "calendar"):
            years = [other.amount[0] for other in self.given if isinstance(other.amount, tuple)]
            found = {abs(one - two) for one, two in combinations({y for y in years if isinstance(y, int)}, 2)}
            yield from (age * (1 if is_age else 12) for age in found)
        if is_age:  # 61, and in four years 65
            spans = [base_amount(one) or 0.0 for one in self.given if one.kind == DURATION and one.unit == "calendar"]
            yield from (age + months / 12 for other, age in alike if other.kind == PLAIN for months in spans)
        if value.kind == DURATION:
            yield from self._durations(value)
        elif value.kind == TIME:
            yield from (
                (one + sign * length) % DAY_MINUTES
                for other, one in alike
                for sentence in range(other.sentence - 1, other.sentence + 2)
                for length in self._lengths_of(sentence, "time")
                for sign in (1, -1)
            )

    @cached_property
    def asked_rates(self) -> list[tuple[Value, float]]:
        """Numbers of rates, "29 euros a month", and how often these go into another period of question and answer."""
        asked = {word.norm for word in self.answer_words if word.kind == UNIT}
        found = []
        for place, rate in enumerate(self._all_given):
            pairs = _PERIODS.items() if rate.is_unit else ()
            factors = [times for (part, period), times in pairs if part == rate.name and period in asked]
            for other in self._all_given[max(0, place - 3) : place] if factors else ():
                is_near = other.sentence == rate.sentence and 0 < rate.start - other.end < RATE_CHARACTERS
                if is_near and not (other.is_unit or other.is_ordinal):
                    found += [(other, times) for times in factors]
        return found

    def converts(self, value: Value) -> bool:
        """Whether a value is a rate of the context, "29 euros a month", for another period that the answer names."""
        amount = base_amount(value)
        if not amount or value.kind not in (PLAIN, MONEY, MEASURE):
            return False
        rates = ((base_amount(other, value), factor) for other, factor in self.asked_rates)
        return any(number and _is_close(amount, number * factor) for number, factor in rates)

    def _lengths_of(self, sentence: int, unit: str) -> Iterator[float]:
        """Yields the durations of a sentence."""
        for other in self.lengths_of.get(sentence, ()):
            if other.unit == unit and isinstance(other.amount, float):
                yield other.amount

    def _lengths_near(self, value: Value, unit: str) -> Iterator[float]:
        """Yields the durations of a date's sentence that say how far another date is."""
        # A date of the question, "for a Friday train", may be shifted anywhere: "two days before departure".
        for sentence in self.lengths_of if value in self.answered else (value.sentence,):
            if _SHIFTS & ((self.cues_of.get(sentence, set()) - _LIMITS) | self.answer_cues):
                yield from self._lengths_of(sentence, unit)

    @cached_property
    def next_days(self) -> set[int]:
        """The sentences of the context that speak of the day before or after another."""
        places = {found.start() for found in _NEXT_DAY.finditer(self.context)}
        return {word.sentence for word in self.context_words if word.start in places} if places else set()

    @cached_property
    def dates(self) -> list[Parts]:
        """The dates that follow from those of context and question."""
        return list(dict.fromkeys(self._dates()))

    def _dates(self) -> Iterator[Parts]:
        """Yields dates with their weekdays: the given ones, and those that are a duration or a day before or after."""
        lengths = (length for sentence in self.lengths_of for length in self._lengths_of(sentence, "time"))
        every_step = {round(length / DAY_MINUTES) for length in lengths}
        if not _SHIFTS & self.answer_cues or len(every_step) > SMALL:  # many would give any date
            every_step = set()
        is_next_day = bool(_NEXT_DAY.search(self.answer))
        for other in self.given:
            if not isinstance(other.amount, tuple):
                continue
            year, month, day, weekday, _ = other.amount
            days = {round(length / DAY_MINUTES) for length in self._lengths_near(other, "time")}
            days |= {1} if is_next_day or other.sentence in self.next_days else set()
            months = {round(length) for length in self._lengths_near(other, "calendar")}
            for sign in (1, -1):
                if weekday in WEEKDAYS:
                    place = WEEKDAYS.index(str(weekday))
                    yield from ((None, None, None, WEEKDAYS[(place + sign * step) % 7], None) for step in days)
                if isinstance(year, int):
                    yield from ((year + sign * step, None, None, None, None) for step in self.answer_years)
                if isinstance(year, int) and month is None:
                    yield from ((year + sign * (step // 12), None, None, None, None) for step in months if step >= 12)
                if isinstance(month, int):
                    for step in months:
                        last = 12 * (year if isinstance(year, int) else SOME_YEAR) + month - 1 + sign * step
                        yield (last // 12 if isinstance(year, int) else None, last % 12 + 1, day, None, None)
                if isinstance(month, int) and isinstance(day, int):
                    try:
                        start = date(year if isinstance(year, int) else SOME_YEAR, month, day)
                    except ValueError:  # 31 April
                        continue
                    for step in days | every_step | {0}:
                        try:
                            end = start + timedelta(days=sign * step)
                        except OverflowError:  # before the year 1 or after 9999
                            continue
                        name = WEEKDAYS[end.weekday()] if isinstance(year, int) else None
                        yield (end.year if name else None, end.month, end.day, name, None)

    def _multiples(
        self, value: Value, amount: float, other: Value, number: float, counts: Set[float | None]
    ) -> Iterator[float]:
        if _HALVES & self.cues and value.kind not in (DURATION, TIME):
            yield number / 2
        if value.kind != DURATION and _DOUBLES & (self.answer_cues | self.cues_of.get(other.sentence, set())):
            yield 2 * number
        if _EACHES & self.cues:
            times = round(amount / number) if number else 0
            if times > 1 and times in counts and self._shows(times, number):
                yield times * number
            share = round(number / amount) if amount else 0
            if 1 < share <= SMALL and _EACHES & self.answer_cues and share in self.answer_numbers:
                yield number / share

    def _durations(self, value: Value) -> Iterator[float]:
        """Yields durations between two times of day or two dates, and of a number of weekly or monthly steps."""
        clock = [other.amount for other in self.given if other.kind == TIME and isinstance(other.amount, float)]
        yield from ((two - one) % DAY_MINUTES for one, two in pairwise(clock))
        for other in self.given:
            if other.kind == PLAIN and isinstance(other.amount, float) and not other.is_open:
                yield from (other.amount * convert(norm)[1] for norm in other.noun if convert(norm)[0] == value.unit)
        dates = [other.amount for other in self.given if other.kind == DAY and isinstance(other.amount, tuple)]
        for (_, from_month, from_day, *_), (_, to_month, to_day, *_) in pairwise(dates):
            if not isinstance(from_month, int) or not isinstance(to_month, int):
                continue
            if value.unit == "calendar":
                is_begun = isinstance(from_day, int) and isinstance(to_day, int) and to_day > from_day
                yield from ((to_month - from_month) % 12, (to_month - from_month) % 12 + is_begun)
            elif isinstance(from_day, int) and isinstance(to_day, int):
                try:
                    days = (date(SOME_YEAR, to_month, to_day) - date(SOME_YEAR, from_month, from_day)).days % 365
                except ValueError:  # 31 April
                    continue
                yield from (days * DAY_MINUTES, (days + 1) * DAY_MINUTES)


def first_number(text: str) -> float | None:
    """Reads the first number of a text as it is written, in its own unit."""
    return next((parse_number(word.norm) for word in read_words(text) if word.kind == NUMBER), None)


def base_amount(value: Value, of: Value | None = None) -> float | None:
    """Returns the amount of a value, cents as parts of a euro or dollar; None of a date or an identifier.

    Args:
        of: Only if the value may have the unit of this one: a number without a unit takes one from its sentence.
    """
    if not isinstance(value.amount, float):
        return None
    is_money = of is not None and value.kind == of.kind == MONEY and "cent" in (value.unit, of.unit)
    if of is None or is_money or (value.kind, value.unit) == (of.kind, of.unit):
        return value.amount / 100 if value.unit == "cent" else value.amount
    return value.amount * convert(of.name)[1] if value.is_open and of.name in value.noun else None


def _near(alike: Sequence[tuple[Value, float]]) -> Iterator[tuple[tuple[Value, float], tuple[Value, float]]]:
    """Yields two values of the same sentence, of one and the next, or of context and question.

    The values of a text are in its order, so that the work is linear where each sentence has few of them.
    """
    ends = [n for n in range(1, len(alike)) if alike[n][0].sentence < alike[n - 1][0].sentence]  # the question begins
    for place, first in enumerate(alike):
        begin = place + 1
        for end in (*ends, len(alike)):
            for second in (alike[n] for n in range(begin, end)):
                if second[0].sentence - first[0].sentence > 1:
                    break
                yield first, second
            begin = max(begin, end)


def _is_close(one: float, other: float) -> bool:
    return abs(one - other) <= min(TOLERANCE * abs(other), 0.5)  # whole numbers are exact
