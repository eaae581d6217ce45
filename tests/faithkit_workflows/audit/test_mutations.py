"""Changed copies: each differs from its original at the marked place alone, by a change of its type."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit_workflows.audit import mutations
from faithkit_workflows.audit.mutations import (
    CHANGERS,
    ORIGINAL,
    TYPE,
    TYPES,
    Pool,
    apply_changes,
    make_cases,
    read_material,
)
from tests.faithkit_workflows.audit.auditing import configure

POOL = Pool(["Odessa", "Mira Voss"], ["The harbour froze for 9 days."])


def change(name: str, text: str, context: str = "", seed: int = 0) -> tuple[str, list[str]]:
    """The changed text, and what is marked in it."""
    changed, spans = apply_changes(text, CHANGERS[name](text, context or text, POOL, random.Random(seed)))
    return changed, [changed[span.start : span.end] for span in spans]


def cases(num_cases: int = 8) -> list[Example]:
    documents = read_material(configure("default")).documents
    return make_cases(documents, [], num_cases=num_cases, seed=1)


@pytest.mark.parametrize(
    ("name", "text", "changed", "marked"),
    [
        ("negation", "The lid is closed at night.", "The lid is not closed at night.", ["not"]),
        ("negation", "The lid cannot be closed.", "The lid can be closed.", ["can be"]),
        ("negation", "It must not get wet.", "It must get wet.", ["must get"]),
        ("quantifier", "All rooms have a bath.", "Some rooms have a bath.", ["Some"]),
        ("quantifier", "It holds at least 5 litres.", "It holds at most 5 litres.", ["at most"]),
        ("relation", "Close it before you leave.", "Close it after you leave.", ["after"]),
        ("unit", "Wait for 5 cents.", "", []),
    ],
)
def test_a_change_is_of_its_type_and_marked(name: str, text: str, changed: str, marked: list[str]) -> None:
    found = change(name, text)
    if changed:
        assert found == (changed, marked)
    else:
        assert found[0] != text and found[1][0] in ("dollar", "euro", "pound", "franc")


def test_numbers_dates_units_and_names_are_replaced_by_others_of_their_kind() -> None:
    text = "In May 1998 the bridge at Kiel cost 40 million euros."
    for seed in range(20):
        assert change("number", text, seed=seed)[1][0].replace(".", "").replace(",", "").isdigit()
        date = change("date", text, seed=seed)[1][0]
        assert date not in ("May", "1998") and (date.isdigit() or date.isalpha())
        assert change("name", text, seed=seed)[1][0] in POOL.names


@given(st.text(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.text(max_size=6)), max_size=3), st.data())
def test_spans_cover_exactly_what_is_new(text: str, news: list[tuple[int, str]], data: st.DataObject) -> None:
    bounds = sorted({min(place, len(text)) for place, _ in news})
    changes = [(place, place, f"<{new.strip()}>") for place, (_, new) in zip(bounds, news, strict=False)]
    changed, spans = apply_changes(text, changes)
    assert [changed[span.start : span.end] for span in spans] == [new for _, _, new in changes]
    outside = [0, *(bound for span in spans for bound in (span.start, span.end)), len(changed)]
    assert "".join(changed[start:end] for start, end in list(pairwise(outside))[::2]) == text


def test_every_copy_differs_from_its_original_and_is_marked() -> None:
    rows = {case.id: case for case in cases()}
    assert len(rows) == len(cases())
    for case in rows.values():
        if case.meta[TYPE] == mutations.UNCHANGED:
            assert case.label == FAITHFUL and case.spans == () and case.response in case.knowledge
            continue
        original = rows[case.meta[ORIGINAL]]
        assert case.label == HALLUCINATED and case.spans
        assert (case.knowledge, case.response) != (original.knowledge, original.response)
        if case.meta[TYPE] == mutations.REMOVED:
            (span,) = case.spans
            assert case.response == original.response and case.response[span.start : span.end] not in case.knowledge
        else:
            assert case.knowledge == original.knowledge


def test_cases_are_balanced_and_the_same_for_a_seed() -> None:
    counts = Counter(case.meta[TYPE] for case in cases(8))
    assert all(counts[name] == 8 for name in TYPES)
    assert cases() == cases()
    first = Counter(case.meta[TYPE] for case in cases(20)[:60])
    assert min(first[name] for name in TYPES) >= 1, "what is cut off by the time limit is balanced too"
