import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from faithkit.metrics.classification import classification_metrics
from faithkit.metrics.outcomes import join_outcomes
from faithkit.metrics.span_metrics import evaluate_spans, join_spans, span_metrics
from faithkit.records import SPAN_TYPES, Example, Prediction, Span

LENGTH = 20
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
    values = {"group": id_, "response": "x" * LENGTH} | values
    spans = tuple(sorted(spans, key=lambda span: span.start))
    label = "hallucinated" if spans else "faithful"
    return Example(id=id_, source="s", split="test", knowledge="k", label=label, spans=spans, **values)


def found(id_, spans, called=None, score=None):
    label = "hallucinated" if (bool(spans) if called is None else called) else "faithful"
    return Prediction(id=id_, label=label, score=score, spans=tuple(spans))


def at(start, end, label="evident_conflict"):
    return Span(start=start, end=end, label=label)


def build(rows):
    examples, predictions = [], {}
    for place, row in enumerate(rows):
        meta = {"task": row["task"], "model": row["model"]}
        examples.append(marked(str(place), row["gold"], group=row["group"], meta=meta))
        predictions[str(place)] = found(str(place), row["found"], row["called"], row["score"])
    return examples, predictions


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


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ([at(0, 10)], [at(0, 10)] * 3),
        ([at(0, 10), at(2, 9)], [at(0, 10)]),
        ([at(0, 10), at(0, 10)], [at(0, 6), at(4, 10)]),
    ],
)
def test_what_pairwise_overlaps_count_twice_counts_once(gold, said):
    pairwise = sum(len(characters([a]) & characters([b])) for a in gold for b in said)
    naive = pairwise / len(characters(said)), pairwise / len(characters(gold))
    assert max(naive) > 1  # the fault: a share above the whole
    metrics = span_metrics([marked("a", gold)], {"a": found("a", said)}, num_resamples=5).metrics
    assert [metrics[f"char_{name}"].value for name in ("precision", "recall", "f1")] == [1.0, 1.0, 1.0]


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
