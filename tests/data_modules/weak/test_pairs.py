"""Synthetic pairs: the same from the same, of every kind, and with edits that do what they are named for."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

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
from data_modules.weak.lexicon import DISTORTIONS, PERSONAL, SYNONYMS
from data_modules.weak.pairs import CHANCES, FAITHFUL_KIND, PROBABILITY, make_pairs
from data_modules.weak.wording import (
    add_opening,
    clauses,
    extract,
    replace_word,
    reword,
    vary_spelling,
    without_brackets,
)

LAKE = "Lake Orvel (also Big Orvel) was formed in 1843, when the northern ice of Mount Teral melted into two valleys."
FERRY = "The ferry of Port Selm is one of the most popular in the country, because it is cheap."
BAKER = "Tam Weller was a baker of dark bread who founded several bakeries in Nolle and in Port Selm."
DOCUMENTS = [[LAKE, FERRY], [BAKER, "Dark bread is usually baked with rye, salt, water and a sourdough that is old."]]
CHAT = ["I could eat all day.", "My dog is called Bruno."]
POOL = Pool.of(DOCUMENTS, CHAT)


def many(edit: Callable[[random.Random], str | None], count: int = 60) -> list[str]:
    made = [edit(random.Random(seed)) for seed in range(count)]
    return [text for text in made if text is not None]


def test_the_same_arguments_give_the_same_pairs() -> None:
    first = list(make_pairs(DOCUMENTS, CHAT, seed=3))
    assert first == list(make_pairs(DOCUMENTS, CHAT, seed=3)) != list(make_pairs(DOCUMENTS, CHAT, seed=4))


def test_every_sentence_has_a_faithful_and_a_hallucinated_response() -> None:
    pairs = list(make_pairs([*DOCUMENTS, ["Too short."]], CHAT))
    assert Counter(pair.kind == FAITHFUL_KIND for pair in pairs) == {True: 4, False: 4}
    assert all(DOCUMENTS[pair.document][pair.sentence] == pair.knowledge for pair in pairs)


def test_every_kind_comes_up_and_has_its_probability() -> None:
    kinds = Counter(pair.kind for seed in range(40) for pair in make_pairs(DOCUMENTS, CHAT, seed=seed))
    assert set(kinds) == set(PROBABILITY) == {FAITHFUL_KIND, *CHANCES}
    assert PROBABILITY[FAITHFUL_KIND] < 0.5 < min(p for kind, p in PROBABILITY.items() if kind != FAITHFUL_KIND)


def test_case_and_marks_do_not_tell_the_label() -> None:
    pairs = [pair for seed in range(150) for pair in make_pairs(DOCUMENTS, CHAT, seed=seed)]
    lower: dict[bool, list[bool]] = {True: [], False: []}
    for pair in pairs:
        lower[pair.kind == FAITHFUL_KIND].append(pair.response == pair.response.lower())
    shares = [sum(values) / len(values) for values in lower.values()]
    assert abs(shares[0] - shares[1]) < 0.1


def test_an_extract_takes_from_the_knowledge_alone() -> None:
    known = (
        set(without_brackets(LAKE).lower().rstrip(".").replace(",", "").split()) | set(LAKE.lower().split()) | {"it"}
    )
    for text in many(lambda rng: extract(LAKE, rng)):
        assert set(text.lower().replace(",", "").split()) <= known, text


@pytest.mark.parametrize(("start", "pronoun"), [("The boats", "they"), ("A lake", "it"), ("He", "He"), ("It", "It")])
def test_a_pronoun_takes_the_place_of_a_subject_that_is_none(start: str, pronoun: str) -> None:
    verb = "are" if pronoun == "they" else "is"
    found = {text.split()[0] for text in many(lambda rng: extract(f"{start} {verb} very old now.", rng))}
    assert found == {start.split()[0], pronoun}


def test_wording_keeps_and_falsifying_changes() -> None:
    assert replace_word("Some Bakers bake some bread", "some", "all") == "all Bakers bake some bread"
    assert replace_word("handsome bakers", "some", "all") == "handsome bakers"
    assert clauses("It is old, cold and deep; who knows.") == ["It is old", "cold", "and deep", "who knows"]
    assert any("multiple bakeries" in text for text in many(lambda rng: reword(BAKER, rng)))
    assert all(text.endswith(FERRY[5:]) or "{}" not in text for text in many(lambda rng: add_opening(FERRY, rng)))
    assert any(" n't " in text for text in many(lambda rng: vary_spelling("I don't know it", rng)))


def test_each_edit_changes_what_it_is_named_for() -> None:
    assert all("1843" not in text or "two" not in text for text in many(lambda rng: swap_number(LAKE, POOL, rng)))
    assert all("Port Selm" not in text for text in many(lambda rng: swap_name(FERRY, POOL, rng)))
    words = many(lambda rng: swap_words("Dark bread is baked", POOL, rng))
    assert words and all(text != "Dark bread is baked" for text in words)
    assert any(" not " in text for text in many(lambda rng: distort(FERRY, POOL, rng)))
    assert any("is the most popular" in text for text in many(lambda rng: distort(FERRY, POOL, rng)))
    subjects = many(lambda rng: swap_subject(BAKER, POOL, rng))
    assert subjects and not any(text.startswith("Tam") for text in subjects)
    claims = many(lambda rng: add_claim(BAKER, POOL, rng))
    assert any(text.endswith(PERSONAL) for text in claims) and any(text.startswith(PERSONAL) for text in claims)
    others = many(lambda rng: other_statement(LAKE, DOCUMENTS[0], POOL, rng))
    assert others and not any("1843" in text for text in others)


@pytest.mark.parametrize("edit", [swap_number, swap_name, swap_words, distort, swap_subject])
def test_an_edit_without_a_hold_gives_nothing(edit: Callable[[str, Pool, random.Random], str | None]) -> None:
    assert many(lambda rng: edit("Oh so it", Pool.of([], []), rng)) == []


@pytest.mark.parametrize("table", [SYNONYMS, DISTORTIONS])
def test_no_row_of_a_table_says_the_same_twice(table: tuple[tuple[str, str], ...]) -> None:
    assert all(old != new for old, new in table) and len(set(table)) == len(table)
