"""Rows that the reader of `thorough` begins with: one marked change a sentence, and pairs of inference."""

import json
from pathlib import Path

import pytest

from data_modules.datasets.everyday import FOLDER
from data_modules.datasets.pairs import read_pairs
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit_workflows.fit_reader import ABOUT, change_sentences, main

CONTEXTS = [*dict.fromkeys(one.knowledge for one in read_pairs(FOLDER / "development.jsonl"))][:20]


def test_a_changed_sentence_differs_from_its_context_in_the_marked_part_alone() -> None:
    made = change_sentences(CONTEXTS)
    assert len(made) > 2 * len(CONTEXTS)
    for right, wrong in zip(made[::2], made[1::2], strict=True):
        assert (right.label, wrong.label, right.spans) == (FAITHFUL, HALLUCINATED, ())
        assert right.response in right.knowledge == wrong.knowledge and wrong.response not in wrong.knowledge
        (span,) = wrong.spans or ()
        before, after = wrong.response[: span.start], wrong.response[span.end :]
        assert wrong.response[span.start : span.end] == span.text != ""
        assert right.response.startswith(before) and right.response.endswith(after)


def test_join_needs_one_training_without_an_author_and_one_with_all(tmp_path: Path) -> None:
    for name, without in (("one", "fitting"), ("other", "values")):
        (tmp_path / name).mkdir()
        (tmp_path / name / ABOUT).write_text(json.dumps({"without": without, "rows": {}}))
    folders = ["--left", str(tmp_path / "one"), "--all", str(tmp_path / "other"), "--out", str(tmp_path / "out")]
    with pytest.raises(UserError, match="--all one with every author"):
        main(["join", *folders])
    assert not (tmp_path / "out").exists()
