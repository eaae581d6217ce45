"""The embedded corpus: the same for everyone, reachable anywhere, with exact spans and splits that share nothing."""

import hashlib
import json
from itertools import islice

import pytest

from data_modules.embedded.corpus import VERSION, Embedded, generate
from data_modules.embedded.hallucinate import RATES
from data_modules.embedded.layouts.span_layout import rag_sources
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example


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
    assert (VERSION, *digests) == (5, "4b7e4e1ba03a14ad", "69b1f18067fc2cfe"), "raise VERSION: old caches are stale"


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


def test_generic_is_dropped_unless_asked_for() -> None:
    assert all(e.meta["kind"] != "generic" for e in generate("train", 500))
    for generic, label in (("unlabelled", None), ("faithful", FAITHFUL), ("hallucinated", HALLUCINATED)):
        some = [e for e in generate("train", 500, generic=generic) if e.meta["kind"] == "generic"]
        assert len(some) > 10 and all(e.label == label and e.tags == ("Generic",) and e.spans == () for e in some)


def test_the_source() -> None:
    source = Embedded(num_train=30, num_validation=10, num_test=20, seed=3)
    assert source.files() == {} and source.name == source.path == "embedded"
    assert len(list(source.generate("train"))) == 30
    assert list(source.generate("test", 5, 9)) == list(source.generate("test"))[5:9]
    assert len(list(source.generate("validation", 5, 100))) == 5
    with pytest.raises(UserError, match="no split"):
        list(source.generate("dev"))
    with pytest.raises(UserError, match="generic"):
        Embedded(generic="keep")
