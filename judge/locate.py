"""Finds quoted parts in a response: as they are, else by their words, else the stretch that shares most of them.

The rule, in this order:

1. exact: the part stands in the response as quoted;
2. normalised: its words stand there in its order, case, punctuation and white space aside;
3. fuzzy: of all stretches of the response with as many words as the part has, or one in five more or less, the one
   that shares the largest share of words in order with it, if that is at least `SIMILAR`.

What is not found is counted, never guessed.

>>> response = "It flows through twelve countries, they say."
>>> [response[slice(*locate(part, response))] for part in ("twelve countries", "Twelve  countries!")]
['twelve countries', 'twelve countries']
>>> locate("a red fox", response) is None
True
"""

from collections.abc import Sequence
from difflib import SequenceMatcher

from faithkit.records import Span
from faithkit.span_types import UNTYPED
from faithkit.words import unicode_words, word_places

SIMILAR = 0.8  # of the words of both, the share that must agree
LONGEST = 400  # words of a part that are looked for: a longer one is the response itself, in other words


def locate(part: str, response: str) -> tuple[int, int] | None:
    """Finds where a part stands in a response: its first and the character behind its last; None where it does not."""
    part = part.strip()
    if not part:
        return None
    if (begin := response.find(part)) >= 0:
        return begin, begin + len(part)
    places = list(word_places(response))
    have = [word.casefold() for *_, word in places]
    wanted = [word.casefold() for word in unicode_words(part)]
    if not wanted or not have:
        return None
    found = _find_words(wanted, have) or _most_similar(wanted, have)
    return (places[found[0]][0], places[found[1] - 1][1]) if found else None


def locate_all(parts: Sequence[str], response: str) -> tuple[tuple[Span, ...], int]:
    """Finds several parts; gives them as spans in order, touching ones joined, and how many were not found."""
    places = [locate(part, response) for part in parts]
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(place for place in places if place is not None):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(Span(start=begin, end=end, label=UNTYPED) for begin, end in joined), places.count(None)


def _find_words(wanted: Sequence[str], have: Sequence[str]) -> tuple[int, int] | None:
    size = len(wanted)
    for begin in range(len(have) - size + 1):
        if have[begin : begin + size] == wanted:
            return begin, begin + size
    return None


def _most_similar(wanted: Sequence[str], have: Sequence[str]) -> tuple[int, int] | None:
    """Finds the stretch of words that is most like the wanted ones, the first and shortest of equals."""
    if len(wanted) > LONGEST:
        return None
    matcher: SequenceMatcher[str] = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)  # it keeps what it learns of this side
    slack, known = max(1, len(wanted) // 5), set(wanted)
    best, place = SIMILAR, None
    for size in range(max(1, len(wanted) - slack), len(wanted) + slack + 1):
        for begin in range(len(have) - size + 1):
            stretch = have[begin : begin + size]
            # At most so many words can agree: most stretches need no closer look.
            shared = sum(word in known for word in stretch)
            if 2 * shared / (size + len(wanted)) < best or stretch[0] not in known or stretch[-1] not in known:
                continue
            matcher.set_seq1(stretch)
            ratio = matcher.ratio()
            if ratio > best or (ratio == best and place is None):
                best, place = ratio, (begin, begin + size)
    return place
