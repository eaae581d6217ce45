"""Agreement: the libraries' values, those of published examples, and what must not change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit_papers.annotation.measures import (
    MISSING,
    Answered,
    Marked,
    Ratings,
    evaluate_spans,
    marked_items,
    measure,
    questions_of,
    ratings_of,
)


def table(rows, categories=None):
    values = np.array(rows, np.int64)
    names = tuple(map(str, range(categories or int(values.max()) + 1)))
    groups = tuple(f"g{i}" for i in range(len(rows)))
    return Ratings(values, names, groups, tuple("abcdefghijklmnop"[: values.shape[1]]))


def values_of(ratings, **options):
    return {name: metric.value for name, metric in measure(ratings, num_resamples=10, **options).metrics.items()}


def test_alpha_of_krippendorffs_own_example():
    # Krippendorff 2011, section C: four observers, twelve units, missing values.
    rows = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    values = [[MISSING if value is None else value - 1 for value in unit] for unit in zip(*rows, strict=True)]
    found = values_of(table(values), ordinal=True)
    assert found["alpha"] == pytest.approx(0.743, abs=5e-4)
    assert found["alpha_ordinal"] == pytest.approx(0.815, abs=5e-4)


RATED = st.lists(
    st.lists(st.integers(MISSING, 3), min_size=3, max_size=3).filter(lambda row: sum(v != MISSING for v in row) >= 2),
    min_size=3,
    max_size=15,
)


@given(RATED)
def test_agreement_of_those_who_agree_is_one_and_intervals_hold_their_value(rows):
    same = [[row[0] if row[0] != MISSING else 0] * 3 for row in rows]
    if len({row[0] for row in same}) > 1:
        assert all(value == pytest.approx(1) for value in values_of(table(same, 4), ordinal=True).values())
    for metric in measure(table(rows, 4), ordinal=True, num_resamples=20).metrics.values():
        assert -1 - 1e-9 <= metric.low <= metric.value + 1e-9 and metric.value - 1e-9 <= metric.high <= 1 + 1e-9


def test_items_with_another_number_of_ratings_are_left_out_of_fleiss_and_noted():
    rows = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [0, 1, MISSING], [1, MISSING, MISSING]]
    scored = measure(table(rows), num_resamples=10)
    assert scored.metrics["fleiss_kappa"].n == 3 and scored.metrics["alpha"].n == 4
    assert any("leave out 1 items" in note for note in scored.notes)
    assert any("1 items have a single rating" in note for note in scored.notes)


@given(RATED)
def test_values_are_those_of_the_libraries(rows):
    krippendorff = pytest.importorskip("krippendorff")
    inter_rater = pytest.importorskip("statsmodels.stats.inter_rater")
    if len({value for row in rows for value in row} - {MISSING}) < 2:
        return
    ratings = table(rows, 4)
    found, counts = values_of(ratings, ordinal=True), ratings.counts().astype(int)
    for name, level in {"alpha": "nominal", "alpha_ordinal": "ordinal"}.items():
        value = krippendorff.alpha(value_counts=counts, value_domain=np.arange(4), level_of_measurement=level)
        assert found[name] == pytest.approx(value)
    whole = counts[counts.sum(axis=1) == 3]
    if len(whole) > len(rows) / 2 and len(np.flatnonzero(whole.sum(axis=0))) > 1:
        assert found["fleiss_kappa"] == pytest.approx(inter_rater.fleiss_kappa(whole))
        assert found["randolph_kappa"] == pytest.approx(inter_rater.fleiss_kappa(whole, method="randolph"))


def answered(item, annotator, answers, **others):
    return Answered(item=item, annotator=annotator, group=item, answers=answers, **others)


def test_questions_of_several_kinds_become_tables():
    span = {"start": 0, "end": 1, "label": "x"}
    rows = [
        answered("1", "a", {"begin": ["Entailment"], "spans": [], "score": 2, "why": "so"}),
        answered("1", "b", {"begin": ["Generic", "Entailment"], "spans": [span], "score": 10}),
        answered("2", "b", {"begin": [], "score": 3}),
    ]
    kinds = questions_of(rows, "f")
    assert kinds == {"begin": "nominal", "spans": "spans", "score": "ordinal"}
    assert ratings_of(rows, "score", "ordinal").categories == ("2", "3", "10"), "in the order of numbers"
    assert ratings_of(rows, "begin", "nominal").categories == ("", "Entailment", "Entailment + Generic")
    assert ratings_of(rows, "begin", "nominal", "Entailment").values.tolist() == [[1, 1], [MISSING, 0]]


def test_spans_by_hand():
    # Of 20 characters a marks 0-10, b 5-15: five in common, ten each.
    items = [Marked("g", 20, {"a": [(0, 10, "x")], "b": [(5, 15, "y")]}), Marked("h", 20, {"a": [], "b": []})]
    found = {name: metric.value for name, metric in evaluate_spans(items, num_resamples=10).metrics.items()}
    assert found["char_f1"] == pytest.approx(0.5)
    assert found["typed_char_f1"] == 0
    # Krippendorff's coincidences over 40 characters: none/none 25 twice, x/none 5, none/y 5, x/y 5, each both ways.
    n, by_label = 80, {"": 60, "x": 10, "y": 10}
    disagreed = 2 * (5 + 5 + 5)
    by_chance = n * n - sum(count**2 for count in by_label.values())
    assert found["char_alpha"] == pytest.approx(1 - (n - 1) * disagreed / by_chance)


def test_spans_beyond_their_text_and_without_a_length_are_refused():
    span = {"start": 0, "end": 5, "label": "x"}
    beyond = [answered("1", who, {"spans": [span]}, length=4) for who in "ab"]
    with pytest.raises(UserError, match="no span of a text of 4 characters"):
        marked_items(beyond, "spans", "f")
    with pytest.raises(UserError, match="length"):
        marked_items([answered("1", who, {"spans": [span]}) for who in "ab"], "spans", "f")
