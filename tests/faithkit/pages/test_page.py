import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.pages.page import OUTCOMES, SPAN_OUTCOMES, AnswerSet, build_row, response_outcome, span_kinds, write_page
from faithkit.records import FAITHFUL, HALLUCINATED, Prediction, Span, Turn
from faithkit.reports.report import metrics_table
from faithkit.statistics.metric import Metric
from tests.browser import PROGRAM, chromium
from tests.data_modules.examples import example as make_example

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
NASTY = (
    "<script>document.title = 'pwned'</script>",
    "</script><!-- <img src='{{script}}'>",
    "a\x00\u202eb\u2028\ud800\"'&amp;",
)


def span(start, end, label="evident_conflict", score=None):
    return Span(start=start, end=end, label=label, score=score)


def example(id_="a", response="Kiwis are big fish.", spans=(), **values):
    label = None if spans is None else HALLUCINATED if spans else FAITHFUL
    values = {"knowledge": "Kiwis are birds.", "label": label} | values
    return make_example(id=id_, response=response, spans=spans, **values)


def prediction(id_="a", spans=(), score=None, label=None):
    called = label or (HALLUCINATED if spans else FAITHFUL)
    return Prediction(id=id_, label=called, score=score, spans=tuple(spans))


def written(folder, pairs, **values):
    path = folder / "page.html"
    own = {name: values.pop(name) for name in ("tables", "notes") if name in values}
    one = AnswerSet(name="s", examples=[e for e, _ in pairs], predictions={e.id: p for e, p in pairs}, **own)
    write_page(path, [one], **({"title": "T"} | values))
    return path


def block(page, name):
    text = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)
    assert text is not None
    return json.loads(text[1])


def joined(pieces):
    return "".join(piece if isinstance(piece, str) else piece[0] for piece in pieces)


def as_browser(text):
    """Two halves of a pair side by side are one character in every JSON reader."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@st.composite
def marked(draw):
    text = draw(ANY_TEXT)
    places = st.integers(0, len(text))
    spans = st.lists(st.tuples(places, places), max_size=4)
    gold, called = ([span(*sorted(ends)) for ends in sorted(draw(spans))] for _ in range(2))
    return text, gold, called


@given(marked())
def test_pieces_joined_are_the_text_and_every_character_knows_its_spans(case):
    text, gold, called = case
    pieces = build_row(example(response=text, spans=tuple(gold)), [prediction(spans=called)], 0)["pieces"]
    gold, called = ([one for one in spans if one.start < one.end] for spans in (gold, called))
    assert joined(pieces) == text
    over = [
        places
        for piece in pieces
        for places in [([], []) if isinstance(piece, str) else piece[1:]] * len(joined([piece]))
    ]
    for place, found in enumerate(over):
        wanted = tuple([i for i, s in enumerate(spans) if s.start <= place < s.end] for spans in (gold, called))
        assert tuple(found) == wanted


@given(marked(), ANY_TEXT, ANY_TEXT)
def test_any_text_survives_the_page_and_none_of_it_is_markup(tmp_path_factory, case, other, title):
    response, gold, called = case
    values = {"history": (Turn(speaker=other, text=other),), "meta": {"task": other, "model": other}}
    shown = example(response=response, spans=tuple(gold), knowledge=other, **values)
    path = written(tmp_path_factory.mktemp("page"), [(shown, prediction(spans=called, score=0.5))], title=title)
    page = path.read_text(encoding="utf-8")
    [shown_row] = block(page, "rows-0")
    assert joined(shown_row["pieces"]) == as_browser(response)
    assert block(page, "contexts-0") == [as_browser(other)]
    assert shown_row["turns"] == [[as_browser(other)] * 2]
    assert page.lower().count("<script") == page.lower().count("</script") == 4
    body = page[page.index("<body>") : page.index('<script type="application/json"')]
    assert not [c for c in body if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\u200c\u200d"]


def test_the_page_names_nothing_outside_itself_and_forbids_it(tmp_path):
    page = written(tmp_path, [(example(), prediction())]).read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert "unsafe" not in page
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", page)


def test_a_context_that_answers_share_is_held_once(tmp_path):
    pairs = [(example(str(n)), prediction(str(n))) for n in range(3)]
    pairs.append((example("d", knowledge="Other."), prediction("d")))
    page = written(tmp_path, pairs).read_text(encoding="utf-8")
    assert block(page, "contexts-0") == ["Kiwis are birds.", "Other."]
    assert [each["context"] for each in block(page, "rows-0")] == [0, 0, 0, 1]


def test_spans_and_metrics_are_told_with_their_numbers(tmp_path):
    typed = Span(start=10, end=13, label="subtle_baseless", relation="unsupported_addition")
    shown = example(spans=(span(0, 4), typed))
    said = prediction(spans=[span(2, 6, score=0.83), span(14, 18, score=0.4)], score=0.91)
    page = written(tmp_path, [(shown, said)]).read_text(encoding="utf-8")
    [shown_row] = block(page, "rows-0")
    assert shown_row["gold_spans"] == [
        [["evident_conflict"], [0.5]],
        [["subtle_baseless", "unsupported_addition"], [0]],
    ]
    [[called, score, outcome, kinds, spans]] = shown_row["said"]
    assert [called, score, OUTCOMES[outcome]] == [1, 0.91, "right hallucinated"]
    assert spans == [[["evident_conflict"], 0.83, 0.5], [["evident_conflict"], 0.4, 0]]
    assert [kind for bit, kind in enumerate(SPAN_OUTCOMES) if kinds >> bit & 1] == [
        "missed span",
        "false alarm span",
        "found span",
    ]


def test_the_first_table_is_in_sight_and_the_others_with_their_notes_are_folded(tmp_path):
    metric = Metric(value=0.5, low=0.4, high=0.6)
    tables = [metrics_table({"model <b>": {name: metric}}, title=name) for name in ("first", "second")]
    page = written(tmp_path, [(example(), prediction())], tables=tables, notes=["from: <i>"], about=["Run: a\x1b"])
    header = page.read_text(encoding="utf-8").partition("<header>")[2].partition("</header>")[0]
    seen, _, folded = header.partition("<details>")
    assert "<h2>first</h2>" in seen and "50.0 [40.0, 60.0]" in seen and "second" not in seen
    assert "<h2>second</h2>" in folded and "from: &lt;i&gt;" in folded
    assert "model &lt;b&gt;" in seen and "<b>" not in header and "Run: a\\x1b" in seen


def test_without_texts_the_page_has_verdicts_and_nothing_to_read(tmp_path):
    secret = "The patient is Ada."
    history = (Turn(speaker="s", text=secret),)
    shown = example(response=secret, spans=(span(0, 3),), knowledge=f"{secret} 1", history=history)
    said = Prediction(id="a", label=HALLUCINATED, score=0.9, spans=(span(4, 8),), text=secret)
    page = written(tmp_path, [(shown, said)], texts=False).read_text(encoding="utf-8")
    [shown_row] = block(page, "rows-0")
    assert "Ada" not in page and shown_row["gold"] == 1 and shown_row["said"][0][:2] == [1, 0.9]


def test_of_too_many_rows_the_mistakes_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("faithkit.pages.page.MAX_ROWS", 3)
    pairs = [(example(f"r{n}"), prediction(f"r{n}")) for n in range(5)] + [
        (example(f"m{n}", spans=(span(0, 5),)), prediction(f"m{n}")) for n in range(2)
    ]
    page = written(tmp_path, pairs).read_text(encoding="utf-8")
    assert [shown["id"] for shown in block(page, "rows-0")] == ["r0", "m0", "m1"]
    assert "Of s 3 of 7 answers are here" in page


@pytest.mark.parametrize(
    ("gold", "called", "outcome", "kinds"),
    [
        ((span(0, 4),), (), "missed", ["missed span"]),
        ((), (span(0, 4),), "false alarm", ["false alarm span"]),
        ((span(0, 4),), (span(3, 6),), "right hallucinated", ["found span"]),
        ((), (), "right faithful", ["no span, rightly"]),
        (None, (span(0, 4),), "not judged", ["not marked"]),
    ],
)
def test_answers_are_sorted_by_what_went_wrong(gold, called, outcome, kinds):
    assert response_outcome(example(spans=gold), prediction(spans=called)) == outcome
    assert span_kinds(example(spans=gold), prediction(spans=called)) == kinds


def test_spans_judge_an_answer_without_a_label_and_an_empty_span_marks_nothing():
    unlabelled = example(spans=(span(0, 4),), label=None)
    assert response_outcome(unlabelled, prediction(spans=[span(3, 6)])) == "right hallucinated"
    assert response_outcome(example(spans=(), label=None), prediction()) == "right faithful"
    assert span_kinds(example(), prediction(spans=[span(3, 3)])) == ["no span, rightly"]
    assert len(build_row(example(), [prediction(spans=[span(3, 3)])], 0)["said"][0]) == 4


def test_a_span_beyond_its_answer_is_counted_and_marks_nothing(tmp_path):
    page = written(tmp_path, [(example(), prediction(spans=[span(3, 99)]))]).read_text(encoding="utf-8")
    assert block(page, "rows-0")[0]["pieces"] == ["Kiwis are big fish."]
    assert "the marks of 1 predictions reach beyond their answers" in page


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="needs the program chromium")
def test_a_browser_runs_no_script_of_the_data_asks_for_nothing_and_filters_by_the_address(tmp_path):
    image = "<img src='leak.png'><script src='leak.js'></script>"
    missed = [(example(f"m{n}", text, (span(0, 5),)), prediction(f"m{n}")) for n, text in enumerate((*NASTY, image))]
    right = [(example(f"r{n}", "👩‍🔬 Kiwis sing."), prediction(f"r{n}")) for n in range(60)]
    path = written(tmp_path, missed + right, title=f"Title {image}")
    counts = {
        "outcome=missed&sort=file": ("4 of 64 answers", 4),
        "q=KIWIS&page=2": ("60 of 64 answers", 10),
        "id=r7": ("1 of 64 answers", 1),
    }
    with chromium() as browser:
        for state, (count, number) in counts.items():
            browser.open(f"file://{path}#{state}")
            assert browser.texts("#count") == [count] and len(browser.texts("article")) == number
            if state.startswith("outcome"):
                answers = browser.ask("[...document.querySelectorAll('p.answer')].map((e) => e.textContent)")
                assert answers == [*NASTY[:2], "a\\x00\\u202eb\\u2028\\ud800\"'&amp;", image]
            elif state.startswith("q"):
                assert "👩‍🔬" in browser.texts("article")[0]
        assert browser.ask("document.title").startswith(f"Title {image}")
        asked = browser.ask("performance.getEntriesByType('resource').map((e) => e.name)")
        assert asked == [] and browser.complaints == []
