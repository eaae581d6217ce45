from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from faithkit.errors import UserError
from faithkit.metrics.classification import classification_metrics, join_outcomes
from faithkit.metrics.span_metrics import count_characters, count_shared, evaluate_spans, join_spans, merge_spans
from faithkit.pages.page_tables import render_text
from faithkit.records import SPAN_TYPES, Example, Prediction, Span
from faithkit.reports.span_report import span_report

LENGTH = 30
BOUNDS = st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(sorted)
SPANS = st.lists(
    st.builds(lambda b, t: Span(start=b[0], end=b[1], label=t), BOUNDS, st.sampled_from(SPAN_TYPES)), max_size=4
)
ROW = st.fixed_dictionaries(
    {
        "gold": SPANS,
        "found": SPANS,
        "called": st.booleans(),
        "score": st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]),
        "task": st.sampled_from(["QA", "Summary"]),
        "model": st.sampled_from(["a", "b"]),
        "group": st.sampled_from("xyz"),
    }
)
SIX = [f"{level}_{name}" for level in ("response", "char") for name in ("f1", "precision", "recall")]


def marked(id_, spans, **values):
    spans = None if spans is None else tuple(sorted(spans, key=lambda span: span.start))
    values = {"group": id_, "response": "x" * LENGTH, "label": "hallucinated" if spans else "faithful"} | values
    return Example(id=id_, source="s", split="test", knowledge="k", spans=spans, **values)


def found(id_, spans, called=None, score=None):
    label = "hallucinated" if (bool(spans) if called is None else called) else "faithful"
    return Prediction(id=id_, label=label, score=score, spans=tuple(spans))


def at(start, end, label="evident_conflict", **axes):
    return Span(start=start, end=end, label=label, **axes)


def build(rows):
    examples, predictions = [], {}
    for place, row in enumerate(rows):
        meta = {"task": row["task"], "model": row["model"]}
        examples.append(marked(str(place), row["gold"], group=row["group"], meta=meta))
        predictions[str(place)] = found(str(place), row["found"], row["called"], row["score"])
    return examples, predictions


def span_metrics(examples, predictions, *, num_resamples):
    return evaluate_spans(join_spans(examples, predictions)).score(num_resamples=num_resamples)


def characters(spans):
    return {place for span in spans for place in range(span.start, span.end)}


def f1_of(both, predicted, gold):
    precision, recall = both / predicted if predicted else 0.0, both / gold if gold else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def community(pairs):
    """The community scorer's character level: a set of characters a response, summed over responses, then divided."""
    sets = [(characters(gold), characters(said)) for gold, said in pairs]
    both = sum(len(gold & said) for gold, said in sets)
    return f1_of(both, sum(len(said) for _, said in sets), sum(len(gold) for gold, _ in sets))


@given(rows=st.lists(ROW, min_size=1, max_size=12))
def test_every_value_is_that_of_sets_of_characters(rows):
    examples, predictions = build(rows)
    metrics = span_metrics(examples, predictions, num_resamples=20).metrics
    parts = {"": rows}
    for task in {row["task"] for row in rows}:
        parts[f"task/{task.lower()}/"] = [row for row in rows if row["task"] == task]
    for model in {row["model"] for row in rows}:
        parts[f"model/{model}/"] = [row for row in rows if row["model"] == model]
    for prefix, chosen in parts.items():
        gold, called = [bool(row["gold"]) for row in chosen], [row["called"] for row in chosen]
        right = sum(map(bool.__and__, gold, called))
        flagged = [bool(characters(row["found"])) for row in chosen]
        right_spans = sum(map(bool.__and__, gold, flagged))
        for level, values in (
            ("response", f1_of(right, sum(called), sum(gold))),
            ("response_by_spans", f1_of(right_spans, sum(flagged), sum(gold))),
            ("char", community((row["gold"], row["found"]) for row in chosen)),
        ):
            for name, value in zip(("precision", "recall", "f1"), values, strict=True):
                assert metrics[f"{prefix}{level}_{name}"].value == pytest.approx(value)
                assert metrics[f"{prefix}{level}_{name}"].n == len(chosen)
        both_classes = 0 < sum(gold) < len(gold)
        assert (f"{prefix}response_auroc" in metrics) == both_classes
        if both_classes:
            expected = sk.roc_auc_score(gold, [row["score"] for row in chosen])
            assert metrics[f"{prefix}response_auroc"].value == pytest.approx(expected)
    for label in SPAN_TYPES:
        pairs = [([s for s in row["gold"] if s.label == label], row["found"]) for row in rows]
        name = f"type/{label}/char_recall"
        if any(characters(gold) for gold, _ in pairs):
            assert metrics[name].value == pytest.approx(community(pairs)[1])
            assert metrics[name].n == sum(bool(characters(gold)) for gold, _ in pairs)
        else:
            assert name not in metrics
    for metric in metrics.values():
        assert 0 <= metric.low <= metric.value <= metric.high <= 1


def test_the_response_level_and_its_calibration_are_those_of_classification():
    generator = np.random.default_rng(0)
    examples, predictions = [], {}
    for row in range(80):
        examples.append(marked(str(row), [at(0, 5)] if generator.random() < 0.4 else [], group=str(row // 2)))
        predictions[str(row)] = found(str(row), [], bool(generator.random() < 0.5), float(generator.random()))
    spans = span_metrics(examples, predictions, num_resamples=50).metrics
    labels = classification_metrics(join_outcomes(examples, predictions), num_resamples=50).metrics
    for name in ("f1", "precision", "recall", "auroc", "ece"):
        ours, theirs = spans[f"response_{name}"], labels[name]
        assert ours.to_dict() == pytest.approx(theirs.to_dict())


def test_nothing_marked_and_nothing_found_is_zero_and_said():
    scored = span_metrics([marked(c, []) for c in "ab"], {c: found(c, []) for c in "ab"}, num_resamples=5)
    assert {scored.metrics[name].value for name in SIX} == {0.0}
    assert not any("type/" in name or "auroc" in name or "ece" in name for name in scored.metrics)
    notes = " / ".join(scored.notes)
    assert "no character is marked in the data" in notes and "every response is faithful" in notes
    assert "no prediction has a score" in notes


def test_a_label_that_differs_from_its_spans_is_said_and_decides_the_response_level():
    examples = [marked("a", [at(0, 4)]), marked("b", [])]
    predictions = {"a": found("a", [at(0, 4)], called=False), "b": found("b", [], called=True)}
    scored = span_metrics(examples, predictions, num_resamples=5)
    assert scored.metrics["response_f1"].value == 0.0 and scored.metrics["char_f1"].value == 1.0
    assert any(note.startswith("2 of 2 predictions differ in label and spans") for note in scored.notes)


def test_the_better_tagger_is_told_from_the_worse_on_the_same_sources():
    examples = [marked(str(row), [at(0, 10)] if row % 2 else []) for row in range(40)]
    good = {e.id: found(e.id, [at(0, 9)] if e.spans else []) for e in examples}
    poor = {e.id: found(e.id, [at(8, 20)]) for e in examples}
    first, second = (evaluate_spans(join_spans(examples, one)) for one in (good, poor))
    differences = first.subtract(second, num_resamples=200)
    assert differences["char_f1"].low > 0 and differences["char_f1"].p_value < 0.05
    same = first.subtract(first, num_resamples=200)
    assert {d.value for d in same.values()} == {0.0} and same["char_f1"].p_value == 1.0


@given(first=SPANS, second=SPANS)
def test_runs_hold_the_characters_of_the_spans_and_no_other(first, second):
    ours, theirs = merge_spans(first), merge_spans(second)
    assert characters([at(*run) for run in ours]) == characters(first)
    assert all(left[1] <= right[0] for left, right in pairwise(ours))
    assert count_characters(ours) == len(characters(first))
    assert count_shared(ours, theirs) == count_shared(theirs, ours) == len(characters(first) & characters(second))


def test_each_type_has_its_own_characters_and_untyped_is_no_type():
    gold = (at(0, 4, "subtle_baseless"), at(2, 8, "evident_conflict"), at(10, 12, "hallucination"))
    found = join_spans([marked("a", gold)], {"a": Prediction(id="a", label="hallucinated", spans=(at(3, 11),))})
    by_type = {name: counts.tolist() for name, counts in found.by_type.items()}
    assert by_type == {"type/evident_conflict/char_recall": [[6, 5]], "type/subtle_baseless/char_recall": [[4, 1]]}
    assert found.marked.tolist() == [10] and found.hits.tolist() == [6]


def test_relations_and_elements_have_recall_of_gold_spans_and_precision_of_predicted_ones():
    gold = (
        at(0, 4, "number", relation="contradiction", element="number"),
        at(10, 20, "addition", relation="unsupported_addition"),
    )
    marks = (
        at(2, 6, "hallucination", relation="contradiction", element="unit"),
        at(18, 20, "hallucination", relation="contradiction"),
        at(21, 21, "hallucination", element="claim"),  # marks nothing
    )
    said = {"a": Prediction(id="a", label="hallucinated", spans=marks), "b": Prediction(id="b", label="faithful")}
    rows = [marked("a", gold), marked("b", [])]
    found = span_metrics(rows, said, num_resamples=20).metrics
    by_type = {name: (one.value, one.n) for name, one in found.items() if name.split("/")[0] in ("relation", "element")}
    assert by_type == {
        "relation/contradiction/char_recall": (0.5, 1),
        "relation/contradiction/char_precision": (pytest.approx(4 / 6), 1),
        "relation/unsupported_addition/char_recall": (0.2, 1),
        "element/number/char_recall": (0.5, 1),
        "element/unit/char_precision": (0.5, 1),
    }
    tables = span_report(rows, said, title="t", num_resamples=20).tables
    (relations,) = [table for table in tables if "relation" in str(table.title)]
    shown = [line.split() for line in render_text(relations).splitlines() if "contradiction" in line]
    assert shown[0][:3] == ["|", "contradiction", "|"] and {"50.0", "66.7"} <= {*shown[0]}


def test_task_and_model_come_from_meta_and_a_missing_label_from_the_spans():
    rows = [marked("a", [at(0, 1)], label=None, meta={"task": "QA", "model": "m"}), marked("b", [], label=None)]
    found = join_spans(rows, {id_: Prediction(id=id_, label="unparsed") for id_ in "ab"})
    assert found.gold.tolist() == [1, 0] and found.called.tolist() == [0, 0]
    assert found.tasks.tolist() == ["QA", ""] and found.models.tolist() == ["m", ""]


@pytest.mark.parametrize(
    ("wrong", "says"), [(at(3, LENGTH + 1), "beyond"), (at(1.5, 3), "no stretch"), (at(LENGTH, LENGTH + 9), "beyond")]
)
def test_a_span_that_is_no_stretch_of_its_response_names_the_prediction(wrong, says):
    with pytest.raises(UserError, match=f"prediction 'a' marks .*{says}"):
        join_spans([marked("a", [])], {"a": Prediction(id="a", label="hallucinated", spans=(at(0, 3), wrong))})


def test_examples_that_nobody_marked_cannot_be_scored():
    with pytest.raises(UserError, match="1 of 2 examples have no marked spans"):
        join_spans([marked("a", []), marked("b", None)], {id_: Prediction(id=id_, label="faithful") for id_ in "ab"})
