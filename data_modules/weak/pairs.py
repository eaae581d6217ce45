"""Synthetic pairs: makes faithful and hallucinated responses from sentences alone.

A faithful response is the sentence cut and reworded; a hallucinated one is that with an edit, another statement, or
small talk. Both get the same openings, case and punctuation, so that these do not give the label away. No edit is sure
to succeed (a swapped word may mean the same), so each kind has a probability rather than a label.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from data_modules.weak.falsify import (
    Pool,
    add_claim,
    distort,
    other_statement,
    swap_name,
    swap_number,
    swap_subject,
    swap_words,
)
from data_modules.weak.wording import add_opening, extract, reword, vary_spelling

FAITHFUL_KIND = "faithful"
# P(hallucinated) of each kind.
PROBABILITY = {
    FAITHFUL_KIND: 0.10,
    "claim": 0.85,
    "name": 0.80,
    "number": 0.75,
    "word": 0.75,
    "distortion": 0.70,
    "subject": 0.75,
    "other": 0.95,
    "chat": 0.97,
}
# How often each kind is tried first, relative to the others.
CHANCES = {"claim": 7, "name": 3, "number": 3, "word": 4, "distortion": 3, "subject": 2, "other": 3, "chat": 2}
_EDITS: dict[str, Callable[[str, Pool, random.Random], str | None]] = {
    "claim": add_claim,
    "name": swap_name,
    "number": swap_number,
    "word": swap_words,
    "distortion": distort,
    "subject": swap_subject,
}
_MIN_WORDS = 5  # of a sentence that responses are made from


class Pair(NamedTuple):
    """A sentence with a response made from it; `document` and `sentence` are its indices among the documents."""

    document: int
    sentence: int
    knowledge: str
    response: str
    kind: str


def make_pairs(documents: Sequence[Sequence[str]], chat: Sequence[str] = (), seed: int = 0) -> Iterator[Pair]:
    """Makes a faithful and, where an edit applies, a hallucinated response for every sentence.

    The same arguments always give the same pairs.

    Args:
        documents: Sentences, in lists of those that belong together.
        chat: Small talk that no document supports.
    """
    pool = Pool.of(documents, chat)
    for d, document in enumerate(documents):
        for s, knowledge in enumerate(document):
            if len(knowledge.split()) < _MIN_WORDS:
                continue
            rng = random.Random(f"{seed}|{d}|{s}")
            yield Pair(d, s, knowledge, faithful_response(knowledge, rng), FAITHFUL_KIND)
            if made := hallucinated_response(knowledge, document, pool, rng):
                yield Pair(d, s, knowledge, *made)


def faithful_response(knowledge: str, rng: random.Random) -> str:
    """Words the knowledge, or a part of it, in another way."""
    return vary_spelling(add_opening(reword(extract(knowledge, rng), rng), rng), rng)


def hallucinated_response(
    knowledge: str, document: Sequence[str], pool: Pool, rng: random.Random
) -> tuple[str, str] | None:
    """Makes a response that the knowledge does not support, and names its kind."""
    base = reword(extract(knowledge, rng), rng) if rng.random() < 0.5 else extract(knowledge, rng)
    order = [kind for kind, chances in CHANCES.items() for _ in range(chances)]
    rng.shuffle(order)
    for kind in order:
        if kind == "other":
            response = other_statement(knowledge, document, pool, rng)
        elif kind == "chat":
            response = rng.choice(pool.chat) if pool.chat else None
        else:
            response = _EDITS[kind](base, pool, rng)
        if response and response.strip().lower() != base.strip().lower():
            return vary_spelling(response if kind == "chat" else add_opening(response, rng), rng), kind
    return None
