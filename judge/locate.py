"""Finds quoted parts in a response, by exact, normalised or fuzzy matching.

The rules are applied in this order:

1. exact: the response contains the part;
2. normalised: the response contains its words in order, without case, punctuation and white space;
3. fuzzy: of all word sequences of the response whose length differs by at most a fifth, the one with the highest
   similarity to the part, if this is at least `MIN_SIMILARITY`.

Parts that are not found are counted.

>>> response = "It flows through twelve countries, it seems."
>>> [response[slice(*locate(part, response))] for part in ("twelve countries", "Twelve  countries!")]
['twelve countries', 'twelve countries']
>>> locate("a red fox", response) is None
True
"""

from collections.abc import Sequence
from difflib import SequenceMatcher

from faithkit.records import UNTYPED, Span
from faithkit.words import unicode_words, word_places

MIN_SIMILARITY = 0.8  # fraction of the words of both that must match
MAX_WORDS = 400  # of a part in fuzzy matching


def locate(part: str, response: str) -> tuple[int, int] | None:
    """Returns the first and the end character of a part in a response; None if it is not found."""
    part = part.strip()
    if not part:
        return None
    if (begin := response.find(part)) >= 0:
        return begin, begin + len(part)
    places = list(word_places(response))
    response_words = [word.casefold() for *_, word in places]
    part_words = [word.casefold() for word in unicode_words(part)]
    if not part_words or not response_words:
        return None
    found = _find_words(part_words, response_words) or _find_most_similar(part_words, response_words)
    return (places[found[0]][0], places[found[1] - 1][1]) if found else None


def locate_all(parts: Sequence[str], response: str) -> tuple[tuple[Span, ...], int]:
    """Finds several parts; returns spans in order, with adjacent spans merged, and the number of parts not found."""
    places = [locate(part, response) for part in parts]
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(place for place in places if place is not None):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(Span(start=begin, end=end, label=UNTYPED) for begin, end in joined), places.count(None)


def _find_words(part: Sequence[str], response: Sequence[str]) -> tuple[int, int] | None:
    size = len(part)
    for begin in range(len(response) - size + 1):
        if response[begin : begin + size] == part:
            return begin, begin + size
    return None


def _find_most_similar(part: Sequence[str], response: Sequence[str]) -> tuple[int, int] | None:
    """Finds the word sequence most similar to the part; of equal ones the shortest and first."""
    if len(part) > MAX_WORDS:
        return None
    matcher: SequenceMatcher[str] = SequenceMatcher(autojunk=False)
    matcher.set_seq2(part)  # the matcher caches this side
    slack, part_words = max(1, len(part) // 5), set(part)
    best, place = MIN_SIMILARITY, None
    for size in range(max(1, len(part) - slack), len(part) + slack + 1):
        for begin in range(len(response) - size + 1):
            sequence = response[begin : begin + size]
            # An upper bound of the similarity, which excludes most sequences.
            shared = sum(word in part_words for word in sequence)
            if (
                2 * shared / (size + len(part)) < best
                or sequence[0] not in part_words
                or sequence[-1] not in part_words
            ):
                continue
            matcher.set_seq1(sequence)
            ratio = matcher.ratio()
            if ratio > best or (ratio == best and place is None):
                best, place = ratio, (begin, begin + size)
    return place
