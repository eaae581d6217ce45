from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.metrics.span_metrics import count_characters, count_shared, join_spans, merge_spans, span_metrics
from faithkit.pages.page_tables import render_text
from faithkit.records import Example, Prediction, Span
from faithkit.reports.span_report import span_report

LENGTH = 30
BOUNDS = st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(sorted)
SPANS = st.lists(BOUNDS.map(lambda b: Span(start=b[0], end=b[1], label="evident_conflict")), max_size=8)


def example(id_="a", spans=(), label="hallucinated", **values):
    values = {"group": "g", "response": "x" * LENGTH} | values
    return Example(id=id_, source="s", split="test", knowledge="k", label=label, spans=spans, **values)


def span(start, end, label="evident_conflict"):
    return Span(start=start, end=end, label=label)


def characters(spans):
    return {place for s in spans for place in range(s.start, s.end)}


@given(first=SPANS, second=SPANS)
def test_runs_hold_the_characters_of_the_spans_and_no_other(first, second):
    ours, theirs = merge_spans(first), merge_spans(second)
    assert characters(span(*run) for run in ours) == characters(first)
    assert all(left[1] <= right[0] for left, right in pairwise(ours))
    assert count_characters(ours) == len(characters(first))
    assert count_shared(ours, theirs) == count_shared(theirs, ours) == len(characters(first) & characters(second))


def test_each_type_has_its_own_characters_and_untyped_is_no_type():
    gold = (span(0, 4, "subtle_baseless"), span(2, 8, "evident_conflict"), span(10, 12, "hallucination"))
    found = join_spans([example(spans=gold)], {"a": Prediction(id="a", label="hallucinated", spans=(span(3, 11),))})
    by_type = {name: counts.tolist() for name, counts in found.by_type.items()}
    assert by_type == {"type/evident_conflict/char_recall": [[6, 5]], "type/subtle_baseless/char_recall": [[4, 1]]}
    assert found.marked.tolist() == [10] and found.hits.tolist() == [6]


def test_relations_and_elements_have_recall_of_gold_spans_and_precision_of_predicted_ones():
    gold = (
        Span(start=0, end=4, label="number", relation="contradiction", element="number"),
        Span(start=10, end=20, label="addition", relation="unsupported_addition"),
    )
    marks = (
        Span(start=2, end=6, label="hallucination", relation="contradiction", element="unit"),
        Span(start=18, end=20, label="hallucination", relation="contradiction"),
        Span(start=21, end=21, label="hallucination", element="claim"),  # marks nothing
    )
    said = {"a": Prediction(id="a", label="hallucinated", spans=marks), "b": Prediction(id="b", label="faithful")}
    rows = [example("a", gold), example("b", (), "faithful", group="h")]
    found = span_metrics(rows, said, num_resamples=20).metrics
    by_type = {name: (one.value, one.n) for name, one in found.items() if name.split("/")[0] in ("relation", "element")}
    assert by_type == {
        "relation/contradiction/char_recall": (0.5, 1),
        "relation/contradiction/char_precision": (pytest.approx(4 / 6), 1),
        "relation/unsupported_addition/char_recall": (0.2, 1),
        "element/number/char_recall": (0.5, 1),
        "element/unit/char_precision": (0.5, 1),
    }
    (relations,) = [
        t for t in span_report(rows, said, title="t", num_resamples=20).tables if "relation" in str(t.title)
    ]
    shown = [line.split() for line in render_text(relations).splitlines() if "contradiction" in line]
    assert shown[0][:3] == ["|", "contradiction", "|"] and {"50.0", "66.7"} <= {*shown[0]}


def test_task_and_model_come_from_meta_and_a_missing_label_from_the_spans():
    rows = [
        example("a", (span(0, 1),), None, meta={"task": "QA", "model": "m"}),
        example("b", (), None),
    ]
    found = join_spans(rows, {id_: Prediction(id=id_, label="unparsed") for id_ in "ab"})
    assert found.gold.tolist() == [1, 0] and found.called.tolist() == [0, 0]
    assert found.tasks.tolist() == ["QA", ""] and found.models.tolist() == ["m", ""]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [(span(3, LENGTH + 1), "beyond"), (span(1.5, 3), "no stretch"), (span(LENGTH, LENGTH + 9), "beyond")],
)
def test_a_span_that_is_no_stretch_of_its_response_names_the_prediction(wrong, says):
    with pytest.raises(UserError, match=f"prediction 'a' marks .*{says}"):
        join_spans([example()], {"a": Prediction(id="a", label="hallucinated", spans=(span(0, 3), wrong))})


def test_examples_that_nobody_marked_cannot_be_scored():
    with pytest.raises(UserError, match="1 of 2 examples have no marked spans"):
        join_spans([example(), example("b", None)], {id_: Prediction(id=id_, label="faithful") for id_ in "ab"})
