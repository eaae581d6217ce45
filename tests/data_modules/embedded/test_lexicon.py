"""Names and numbers in words, and the grammar of what is put together from them."""

import re

import pytest

from data_modules.embedded import generate
from data_modules.embedded.domains import DOMAINS
from data_modules.embedded.lexicon import NUM_NAMES, in_words, spell


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "zero"), (14, "fourteen"), (40, "forty"), (59, "fifty-nine"), (100, "one hundred"), (1200, "twelve hundred"),
     (2000, "two thousand"), (101, "one hundred and one"), (9900, "ninety-nine hundred")],
)  # fmt: skip
def test_numbers_in_words(number: int, text: str) -> None:
    assert in_words(number) == text


def test_names_are_many_and_all_different() -> None:
    assert NUM_NAMES > 200_000
    assert len({spell(number) for number in range(NUM_NAMES)}) == NUM_NAMES


def test_there_are_enough_kinds_of_facts() -> None:
    assert len(DOMAINS) >= 12
    assert len({(domain.name, relation.name) for domain in DOMAINS for relation in domain.relations}) >= 100
    assert len({relation.name for domain in DOMAINS for relation in domain.relations}) >= 50
    assert all(any(domain.confusable) for domain in DOMAINS)


def test_grammar() -> None:
    for e in generate("train", 3000):
        for text in (e.knowledge, e.response, *(turn.text for turn in e.history)):
            assert text[0].isupper() and text[-1] in ".?!"
            assert not re.search(r"\ba [aeio]|\ban [^aeiou8]|  |\.\.| ,|\bthe the\b|\b(\w+) \1\b", text), text
