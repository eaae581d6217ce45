"""Long knowledge cut to what a response speaks of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.build import build_source
from faithkit.errors import UserError
from faithkit.words import STOP_WORDS, ascii_words, best_sentences, sentence_places, sentences
from tests.data_modules.official.judged import AUDIT_GOLD
from tests.data_modules.official_rows import read, write

LAKE = "Lake Orvel is deep . It was formed by ice . Trout live in its cold water . Ferries cross it in summer ."


def test_the_sentences_nearest_to_the_response_stay_in_their_order() -> None:
    assert best_sentences(LAKE, "Do trout swim in cold Lake Orvel?", 13) == (
        "Lake Orvel is deep . Trout live in its cold water ."
    )
    assert best_sentences(LAKE, "Trout!", 100) == LAKE
    assert best_sentences(LAKE, "Trout!", 1) == "Trout live in its cold water .", "the best one stays whole"


@pytest.mark.parametrize(
    ("knowledge", "response", "best"),
    [
        ("Это длинный рассказ о погоде. Форель живёт в холодной воде.", "Где живёт форель?", 1),
        ("Η λίμνη είναι βαθιά. Οι πέστροφες ζουν στο νερό.", "Πού ζουν οι πέστροφες;", 1),
        ("البحيرة عميقة جدا. يعيش السمك في الماء البارد.", "هل يعيش السمك هنا؟", 1),
        ("Le bâtiment est là. Le café ferme à midi.", "Cafe\u0301 ouvert ?", 1),
    ],
)
def test_sentences_of_any_script_are_compared(knowledge: str, response: str, best: int) -> None:
    assert best_sentences(knowledge, response, 1) == sentences(knowledge)[best]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("पहला वाक्य। दूसरा वाक्य।", ["पहला वाक्य।", "दूसरा वाक्य।"]),
        ("ما هذا؟ هذا بيت۔ نعم", ["ما هذا؟", "هذا بيت۔", "نعم"]),
        ("他说：“好。”然后走了。真的！？是的", ["他说：“好。”", "然后走了。", "真的！？", "是的"]),
        ("Version 3.5 is out. Is it? Yes", ["Version 3.5 is out.", "Is it?", "Yes"]),
    ],
)
def test_sentences_end_as_their_script_ends_them(text: str, parts: list[str]) -> None:
    assert sentences(text) == parts == [text[start:end] for start, end in sentence_places(text)]


@given(st.text(st.sampled_from("ab .!?;。！；」।؟\n")))
def test_no_character_is_lost_between_sentences(text: str) -> None:
    def letters(parts: list[str]) -> str:
        return "".join("".join(parts).split())

    assert letters(sentences(text)) == letters([text])
    assert letters([text[start:end] for start, end in sentence_places(text)]) == letters([text])


WORDS = st.lists(st.sampled_from(["a", "Lake", "lake.", "is", "deep!", "ice?", "3", "3.5", "The", "x", "ice", "\n"]))
PLAIN = st.text("abcAB 019.!?", max_size=60) | WORDS.map(" ".join)


@given(knowledge=PLAIN, response=PLAIN, max_words=st.integers(1, 12))
def test_plain_english_is_cut_as_it_always_was(knowledge: str, response: str, max_words: int) -> None:
    """The choice by words of a-z and 0-9, on which trained models and the figures of research/ depend."""
    parts, said = sentences(knowledge), set(ascii_words(response)) - STOP_WORDS
    kept: list[int] = []
    for i in sorted(range(len(parts)), key=lambda i: -len(said & set(ascii_words(parts[i])))):
        if not kept or len(" ".join(parts[k] for k in [*kept, i]).split()) <= max_words:
            kept.append(i)
    cut = " ".join(parts[i] for i in sorted(kept))
    assert best_sentences(knowledge, response, max_words) == (cut if len(knowledge.split()) > max_words else knowledge)


def test_cut_knowledge_keeps_its_group_and_what_it_was(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rows = [{**AUDIT_GOLD[0], "evidence": LAKE, "response": "Trout, I hear."}]
    write(tmp_path / "gold" / "cmu.csv", rows)
    (plain,), _ = read(build_source("audit", str(tmp_path)))
    (cut,), counts = read(build_source("audit", str(tmp_path), corpora="cmu", max_knowledge_words=8))
    assert cut.knowledge == "Trout live in its cold water ." and cut.group == plain.group
    assert cut.meta["whole_knowledge"] == LAKE and "whole_knowledge" not in plain.meta
    assert counts["cut: knowledge, to the sentences nearest to the response"] == 1
    with pytest.raises(UserError, match="none of the dataset's files"):
        read(build_source("audit", str(tmp_path), corpora="wow"))
    for option in ({"max_knowledge_words": 0}, {"corpora": "snow"}):
        with pytest.raises(UserError):
            build_source("audit", str(tmp_path), **option)
