"""Overlap of two token lists by bits: an integer holds all places of a token, so one operation compares them all.

Both algorithms are linear in operations on integers as long as one text, in place of a table of both lengths.
"""

from collections.abc import Sequence


def positions(tokens: Sequence[str]) -> dict[str, int]:
    """Maps each distinct token to an integer whose bit i is set where the token is at place i."""
    places: dict[str, int] = {}
    for i, token in enumerate(tokens):
        places[token] = places.get(token, 0) | 1 << i
    return places


def lcs_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Computes the length of the longest common subsequence (Hyyrö 2004, bit-parallel)."""
    places, every = positions(first), (1 << len(first)) - 1
    free = every  # a bit is cleared where the length grows by one along the first text
    for token in second:
        hit = free & places.get(token, 0)
        free = (free + hit | free - hit) & every
    return len(first) - free.bit_count()


def greedy_runs(response: Sequence[str], knowledge: Sequence[str]) -> list[int]:
    """Finds the lengths of the response's fragments that occur in the knowledge, each the longest from its place.

    The greedy matching of Grusky et al. (2018), section 4: from the left, a fragment is taken whole, then the next.
    """
    places = positions(knowledge)
    runs: list[int] = []
    ends, length = 0, 0  # where in the knowledge the present fragment may end
    for token in response:
        here = places.get(token, 0)
        if ends and (longer := ends << 1 & here):
            ends, length = longer, length + 1
            continue
        if length:
            runs.append(length)
        ends, length = here, int(here > 0)
    if length:
        runs.append(length)
    return runs


def longest_run(response: Sequence[str], knowledge: Sequence[str]) -> int:
    """Computes the length of the longest run of tokens that both have: the longest common substring.

    >>> longest_run("a b c d".split(), "a b x b c d".split())
    3
    """
    places = positions(knowledge)
    single = [places.get(token, 0) for token in response]
    ends, length = single, 0  # by the place in the response: where in the knowledge a run of `length + 1` ends
    while any(ends):
        length += 1
        ends = [before << 1 & here for before, here in zip([0, *ends], single, strict=False)]
    return length
