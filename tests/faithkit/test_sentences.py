"""Long knowledge cut to what a response speaks of."""

import pytest

from data_modules.build import build_source
from faithkit.errors import UserError
from faithkit.sentences import best_sentences
from tests.data_modules.official.judged import AUDIT_GOLD
from tests.data_modules.official_rows import read, write

LAKE = "Lake Orvel is deep . It was formed by ice . Trout live in its cold water . Ferries cross it in summer ."


def test_the_sentences_nearest_to_the_response_stay_in_their_order() -> None:
    assert best_sentences(LAKE, "Do trout swim in cold Lake Orvel?", 13) == (
        "Lake Orvel is deep . Trout live in its cold water ."
    )
    assert best_sentences(LAKE, "Trout!", 100) == LAKE
    assert best_sentences(LAKE, "Trout!", 1) == "Trout live in its cold water .", "the best one stays whole"


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
