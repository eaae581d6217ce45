"""Synthetic pairs: the same from the same, of every kind, and with edits that do what they are named for."""

from collections import Counter

from data_modules.weak.synthetic_pairs import CHANCES, FAITHFUL_KIND, PROBABILITY, make_pairs

LAKE = "Lake Orvel (also Big Orvel) was formed in 1843, when the northern ice of Mount Teral melted into two valleys."
FERRY = "The ferry of Port Selm is one of the most popular in the country, because it is cheap."
BAKER = "Tam Weller was a baker of dark bread who founded several bakeries in Nolle and in Port Selm."
DOCUMENTS = [[LAKE, FERRY], [BAKER, "Dark bread is usually baked with rye, salt, water and a sourdough that is old."]]
CHAT = ["I could eat all day.", "My dog is called Bruno."]


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
