"""No shortcut through words: what a classifier without comparison reaches, and what the classes share."""

import statistics
from collections import Counter
from collections.abc import Callable

import pytest

from data_modules.embedded.corpus import generate
from data_modules.embedded.phrasing import LEADS, OPENERS
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from tests.data_modules.embedded.shortcut import counted_baseline, shortcut_baseline


@pytest.fixture(scope="module")
def train() -> list[Example]:
    return list(generate("train", 4000))


@pytest.mark.parametrize(("attack", "limit"), [(shortcut_baseline, 0.60), (counted_baseline, 0.64)])
def test_what_can_be_counted_does_not_solve_it(
    attack: Callable[..., float], limit: float, train: list[Example]
) -> None:
    assert attack(train, list(generate("test", 2000))) < limit


def test_classes_are_alike_in_length_and_words(train: list[Example]) -> None:
    by_label = {label: [e for e in train if e.label == label] for label in (FAITHFUL, HALLUCINATED)}
    assert abs(len(by_label[FAITHFUL]) - len(by_label[HALLUCINATED])) <= 1
    lengths = {label: statistics.mean(len(e.response.split()) for e in some) for label, some in by_label.items()}
    assert abs(lengths[FAITHFUL] - lengths[HALLUCINATED]) < 0.6
    for phrase in (*OPENERS, *LEADS, " not ", " no ", " never ", "I ", "my ", "you", "?", " loved "):
        counts = [sum(phrase in e.response for e in some) for some in by_label.values()]
        if sum(counts) >= 60:
            assert 0.55 < counts[0] / counts[1] < 1.8, (phrase, counts)
    assert by_label[FAITHFUL][0].knowledge == by_label[HALLUCINATED][0].knowledge


def test_an_addition_is_true_elsewhere(train: list[Example]) -> None:
    """The unsupported clause is one that faithful replies of other turns say too."""
    faithful = " ".join(e.response for e in train if e.label == FAITHFUL)
    clauses = Counter(
        e.response[s.start : s.end] in faithful
        for e in train
        for s in e.spans or ()
        if s.label == "addition" and not any(c.isdigit() or c.isupper() for c in e.response[s.start : s.end])
    )
    assert clauses[True] > 0.5 * clauses.total()
