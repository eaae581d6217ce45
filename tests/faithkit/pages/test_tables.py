import io
import os
import pty
import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from faithkit.pages.page_tables import (
    choose_examples,
    escape_markdown,
    escape_terminal,
    format_metric,
    new_number_table,
    predictions_table,
    print_tables,
    render_text,
    table_cells,
    to_markdown,
)
from faithkit.records import Prediction, Turn
from faithkit.reports.report import metrics_table
from faithkit.statistics.metric import Metric
from tests.data_modules.examples import example as make_example
from tests.running import ROOT


def table_of(*cells: str):
    table = new_number_table("a title", "name", ["count"])
    for cell in cells:
        table.add_row(Text(cell), "1")
    table.caption = Text("first line\nsecond | line")
    return table


def test_a_table_is_written_with_its_title_and_caption():
    assert to_markdown(table_of("a", "b|c")).splitlines() == [
        "## a title",
        "",
        "| name | count |",
        "| --- | ---: |",
        "| a | 1 |",
        r"| b\|c | 1 |",
        "",
        "first line",
        "",
        r"second \| line",
        "",
    ]
    assert table_cells(table_of("a")) == (["name", "count"], [["a", "1"]], [False, True])


BASELINES = ("majority", "word overlap", "response length", "random", "boosted trees")


def table_of_types(min_width: int):
    table = new_number_table("", "type", ["n", "model", *BASELINES], min_width=min_width, no_wrap=["n"])
    for name in ("reasoning error", "overreliance"):
        table.add_row(Text(name), "1,109", "50.1 [40.5, 60.5]", "50.2", "50.3", "50.4", "50.5", "50.6")
    return table


@pytest.mark.parametrize("min_width", [12, 17])
def test_a_narrow_table_breaks_no_word_where_all_words_fit(min_width):
    found = render_text(table_of_types(min_width), width=82)
    assert set(" ".join(["reasoning error overreliance", *BASELINES]).split()) <= set(found.split())
    assert max(map(len, found.splitlines())) <= 82


@pytest.mark.parametrize("width", [40, 60, 79, 80])
def test_no_figure_is_left_out_however_narrow_the_terminal(width):
    found = render_text(table_of_types(17), width=width)
    assert max(map(len, found.splitlines())) <= width
    cells = "".join(line.rpartition("|")[2] for line in found.splitlines())
    assert cells.replace(" ", "").count("50.6") == 2


@given(st.text())
def test_no_text_breaks_out_of_its_cell_or_becomes_markup(text):
    line = to_markdown(table_of(text)).splitlines()[4]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>`*\[\]]", line)
    assert re.sub(r"\\([\\`*_\[\]<>|#])", r"\1", escape_markdown(text)) == escape_terminal(text)


SHOWING = """
from faithkit.pages.page_tables import new_number_table, predictions_table, print_tables
from faithkit.records import Example, Prediction
texts = dict(id="a" * 150, knowledge="k " * 90, response="r" * 200)
row = Example(source="s", split="test", group="g", label="faithful", **texts)
said = {row.id: Prediction(id=row.id, label="hallucinated", score=0.9)}
wide = new_number_table("runs/" + "long-" * 40, "system", [f"metric {n}" for n in range(6)], no_wrap=["metric 5"])
wide.add_row("my-system-of-a-long-name-" * 4, *["71.2 [69.0, 73.1]"] * 6)
print_tables(predictions_table([row], said, title="predictions"), wide)
"""


def on_a_terminal(columns: int, **environment: str) -> str:
    """The output of a process whose output is a terminal of this width."""
    main, worker = pty.openpty()
    given = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    given |= {"TERM": "xterm-256color", "COLUMNS": str(columns), "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    given |= environment
    with subprocess.Popen([sys.executable, "-c", SHOWING], stdout=worker, env=given) as process:
        os.close(worker)
        found = b""
        try:
            while block := os.read(main, 65536):
                found += block
        except OSError:  # how Linux tells that the other end is closed
            pass
        os.close(main)
    assert process.returncode == 0
    return found.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_unless_they_are_not_wanted() -> None:
    red = "\x1b[31m"
    assert red in on_a_terminal(80)
    plain = on_a_terminal(80, NO_COLOR="1")
    assert red not in plain and "called hallucinated" in plain
    assert not any(f"\x1b[{code}m" in plain for code in (*range(30, 38), *range(40, 48), *range(90, 98)))


@pytest.mark.parametrize("columns", [80, 120])
def test_wide_tables_and_long_names_fit_the_terminal_and_nothing_is_cut(columns: int) -> None:
    shown = on_a_terminal(columns, NO_COLOR="1", TERM="dumb")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= columns and "\u2026" not in shown
    together = "".join(character for character in shown if character.isalnum() or character in ".,[]-")
    assert "a" * 150 in together and "r" * 200 in together
    assert shown.count("69.0,") == 6


ANY_TEXT = st.text(st.characters(exclude_categories=()))


def example(id_, label="faithful", **texts):
    values = {"knowledge": "Kiwis are birds.", "response": "A kiwi is a bird."} | texts
    return make_example(id=id_, label=label, **values)


def prediction(id_, label, score=None, text=""):
    return Prediction(id=id_, label=label, score=score, text=text)


def test_a_metric_reads_with_its_interval():
    assert format_metric(Metric(value=0.711, low=0.69, high=0.731, n=5)) == "0.71 [0.69, 0.73]"
    assert format_metric(Metric(value=0.711)) == "0.71"
    assert format_metric(None) == "-"


def test_systems_stand_side_by_side_within_eighty_columns():
    metric = Metric(value=0.71, low=0.69, high=0.73, n=1864)
    names = ("macro_f1", "balanced_accuracy", "majority_macro_f1")
    systems = {name: dict.fromkeys(names, metric) for name in ("critic", "overlap")} | {"majority": {"f1": metric}}
    text = render_text(metrics_table(systems, title="test/begin"))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.count("71.0 [69.0, 73.0]") == 7
    assert re.search(r" f1 +\| +- \| +- \| +71\.0", text)
    assert "n = 1,864" in text


@given(texts=st.tuples(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT.filter(bool)))
def test_no_text_from_data_steers_the_terminal_or_breaks_the_table(texts):
    knowledge, response, said, id_ = texts
    shown = example(id_, knowledge=knowledge, response=response, history=(Turn(speaker=said, text=knowledge),))
    text = render_text(
        predictions_table([shown], {id_: prediction(id_, "faithful", 0.2, said)}),
        metrics_table({said: {knowledge: Metric(value=0.5)}}, title=response),
    )
    text.encode("utf-8")
    bad = [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\u200c\u200d"]
    assert not bad


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/]", "[link=http://a]b[/link]", ":smile:", "a\\[b]"])
def test_markup_in_data_is_shown_as_it_is(text):
    shown = example("a", knowledge=text, response=text)
    table = predictions_table([shown], {"a": prediction("a", "faithful", 0.2)})
    assert render_text(table, metrics_table({text: {text: Metric(value=0.5)}}, title=text)).count(text) == 5


def test_hidden_characters_are_spelt_out_and_long_text_is_cut_and_counted():
    assert escape_terminal("a\x1b[31m\u202eb\u200b\ud800 \r\n c") == "a\\x1b[31m\\u202eb\\u200b\\ud800 c"
    assert escape_terminal("été 東京 👩\u200d🔬") == "été 東京 👩\u200d🔬"
    assert escape_terminal("x" * 1500, 100) == "x" * 100 + "... (+1,400 characters)"


def test_a_person_can_judge_the_examples():
    right, wrong, lost = example("r"), example("w", "hallucinated", response="A kiwi is a fish."), example("u")
    predictions = {
        "r": prediction("r", "faithful", 0.12),
        "w": prediction("w", "faithful", 0.34),
        "u": prediction("u", "unparsed", None, "I cannot say"),
    }
    text = render_text(predictions_table([right, wrong, lost], predictions))
    for part in ("Kiwis are birds.", "A kiwi is a fish.", "I cannot say", "P(hallucinated) 0.12: right"):
        assert part in text, part
    assert "gold hallucinated, called faithful, P(hallucinated) 0.34: wrong" in text
    assert "P(hallucinated) -: unparsed" in text


def test_the_surest_mistakes_are_chosen_and_right_ones_beside():
    examples = [example(f"{row}", "faithful") for row in range(20)]
    predictions = {e.id: prediction(e.id, "faithful", 0.1) for e in examples}
    for id_, score in (("3", 0.7), ("5", 0.99), ("8", 0.8), ("9", 0.6)):
        predictions[id_] = prediction(id_, "hallucinated", score)
    chosen = [e.id for e in choose_examples(examples, predictions, 4)]
    assert chosen[:2] == ["5", "8"] and len(set(chosen)) == 4 and not {"3", "9"} & set(chosen)
    assert len(choose_examples(examples, predictions, 100)) == 20
    assert choose_examples(examples, predictions, 0) == []
    only_wrong = [e for e in examples if e.id in ("3", "5", "8", "9")]
    assert len(choose_examples(only_wrong, {e.id: predictions[e.id] for e in only_wrong}, 3)) == 3


class Encoded(io.StringIO):
    """A stream that is not a terminal and takes one encoding."""

    def __init__(self, encoding):
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self):
        return self._encoding


def test_what_is_no_terminal_gets_plain_text_that_its_encoding_takes(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = metrics_table({"générique 東": {"f1": Metric(value=0.5)}}, title="test/begin")
    for encoding in ("utf-8", "ascii", "latin-1"):
        stream = Encoded(encoding)
        print_tables(table, file=stream)
        assert stream.getvalue().encode(encoding) and "\x1b" not in stream.getvalue() and "+---" in stream.getvalue()
