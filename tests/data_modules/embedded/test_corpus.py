"""The embedded corpus: the same for everyone, reachable anywhere, with exact spans, in the layout of each dataset."""

import hashlib
import json
from itertools import islice
from pathlib import Path

import pytest

from data_modules.build import build_source
from data_modules.embedded.corpus import VERSION, Embedded, generate
from data_modules.embedded.facts import RATES
from data_modules.embedded.layouts import WRITERS
from data_modules.embedded.layouts.span_layout import RagSource, rag_sources
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit.targets import DATASETS
from tests.data_modules.official_rows import make, read


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return list(generate("train", 6000))


def test_another_corpus_has_another_version_and_every_process_makes_the_same() -> None:
    dialogues = "".join(json.dumps(e.to_dict()) for e in generate("validation", 600, seed=7))
    parts = []
    for s in rag_sources("test", 90, 7):
        marks = [mark[:3] for a in s.answers for mark in a.marks]
        parts.append(json.dumps([s.question, *s.passages, *(a.text for a in s.answers), marks]))
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (dialogues, "".join(parts))]
    assert (VERSION, *digests) == (6, "51fabfffc5d00f95", "69b1f18067fc2cfe"), "raise VERSION: old caches are stale"


@pytest.mark.parametrize("start", [0, 1, 5, 23, 24, 25, 2_000_001])
def test_any_start_gives_what_a_walk_gives(start: int) -> None:
    begin = max(0, start - 30)
    walked = list(islice(generate("test", 100, start=begin), start - begin, start - begin + 9))
    assert list(generate("test", 9, start=start)) == walked
    assert [next(generate("test", 1, start=start + i)) for i in range(9)] == walked


def test_seeds_differ_and_ids_do_not_repeat(examples: list[Example]) -> None:
    assert len({e.id for e in examples}) == len(examples)
    other = list(generate("train", 100, seed=1))
    assert not {e.id for e in other} & {e.id for e in examples}
    assert not {e.knowledge for e in other} & {e.knowledge for e in examples}


def test_spans_are_the_unsupported_text(examples: list[Example]) -> None:
    for e in examples:
        assert e.reference is not None and e.spans is not None
        if e.label == FAITHFUL:
            assert e.spans == () and e.response == e.reference
            continue
        assert e.spans and e.response != e.reference
        for span in e.spans:
            text = e.response[span.start : span.end]
            assert text and text == text.strip() and span.label in RATES
            assert f'"{text}"' in (e.target or "")
        # The text outside the spans is also in the faithful reply, which is made of the same parts.
        ends = [0, *(span.end for span in e.spans)]
        outside = [e.response[end : span.start] for end, span in zip(ends, e.spans, strict=False)]
        if e.meta["kind"] in ("entity_swap", "number_swap") and e.meta["severity"] == "evident":
            assert any(part.strip() for part in outside)


def test_splits_share_nothing(examples: list[Example]) -> None:
    def sentences(split: list[Example]) -> set[str]:
        return {sentence for e in split for sentence in e.knowledge.split(". ")}

    train = sentences(examples)
    for split in ("validation", "test"):
        other = list(generate(split, 3000))
        assert not sentences(other) & train
        assert not {e.group for e in other} & {e.group for e in examples}


def test_the_source_generates_any_part_and_generic_turns_if_asked_for() -> None:
    source = Embedded(num_train=30, num_validation=10, num_test=20, seed=3)
    assert source.files() == {} and source.name == source.path == "embedded"
    assert len(list(source.generate("train"))) == 30
    assert list(source.generate("test", 5)) == list(source.generate("test"))[5:]
    with pytest.raises(UserError, match="no split"):
        list(source.generate("dev"))
    with pytest.raises(UserError, match="generic"):
        Embedded(generic="keep")
    assert all(e.meta["kind"] != "generic" for e in generate("train", 500))
    for generic, label in (("unlabelled", None), ("faithful", FAITHFUL), ("hallucinated", HALLUCINATED)):
        some = [e for e in generate("train", 500, generic=generic) if e.meta["kind"] == "generic"]
        assert len(some) > 10 and all(e.label == label and e.tags == ("Generic",) and e.spans == () for e in some)


@pytest.fixture(scope="module")
def sources() -> list[RagSource]:
    return list(rag_sources("train", 900, seed=0))


def test_what_an_answer_gets_wrong_is_not_in_its_source(sources: list[RagSource]) -> None:
    for source in sources:
        known = " ".join(source.passages)
        for answer in source.answers:
            for mark in answer.marks:
                text = answer.text[mark.start : mark.end]
                assert text.strip() == text != ""
                if mark.severity == "evident" and len(text) > 12:
                    assert text not in known


@pytest.mark.parametrize("name", ["ragtruth", "pairs"])
def test_loaders_give_the_marks_back(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path, {"train": 90, "test": 90}, seed=3)
    options = {"quality": "all"} if name == "ragtruth" else {}
    for split in ("train", "test"):
        wanted = {answer.text: answer for source in rag_sources(split, 90, seed=3) for answer in source.answers}
        found = [e for e in read(make(name, tmp_path, **options), split)[0] if "Unable" not in e.response]
        assert len(found) > 80
        for example in found:
            marks = wanted[example.response].marks
            assert [(s.start, s.end, s.label) for s in example.spans or ()] == [(m.start, m.end, m.type) for m in marks]


def test_ragtruth_has_its_tasks_its_flags_and_its_refusals(tmp_path: Path) -> None:
    WRITERS["ragtruth"](tmp_path, {"train": 900}, seed=0)
    examples, counts = read(make("ragtruth", tmp_path), "train")
    assert counts["dropped: quality incorrect_refusal"] == 18
    assert {e.meta["task"] for e in examples} == {"QA", "Summary", "Data2txt"}
    nulls = [e for e in examples if "due_to_null" in e.meta]
    assert nulls and all(e.meta["task"] == "Data2txt" and ": null" in e.knowledge for e in nulls)
    assert any("implicit_true" in e.meta for e in examples)


ROWS = {"train": 48, "validation": 24, "test": 36}
UNJUDGED = ("wow", "weak_wow", "cmu_dog", "topical_chat")


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"embedded", "everyday", "agents"}))
def test_every_dataset_can_stand_on_the_embedded_corpus_in_its_own_layout(name: str) -> None:
    source = build_source(name, "embedded", embedded_rows=ROWS)
    labels = set()
    for split in source.split_names():
        report = ReadReport()
        examples = list(read_examples(source, split, report))
        # Of some corpora many rows are dropped: turns unlike their knowledge, answers whose support is not clear.
        assert len(examples) >= (3 if name in ("topical_chat", "dropped_support") else 20) and not report.rejects
        labels |= {e.label for e in examples}
    if name == "dropped_support":
        assert labels == {HALLUCINATED} and all(e.spans for e in examples)
    else:
        some = {FAITHFUL} if name == "faithdial" else {None} if name in UNJUDGED else {FAITHFUL, HALLUCINATED}
        assert labels == some


def test_irregular_cells_of_the_releases_are_written_and_read() -> None:
    begin = build_source("begin", "embedded", embedded_rows=ROWS)
    blank = [one for one in read_examples(begin, "test", ReadReport()) if not one.history]
    assert blank and {one.meta["data_source"] for one in blank} == {"cmu"}, "a blank message is no turn"
    conjnli = build_source("conjnli", "embedded", embedded_rows=ROWS)
    report = ReadReport()
    quoted = [one for one in read_examples(conjnli, "train", report) if one.knowledge.startswith('"')]
    assert quoted and all(one.knowledge.count('"') == 2 and one.response for one in quoted) and not report.rejects
