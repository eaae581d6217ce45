"""The page that compares runs, as a file and in a browser that clicks."""

import re
from dataclasses import replace

import pytest

from faithkit.runs.reading import find_runs
from faithkit_workflows.compare.comparison import compare_runs
from faithkit_workflows.compare.comparison_page import write_comparison_page
from tests.browser import PROGRAM, chromium
from tests.faithkit.pages.test_page import block
from tests.faithkit_workflows.compare.made_up_runs import examples, judged, write_run

MARKUP = "<script>document.title = 'pwned'</script></script><img src=x onerror=alert(1)>"
in_chromium = pytest.mark.skipif(PROGRAM is None, reason="needs the program chromium")


def write_report(folder, path, **options):
    write_comparison_page(path, compare_runs(find_runs(folder), num_resamples=20), title="Runs", **options)
    return path.read_text(encoding="utf-8")


def write_three(folder):
    """Three runs on one test set, two with spans, and one on another; texts and names with markup."""
    rows = examples(180)
    rows[0] = replace(rows[0], response=f"{rows[0].response} {MARKUP}")
    for name, right, seed in (("good", 0.95, 1), ("middling <b>&", 0.8, 2), ("bad", 0.55, 3)):
        predictions = judged(rows, right, seed, spans=name != "bad")
        write_run(folder / name, rows, predictions, seed=seed, note=f"{name}{MARKUP}")
    other = examples(30, name="halueval", marked=False)
    write_run(folder / "other", other, judged(other, 0.7, 4), name="halueval", benchmark={"name": "halueval"})


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    write_three(folder / "runs")
    write_report(folder / "runs", folder / "report.html")
    return folder / "report.html"


def test_the_page_is_self_contained_and_escapes_data(page_file):
    page = page_file.read_text(encoding="utf-8")
    assert "default-src 'none'" in page and "unsafe" not in page
    assert "pwned'<" not in page and "<img src=x" not in page and "middling <b>" not in page
    without_data = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.S)
    assert not re.search(r"https?://|@import|url\(", without_data)
    [report] = block(page, "report")
    assert {row[0] for row in report["runs"]} == {"good", "middling <b>&", "bad", "other"}
    assert len(block(page, "rows-0")) == 180


@pytest.mark.parametrize("name", ["no rows", "one run", "nothing"])
def test_a_page_is_written_whatever_is_missing(tmp_path, name):
    rows = examples(12)
    write_run(tmp_path / "runs" / "a", rows, judged(rows, 0.8, 1))
    if name != "one run":
        (tmp_path / "runs" / "a" / "predictions" / "begin.jsonl").write_text("")
    if name == "nothing":
        for file in ("metrics.json", "csv/metrics.csv", "config.yaml"):
            (tmp_path / "runs" / "a" / file).write_text("?")
    assert "Runs, and the settings that differ" in write_report(tmp_path / "runs", tmp_path / "page.html")


@pytest.mark.slow
@in_chromium
def test_a_reader_sorts_filters_searches_and_chooses_two_runs(page_file):
    with chromium() as browser:
        browser.open_file(page_file)
        assert browser.ask("document.title") == "Runs" and browser.ask("document.body.dataset.ready") == "true"

        def column(box, place):
            return browser.texts(f"#{box} tbody tr > :nth-child({place})")

        assert len(column("runs-table", 1)) == 4
        browser.click("#runs-table thead button")
        assert column("runs-table", 1) == ["bad", "good", "middling <b>&", "other"]
        browser.click("#runs-table thead button")
        assert column("runs-table", 1) == ["other", "middling <b>&", "good", "bad"]
        browser.type("#run-filter", "halueval")
        assert column("runs-table", 1) == ["other"]

        assert column("values-table", 1)[0] == "good"  # by macro F1
        browser.select("#values-part", "1")
        assert column("values-table", 1) == ["other"]

        assert len(column("pairs-table", 1)) == 3
        pairs = list(zip(column("pairs-table", 1), column("pairs-table", 2), strict=True))
        place = next(n for n, pair in enumerate(pairs) if set(pair) == {"bad", "good"})
        browser.click("#pairs-table tbody button", place)
        shown = browser.ask("[state.a, state.b].map((n) => opened.systems[n])")
        assert set(shown) == {"good", "bad"}

        def count():
            return int(browser.texts("#count")[0].split()[0])

        disagree = count()
        assert 0 < disagree < 180
        assert browser.texts("#pair-table tbody th")[0] == "macro f1" and len(browser.texts("#confusions table")) == 2
        browser.select("[name=between]", "=only the first is right")
        first = count()
        browser.select("[name=between]", "=only the second is right")
        assert first + count() == disagree
        browser.select("[name=between]", "")
        assert count() == 180
        browser.select("[name=task]", "=qa")
        assert count() == 120
        browser.type("[name=q]", "begin:1")
        browser.ask("new Promise((done) => setTimeout(done, 300))")
        assert 0 < count() < 120
        browser.click("#filters button[type=reset]")
        assert count() == disagree
        browser.select("[name=a]", str(browser.ask("opened.systems.indexOf('middling <b>&')")))
        assert browser.texts("article .verdict b.system")[0] == "middling <b>&"
        assert browser.texts("article mark.called")
        browser.select("[name=set]", "1")
        assert count() == 30 and not browser.ask("form.elements.a")
        address = browser.ask("location.hash")
        browser.open(f"file://{page_file}{address}")
        assert count() == 30
        assert browser.complaints == []
