"""Entity swaps: one of the same type, from other knowledge, in a sentence that stays a sentence."""

import re

import pytest

from data_modules.negatives.entity_swap import Entity, entity_swaps, find_entities, mention, spacy_model
from faithkit.weights.resolve import LOCAL
from tests.data_modules.negatives.corpus import PEOPLE, PLACES, YEARS, corpus, example, ruled

pytest.importorskip("spacy")
KINDS = {**dict.fromkeys(PEOPLE, "p"), **dict.fromkeys(PLACES, "g"), **dict.fromkeys(YEARS, "y")}
NAME = re.compile("|".join(KINDS))


def pattern(text: str) -> str:
    return NAME.sub(lambda found: f"<{KINDS[found.group()]}>", text)


def test_entities_change_places_with_others_of_their_type() -> None:
    examples = corpus()
    for one, texts in zip(examples, entity_swaps(examples, 4, 0, ruled()), strict=True):
        assert texts and len(set(texts)) == len(texts) <= 4
        for text in texts:
            assert text != one.response and pattern(text) == pattern(one.response)
            new = set(NAME.findall(text)) - set(NAME.findall(one.response))
            assert new and not any(name in one.knowledge for name in new)


def test_only_what_was_stated_is_swapped_in_every_place_and_longer_words_are_not() -> None:
    def swapped(response: str, knowledge: str) -> list[str]:
        return entity_swaps([example(0, response=response, knowledge=knowledge), *corpus()], 3, 0, ruled())[0]

    assert swapped("Mira and Tor Vik saw it.", "The lighthouse stands.") == []
    assert swapped("Well, Tor Vik saw it.", "Tor Vik looked on.")
    for text in swapped("Tarn it was. Tarn! Not Tarnish, but Tarn.", "The windmill of Tarn."):
        assert text.count("Tarn") == 1 and "Tarnish" in text


def slot_of(text: str, name: str, label: str = "GPE"):
    start = text.index(name)
    return mention(text, Entity(start, start + len(name), label))


def test_articles_and_possessives_stay_where_they_are() -> None:
    found = slot_of("He left the United States's coast.", "the United States's")
    assert found and (found.text, found.slot.article, found.opens_sentence) == ("United States", "the", False)
    assert slot_of("He left France.", "France").slot.article == ""
    for text, name in (("an 81 storey house", "81"), ("an 18 year wait", "18"), ("an Alpine hut", "Alpine")):
        assert slot_of(text, name).slot.article == "an"
    for text, name in (("a 38 storey house", "38"), ("a 180 degree turn", "180"), ("a Nordic hut", "Nordic")):
        assert slot_of(text, name).slot.article == "a"
    assert slot_of("Hm. France is far.", "France").opens_sentence


@pytest.mark.network
def test_the_real_model_reads_with_what_it_needs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import spacy

    from faithkit.weights.resolve import resolve

    assert "spacy-sm" in LOCAL and "core_web_sm" in spacy_model("spacy-sm")
    text = "Leonardo DiCaprio was born in Los Angeles in November 1974."
    whole = [Entity(e.start_char, e.end_char, e.label_) for e in spacy.load(resolve("spacy-sm"))(text).ents]
    assert find_entities("spacy-sm")([text, text]) == [whole, whole] and len(whole) == 3
