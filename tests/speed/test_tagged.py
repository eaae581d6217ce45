"""The examples and folds that the tagger is compared on, and the peer that may be missing."""

import json
import sys
from pathlib import Path

import pytest

from data_modules.encoding.tokens import load_tokenizer
from faithkit.records import Example, Span
from speed.cv_folds import make_folds, overlap_baseline, sentence_shares
from speed.peer import LETTUCE, write_rows
from speed.tagged import ANSWER, mixed_tagged
from speed.tagger_cv import without_folders
from tests.tiny import write_tokenizer


def example(number: int, group: str, response: str, spans: tuple[Span, ...] = ()) -> Example:
    label = "hallucinated" if spans else "faithful"
    return Example(
        id=str(number), source="s", split="train", group=group, knowledge="The cat sat on the mat.", response=response,
        label=label, spans=spans,
    )  # fmt: skip


def test_mixed_examples_have_spans_within_answers_of_the_wanted_length(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    examples = mixed_tagged(tokenizer, 40)
    assert examples == mixed_tagged(tokenizer, 40)
    assert any(e.spans for e in examples) and any(not e.spans for e in examples)
    for e in examples:
        assert len(tokenizer(e.response, add_special_tokens=False)["input_ids"]) <= ANSWER[1] * 1.2
        assert all(e.response[s.start : s.end].strip() == e.response[s.start : s.end] != "" for s in e.spans or ())


def test_every_source_is_tested_in_one_fold_and_never_trained_on_there() -> None:
    examples = [example(i, str(i // 3), "The cat sat.") for i in range(30)]
    folds = make_folds(examples, 5)
    assert sorted(int(e.id) for fold in folds for e in fold.test) == list(range(30))
    for fold in folds:
        assert len(fold.test) == 6 and len(fold.train) == 24
        assert not {e.group for e in fold.test} & {e.group for e in fold.train}


def test_sentences_of_unknown_words_are_found() -> None:
    response = "The cat sat. Purple whales sing loudly!"
    assert sentence_shares(example(0, "a", response)) == [((0, 12), 0.0), ((13, 39), 1.0)]
    wrong = Span(start=13, end=39, label="evident_baseless")
    examples = [example(i, str(i), response if i % 2 else "The cat sat.", (wrong,) if i % 2 else ()) for i in range(8)]
    found = overlap_baseline(make_folds(examples, 2)[0])
    assert {id_: [(s.start, s.end) for s in p.spans] for id_, p in found.items()} == {
        id_: [(13, 39)] if int(id_) % 2 else [] for id_ in found
    }


def test_rows_for_the_peer_keep_characters(tmp_path: Path) -> None:
    one = example(0, "a", "Größe 🙂 x", (Span(start=6, end=7, label="subtle_conflict"),))
    row = json.loads(write_rows([one], tmp_path / "rows").read_text(encoding="utf-8"))
    assert row["answer"][row["labels"][0]["start"] : row["labels"][0]["end"]] == "🙂"
    assert row["prompt"] == one.knowledge


def test_without_the_peer_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LETTUCE.variable, raising=False)
    with pytest.raises(SystemExit, match=rf"{LETTUCE.variable} is not set(.|\n)*README"):
        LETTUCE.python()
    monkeypatch.setenv(LETTUCE.variable, "/nowhere/python")
    with pytest.raises(SystemExit, match="not there"):
        LETTUCE.python()
    monkeypatch.setenv(LETTUCE.variable, sys.executable)
    assert LETTUCE.python() == sys.executable


def test_the_command_below_the_figures_names_no_folder_of_a_machine() -> None:
    given = ["--data", "/data/of/someone/ragtruth", "long: model.weights=/home/someone/encoder optimizer.lr=1e-4"]
    assert [without_folders(one) for one in given] == [
        "--data",
        "ragtruth",
        "long: model.weights=encoder optimizer.lr=1e-4",
    ]
