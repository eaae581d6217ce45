"""Rows that the reader of `thorough` begins with: one marked change a sentence, and pairs of inference."""

import json
from pathlib import Path

import pytest

from data_modules.datasets.agents import FOLDER as AGENTS
from data_modules.datasets.everyday import FOLDER
from data_modules.datasets.pairs import read_pairs
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit_workflows.fit_reader import ABOUT, change_sentences, main, plot_stages, read_easier

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


def test_easier_rows_are_never_of_a_test_split(tmp_path: Path) -> None:
    rows = [
        {"id": f"{split} {n}", "doc": f"Doc {n}.", "summary": f"{split}.", "label": n % 2, "original_summary": "S."}
        | {"edit_types": ["entity"], "split": split}
        for n in range(2)
        for split in ("evaluation", "test")
    ]
    (tmp_path / "summedits_news.json").write_text(json.dumps(rows))
    read = read_easier("summedits", str(tmp_path))
    assert [(one.response, one.spans) for one in read] == [("evaluation.", None)] * 2
    with pytest.raises(UserError, match="only a test split"):
        read_easier("agents", str(AGENTS))


def test_the_curve_has_each_epoch(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    entries = [{"stage": stage, "epoch": 1, "loss": 0.5, "auroc": 0.6} for stage in ("snli", "everyday")]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, entries)))
    assert plot_stages(tmp_path / "log", tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
