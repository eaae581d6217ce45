"""Seeker turns that were edited are found by the dialogue's original wizard texts."""

from pathlib import Path

import pytest

from faithkit.metrics.results import read_metrics
from faithkit.records import Example, Turn
from faithkit_papers.corpus.corpus_stats import compute_corpus_stats
from faithkit_papers.corpus.describe import find_seeker_edits
from faithkit_workflows import construct
from tests.running import compose


def dialogue(name: str, *texts: str, split: str = "test") -> list[Example]:
    """Makes a dialogue of seeker and wizard texts in turn; `new<old` is a wizard's text after its edit."""
    turns = [Turn(speaker="wizard" if place % 2 else "seeker", text=text) for place, text in enumerate(texts)]
    found = []
    for place in range(1, len(turns), 2):
        response, _, original = turns[place].text.partition("<")
        values = {"id": f"{name}:{place}", "source": "s", "split": split, "group": name, "knowledge": "k"}
        found.append(Example(**values, history=tuple(turns[:place]), response=response, original=original or None))
    return found


def test_turns_are_compared_within_the_dialogue_that_has_the_wizards_texts() -> None:
    wow = [
        *dialogue("7", "I like rivers.", "They are long.", "Which one?", "The Nile.", "And lakes?", "Also."),
        *dialogue("8", "Hello", "Also.", "Bye", "See you."),
    ]
    edited = [
        *dialogue(
            "0", "I  like rivers.", "They flow.<They are long.", "Which is it?", "The Nile.", "And lakes?", "Also."
        ),
        *dialogue("1", "Hi", "Nothing of it.", "Ho", "is there"),
    ]
    found = find_seeker_edits(edited, wow)
    assert found == [(("test", "0"), False), (("test", "0"), True), (("test", "0"), False)]


def test_the_share_is_a_metric_of_the_description(tmp_path: Path) -> None:
    options = ("pipeline.dataset=faithdial", "pipeline.wow_path=embedded", "pipeline.plots=false")
    construct.main(compose("construct", "pipeline=describe", *options, "limit=60", f"run_dir={tmp_path / 'run'}"))
    metric = read_metrics(tmp_path / "run" / "metrics.json")["test/embedded-faithdial/seeker_edited"]
    assert metric["value"] == 0 and metric["n"] > 60, "the embedded dialogues have the same seekers"


def test_edited_wizard_turns_are_counted_beside_those_without_an_original() -> None:
    stats = compute_corpus_stats(dialogue("0", "a", "new<old", "b", "same<same", "c", "kept"))
    assert stats.edits == {"edited": 1, "not edited": 2}
    assert next(iter(stats.dialogues.values())).edited == pytest.approx(1 / 3)
