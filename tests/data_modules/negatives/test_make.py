"""Negatives from all kinds in turn: distinct, counted, kept on disk, carried by a source."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_modules.build import build_data, build_mix
from data_modules.data_options import GIVEN, NEGATIVE_KINDS
from data_modules.negatives import entity_swap, make
from data_modules.negatives.make import (
    MAX_WORDS,
    ORIGINAL,
    OTHER,
    VERBATIM,
    NegativesSource,
    cached_negatives,
    make_negatives,
    other_responses,
    verbatim_knowledge,
)
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from data_modules.splits import SplitPlan
from faithkit.errors import UserError
from faithkit.provenance.row_keys import group_hash, text_key
from faithkit.records import Example
from tests.data_modules.negatives.corpus import corpus, example, ruled
from tests.data_modules.official.dialogues import FAITHDIAL
from tests.data_modules.official_rows import make as make_source
from tests.data_modules.official_rows import write

PLAIN = ["original", "verbatim", "other"]  # kinds that need no spaCy


def test_texts_are_distinct_and_never_the_response() -> None:
    pytest.importorskip("spacy")
    examples = corpus()
    made = make_negatives(examples, num=6, find=ruled())
    for one, texts, kinds in zip(examples, made.texts, made.kinds, strict=True):
        keys = [text_key(text) for text in (*texts, one.response)]
        assert len(set(keys)) == len(keys) and len(texts) == len(kinds) <= 6
    assert {kind for kinds in made.kinds for kind in kinds} == set(NEGATIVE_KINDS) - {GIVEN}
    of_kind = Counter(kind for kinds in made.kinds for kind in kinds)
    assert {f"negatives: {kind}": count for kind, count in of_kind.items()}.items() <= made.counts.items()


def test_a_row_with_none_is_told_with_what_would_help() -> None:
    with pytest.raises(UserError, match=r"example 0:0: original give no negative\n  at: here/train\n  hint: add other"):
        make_negatives(corpus(), kinds=["original"])
    copied = example(0, response=f" {example(0).knowledge.upper()}!")
    with pytest.raises(UserError, match="too few to make negatives from"):
        make_negatives([copied], kinds=[VERBATIM, OTHER])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ["swap"]}, r"kinds of negatives: \['swap'\]"),
        ({"kinds": "other"}, "kinds of negatives: 'other'"),
        ({"kinds": []}, "give a list"),
        ({"kinds": ["other", "other"]}, "give a list"),
        ({"num": 0}, "number of negatives: 0"),
        ({}, r"spaCy, which is not installed\n  hint: pip install spacy"),
    ],
)
def test_settings_are_checked(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise entity_swap.PackageNotFoundError(name)

    monkeypatch.setattr(entity_swap, "version", absent)
    with pytest.raises(UserError, match=message):
        cached_negatives(corpus(), **options)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Counts how often negatives are made anew."""
    made: list[int] = []

    def counted(examples: list[Example], **options: Any) -> make.Negatives:
        made.append(len(examples))
        return make_negatives(examples, **options)

    monkeypatch.setattr(make, "make_negatives", counted)
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "home"))
    return made


def test_they_are_made_once_for_one_content(calls: list[int]) -> None:
    first = cached_negatives(corpus(), kinds=PLAIN)
    assert cached_negatives(corpus(), kinds=PLAIN) == first == make_negatives(corpus(), kinds=PLAIN)
    assert calls == [12]
    cached_negatives(corpus(), kinds=PLAIN, seed=1)
    cached_negatives(corpus(), kinds=PLAIN, num=2)
    cached_negatives(corpus(), kinds=[VERBATIM])
    cached_negatives([*corpus(11), example(11, response="Another thing was said here.")], kinds=PLAIN)
    assert calls == [12] * 5


@pytest.fixture
def faithdial(tmp_path: Path) -> Path:
    turns = [
        {**turn, "response": f"{turn['response']} {n}", "knowledge": f"{turn['knowledge']} {n}"}
        for n, turn in enumerate(turn for dialogue in FAITHDIAL for turn in dialogue["utterances"])
    ]
    dialogues = [{"dialog_idx": n, "utterances": [turn]} for n, turn in enumerate(turns)]
    for name in ("train", "valid"):
        write(tmp_path / f"{name}.json", dialogues)
    return tmp_path


def test_a_source_carries_them(faithdial: Path, calls: list[int]) -> None:
    inner = make_source("faithdial", faithdial)
    source = NegativesSource(inner, PLAIN, num=2)
    report, plain = ReadReport(), ReadReport()
    examples = list(read_examples(source, "train", report, 5))
    assert [replace(e, negatives=()) for e in examples] == list(read_examples(inner, "train", plain))[:5]
    assert all(1 <= len(e.negatives) <= 2 for e in examples)
    assert report.counts["kept"] == 5 and report.counts["negatives: verbatim"] and calls == [8]
    assert {name: n for name, n in plain.counts.items() if name != "kept"}.items() <= report.counts.items()
    assert source.layout() != NegativesSource(inner, PLAIN, num=3).layout() != inner.layout()


@pytest.mark.parametrize("split_plan", [{"split": "train"}, {"fold": (1, 3)}, {"fold": (1, 3), "num_rows": 5}])
def test_only_what_trains_has_and_gives_them(split_plan: dict[str, Any], faithdial: Path, calls: list[int]) -> None:
    plan = SplitPlan({"validation": 0.4, "test": 0.2}, 0, **split_plan)
    source = NegativesSource(make_source("faithdial", faithdial), [OTHER, VERBATIM], num=4, split_plan=plan)
    examples = list(read_examples(source, "train", ReadReport(), plan.num_rows))
    assert len(examples) == (plan.num_rows or 8)
    groups = np.array([group_hash(example.group) for example in examples], np.uint64)
    parts = plan.rows(["train", "validation"], "train", groups)
    trained = set(parts.pop("train").tolist())
    assert trained and any(len(rows) for rows in parts.values())
    held = {text for row, e in enumerate(examples) if row not in trained for text in (e.response, e.knowledge)}
    for row, one in enumerate(examples):
        assert bool(one.negatives) == (row in trained)
        assert not held & set(one.negatives)
    assert all(e.negatives == () for e in read_examples(source, "validation", ReadReport()))


def test_a_configuration_asks_for_them(faithdial: Path, calls: list[int]) -> None:
    parts = [{"dataset": "faithdial", "path": str(faithdial)}, {"dataset": "wow", "path": "x", "only": "test"}]
    train, test = (part.source for part in build_mix(parts, (), {"kinds": [VERBATIM], "num": 1}))
    assert isinstance(train, NegativesSource) and not isinstance(test, NegativesSource)
    assert next(read_examples(train, "train", ReadReport())).negatives[0].startswith("Lake Orvel")
    with pytest.raises(UserError, match=r"no option 'kind'\n  hint: its options are kinds, num, seed, weights"):
        build_mix(parts, (), {"kind": [VERBATIM]})
    with pytest.raises(UserError, match="negatives are not made for embedded"):
        build_mix([{"dataset": "embedded"}], (), {})
    streamed = {"parts": parts, "negatives": {}, "streaming": True}
    with pytest.raises(UserError, match=r"data\.streaming with data\.negatives"):
        build_data(streamed, None, num_epochs=1, seed=0)  # type: ignore[arg-type]


def test_an_original_counts_where_the_tags_call_it_hallucinated() -> None:
    tagged = [("Hallucination",), (" partial hallucination", "Entailment"), ("Entailment",), ("Generic",), ()]
    examples = [example(0, tags=tags) for tags in tagged]
    examples.append(example(1, original=None, tags=tagged[0]))
    made = make_negatives(examples, kinds=[ORIGINAL, VERBATIM])
    assert [ORIGINAL in kinds for kinds in made.kinds] == [True, True, False, False, False, False]
    assert examples[0].original in made.texts[0]


def test_of_long_knowledge_the_nearest_sentences_stand_for_it() -> None:
    lines = [f"Number {n} of the many sentences in here says nothing of note to anybody." for n in range(20)]
    lines[13] = "The windmill creaks at night."
    (text,) = verbatim_knowledge([example(0, knowledge=" ".join(lines), response="Does the windmill creak?")])[0]
    assert lines[13] in text and len(text.split()) <= MAX_WORDS


def test_others_come_from_other_dialogues_and_are_not_borne_out_by_the_knowledge() -> None:
    examples = corpus()
    groups = {e.response: e.group for e in examples}
    for one, texts in zip(examples, other_responses(examples, 5, 0), strict=True):
        assert texts and len(set(texts)) == len(texts) <= 5
        assert all(groups[text] != one.group for text in texts)
    twin = example(11, knowledge=example(0).knowledge.upper(), response="It was Ada Fenn, long ago, who put it there.")
    right = example(9, response="Known far and wide, the lighthouse was built by Ada Fenn.")
    empty = example(10, response="Oh, yes!")
    texts = other_responses([*corpus(9), right, empty, twin], 20, 0)[0]
    assert texts and not {right.response, empty.response, twin.response} & set(texts)


def test_negatives_that_the_file_gives_are_a_kind(tmp_path: Path) -> None:
    def dialogue(name: str, *turns: Any) -> Path:
        return write(tmp_path / name, [{"dialog_idx": 1, "utterances": list(turns)}])

    first, second = FAITHDIAL[0]["utterances"][:2]
    given = {**first, "negative_samples": ["It is shallow.", "", "Lake Orvel is very deep."], "control_tokens": ["<a>"]}
    path = dialogue("train.json", given, {**second, "negative_samples": None})
    mix = build_mix([{"dataset": "faithdial", "path": str(path)}], negatives={"kinds": ["given", "verbatim"], "num": 4})
    report = ReadReport()
    texts = [example.negatives for example in read_examples(mix[0].source, "train", report)]
    assert "It is shallow." in texts[0] and len(texts[0]) == 2 and len(texts[1]) == 1
    assert report.counts["negatives: given"] == 1
    assert report.counts["turns with negative_samples (used by data.negatives.kinds=[given])"] == 1
    assert report.counts["turns with control_tokens (used by control.source=official)"] == 1
    mix = build_mix([{"dataset": "faithdial", "path": str(path)}], negatives={"kinds": ["given"], "num": 4})
    texts = [example.negatives for example in read_examples(mix[0].source, "train", ReadReport())]
    assert len(texts[0]) == 1 and texts[1] == ()  # a row without negatives has no contrastive part
    wrong = dialogue("bad.json", {**first, "negative_samples": "one"})
    with pytest.raises(UserError, match="utterance 0: field 'negative_samples' must be a list"):
        list(read_examples(make_source("faithdial", wrong), None, ReadReport()))
