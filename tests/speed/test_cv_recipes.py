"""Readings of the same taggers: they mark as a tagger does, and are chosen without the labels they are tested on."""

from dataclasses import replace
from pathlib import Path

import pytest

from critic.tagger.fit_calibration import fit_calibration
from critic.tagger.predictor import Tagger
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from speed.cv_recipes import OWN_PART, READINGS, Part, choose_inside, mark, read_all
from tests.critic.tagger.test_fit_calibration import drawn


def part(number: int, *, sharpness: float = 4.0) -> Part:
    answers, examples = drawn(number, count=20, sharpness=sharpness)
    named = [replace(one, id=f"{number}:{i}", group=f"{number}:{i // 2}") for i, one in enumerate(examples)]
    return Part(named, answers, {one.id: Prediction(id=one.id, label=FAITHFUL, score=0.1) for one in named})


def turned_round(given: Part) -> Part:
    """The same answers with every label the other way."""
    other = {HALLUCINATED: FAITHFUL, FAITHFUL: HALLUCINATED}
    return replace(given, examples=[replace(one, label=other[str(one.label)], spans=()) for one in given.examples])


def test_no_part_is_read_by_its_own_labels() -> None:
    parts = [part(number) for number in range(4)]
    found, chosen = choose_inside(parts)
    again, also_chosen = choose_inside([turned_round(parts[0]), *parts[1:]])
    assert chosen[0] == also_chosen[0]
    assert {one.id: found[one.id] for one in parts[0].examples} == {one.id: again[one.id] for one in parts[0].examples}
    assert found.keys() == {one.id for each in parts for one in each.examples}


def test_the_reading_that_does_best_on_the_other_parts_is_chosen() -> None:
    parts = [part(number) for number in range(4)]
    _, chosen = choose_inside(parts)
    assert OWN_PART not in chosen, "it finds nothing here"
    right = [
        replace(
            each,
            own={
                one.id: Prediction(id=one.id, label=str(one.label), spans=tuple(one.spans or ()))
                for one in each.examples
            },
        )
        for each in parts
    ]
    assert choose_inside(right)[1] == [OWN_PART] * 4


@pytest.mark.parametrize("reading", [name for name in READINGS if name != OWN_PART])
def test_what_a_reading_leaves_out_does_not_matter(reading: str) -> None:
    parts = [part(number) for number in range(3)]
    missing = [(each.answers.odds > 0).astype(float) for each in parts]
    other_words = [
        replace(each, answers=replace(each.answers, words=replace(each.answers.words, missing=own)))
        for each, own in zip(parts, missing, strict=True)
    ]
    same = read_all(parts, READINGS[reading]) == read_all(other_words, READINGS[reading])
    assert same == (reading in ("across folds, tokens alone", "across folds, with sentences"))


def test_marks_are_those_of_the_tagger(trained_tagger: Path) -> None:
    tagger = Tagger.load(str(trained_tagger), device="cpu")
    texts = [("The cat sat on the mat.", "The cat sat. Purple whales sing loudly!"), ("Rain fell.", "It was dry.")]
    examples = [
        Example(id=str(i), source="s", split="test", group=str(i), knowledge=known, response=said)
        for i, (known, said) in enumerate(texts)
    ]
    answers, labelled = drawn()
    tagger.calibration, _ = fit_calibration(answers, labelled, "f1")
    marked = mark(tagger.answers(examples), examples, tagger.calibration)
    for told in tagger.predict_examples(examples):
        own = marked[told.id]
        assert (own.label, own.score) == (told.label, pytest.approx(told.score))
        assert [(s.start, s.end) for s in own.spans] == [(s.start, s.end) for s in told.spans]
