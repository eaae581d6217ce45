import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.metrics.span_metrics import join_spans
from faithkit.pages.page_tables import render_text
from faithkit.published.figures import published_detectors
from faithkit.records import Prediction, Span, Turn
from faithkit.reports.span_report import choose_marked, level_table, mark_spans, marked_table, parts_table, span_report
from faithkit.statistics.metric import Metric
from tests.data_modules import examples

ANY_TEXT = st.text(st.characters(exclude_categories=()))
METRIC = Metric(value=0.5544, low=0.5, high=0.6, n=2700)


def example(id_="a", response="x" * 30, spans=(), **values):
    label = "hallucinated" if spans else "faithful"
    return examples.example(**{"id": id_, "response": response, "spans": tuple(spans), "label": label} | values)


def at(start, end, label="hallucination", score=None):
    return Span(start=start, end=end, label=label, score=score)


def test_our_figures_stand_above_published_ones_within_eighty_columns():
    names = [f"{level}_{name}" for level in ("response", "char") for name in ("f1", "precision", "recall")]
    systems = {"model": dict.fromkeys([*names, "response_auroc"], METRIC), "words not in context": {"char_f1": METRIC}}
    for level in ("response", "char"):
        text = render_text(level_table(level, systems, published_detectors("ragtruth", level), title="test/ragtruth"))
        assert all(len(line) <= 80 for line in text.splitlines())
        assert re.search(r"model +\| +55\.4 \| +55\.4 \| +55\.4 \[50\.0, 60\.0\]", text)
        assert "n = 2,700" in text and "published" in text
    assert re.search(r"LettuceDetect large +\| +- \| +- \| +58\.9", text)
    assert text.index("words not in context") < text.index("LettuceDetect large")


def test_parts_show_every_system_with_its_rows():
    metrics = {f"task/{task}/{level}_f1": METRIC for task in ("qa", "summary") for level in ("response", "char")}
    rows = [row for level in ("response", "char") for row in published_detectors("ragtruth", level, "qa")]
    text = render_text(parts_table("task/", {"model": metrics, "other": {}}, {"qa": rows}, title="by task"))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert re.search(r"Llama-2-13B, fine-tuned \(v1\) +\| +68\.7 \| +56\.6", text)
    assert text.count("2,700") == 2 and text.count("55.4 [50.0, 60.0]") == 4
    assert "RAG-HAT: Song et al. 2024" in text and "RL4HS: Su et al. 2025" in text, "every figure is cited"


def test_spans_stand_in_brackets_with_type_and_score_and_what_is_left_out_is_counted():
    text = "He was born in 1902 and lived in Rome."
    shown = mark_spans(text, [at(15, 19, "evident_conflict", 0.97), at(33, 37, score=0.5)])
    assert shown == "He was born in [[1902|evident_conflict 0.97]] and lived in [[Rome|0.50]]."
    assert mark_spans(text, [at(0, 6), at(3, 11), at(4, 4)]) == "[[He was born]] in 1902 and lived in Rome."
    long = "a" * 500 + "BAD" + "b" * 500 + "BAD" + "c" * 500
    first, gap, last = (f"... (+{n} characters) ..." for n in (490, 480, 490))
    shown = mark_spans(long, [at(500, 503), at(1003, 1006)], context=10)
    assert shown == f"{first} {'a' * 10}[[BAD]]{'b' * 10} {gap} {'b' * 10}[[BAD]]{'c' * 10} {last}"
    assert mark_spans("x" * 50, [], max_characters=10) == "x" * 10 + "... (+40 characters)"
    assert mark_spans("", []) == ""


@given(text=ANY_TEXT, cuts=st.lists(st.floats(0, 1), max_size=6), name=ANY_TEXT.filter(bool))
def test_no_marked_text_steers_the_terminal(text, cuts, name):
    places = sorted(int(cut * len(text)) for cut in cuts)
    spans = [at(start, end, name, 0.5) for start, end in zip(places[::2], places[1::2], strict=False)]
    shown = example(name, text, spans, history=(Turn(speaker="seeker", text=name),), meta={"task": name, "model": name})
    said = Prediction(id=name, label="faithful", spans=tuple(spans))
    table = render_text(
        marked_table([shown], {name: said}), parts_table("model/", {name: {f"model/{name}/char_f1": METRIC}})
    )
    bad = [c for c in table if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\u200c\u200d"]
    assert not bad


def test_a_person_can_judge_gold_beside_what_was_marked():
    shown = example(response="[bold]Kiwis fly[/bold] far.", spans=[at(12, 15, "evident_conflict")], meta={"task": "QA"})
    said = Prediction(id="a", label="hallucinated", score=0.9, spans=(at(12, 19, "evident_conflict", 0.8),))
    text = render_text(marked_table([shown], {"a": said}, title="judge"), width=120)
    assert "[bold]Kiwis [[fly|evident_conflict]][/bold] far." in text
    assert "[bold]Kiwis [[fly[/bo|evident_conflict 0.80]]ld] far." in text
    assert "gold hallucinated, called hallucinated, P(hallucinated) 0.90: right" in text


@pytest.mark.parametrize("limit", [0, 1, 4, 50])
def test_the_most_wrong_responses_are_chosen_and_marked_ones_beside(limit):
    rows = [example(str(row), spans=[at(0, row)] if row else []) for row in range(12)]
    said = {row.id: Prediction(id=row.id, label="faithful", spans=(at(0, 6),) if row.id == "6" else ()) for row in rows}
    chosen = [row.id for row in choose_marked(rows, join_spans(rows, said), limit)]
    assert len(chosen) == len(set(chosen)) == min(limit, 12)
    assert chosen[: (limit + 1) // 2][:3] == ["11", "10", "9"][: (limit + 1) // 2]
    if limit == 4:
        assert "0" not in chosen


@pytest.mark.parametrize(("marked", "verdict"), [((0, 5), "better than"), ((24, 30), "worse than")])
def test_marks_are_compared_with_the_strongest_baseline_in_words(marked, verdict):
    rows = [example(f"a{n}", "Wrong " + "right " * 4, [at(0, 5)], group=f"g{n}") for n in range(40)]
    found = {row.id: Prediction(id=row.id, label="hallucinated", spans=(at(*marked, score=0.9),)) for row in rows}
    conclusion = span_report(rows, found, title="test", num_resamples=100).conclusion
    assert conclusion is not None
    start = rf"the model is {verdict} [a-z ]+, the strongest simple baseline, on 40 rows: character F1 [+-]\d"
    assert re.match(start, conclusion.text), conclusion.text
