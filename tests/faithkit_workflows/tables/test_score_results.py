"""What `faithkit score` shows: worst rows, share and error rate, a page of answers, test cases, an exit code."""

import shlex
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit import cli
from faithkit.errors import LimitExceeded
from faithkit.records import Example, Prediction, Span
from faithkit_workflows.tables.score_results import KeptRows, TestCases, write_answers_page
from faithkit_workflows.tables.shares import ShareCounter
from tests.browser import PROGRAM, chromium
from tests.data_modules.official_rows import write
from tests.faithkit.pages.test_page import ANY_TEXT, block
from tests.faithkit_workflows.test_score import TEXTS, score_here
from tests.running import metrics_of, values_of

NOT_LEGAL = "".join(map(chr, [*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xD800]))


def judged(number: int, score: float | None, label: str | None = None, response: str = "A cat plays."):
    example = Example(id=f"r{number}", source="s", split="all", group="g", knowledge="A dog plays.", response=response)
    called = label or ("hallucinated" if (score or 0) >= 0.5 else "faithful")
    spans = (Span(start=2, end=5, label="hallucination", score=score),) if called == "hallucinated" else ()
    return example, Prediction(id=example.id, label=called, score=score, spans=spans)


def kept(scores: list[float | None], **limits: int) -> KeptRows:
    rows = KeptRows([], **limits)
    for number, score in enumerate(scores):
        rows.add({}, *judged(number, score))
    return rows


@given(st.lists(st.none() | st.floats(0, 1), max_size=60))
def test_the_worst_rows_come_first_and_each_other_row_at_most_once(scores):
    rows = kept(scores, num_worst=5, num_sampled=4)
    found = [prediction for _, prediction, *_ in rows]
    assert len({one.id for one in found}) == len(found) == min(9, len(scores))
    worst = sorted((score or 0 for score in scores), reverse=True)[:5]
    assert [one.score or 0 for one in found[:5]] == worst
    assert bool(rows.describe(9)) == (len(scores) > 9)


def test_the_page_of_a_large_table_has_a_limit_and_states_it(tmp_path: Path) -> None:
    rows, counts = KeptRows([]), ShareCounter()
    for number in range(3000):
        rows.add({}, *judged(number, number / 3000))
    table = counts.table([], grouped_by="knowledge")
    write_answers_page(tmp_path / "page.html", "t", rows, about=["about"], table=table, texts=True)
    page = (tmp_path / "page.html").read_text()
    assert len(block(page, "rows-0")) == 1000 and len(page) < 1_000_000
    assert "1,000 of 3,000 answers are here: the 500 with the highest probability and a random sample of 500" in page
    long = KeptRows([])
    for number in range(5):
        long.add({}, *judged(number, 0.9, response=f"{number}" * 9_000_000))
    write_answers_page(tmp_path / "long.html", "t", long, about=[], table=table, texts=True)
    assert "the first 2 of 5 are here" in (tmp_path / "long.html").read_text()


@given(ANY_TEXT, ANY_TEXT.filter(lambda text: len(text) > 5))
def test_test_cases_parse_whatever_the_texts_are(tmp_path_factory, name, response):
    path, cases = tmp_path_factory.mktemp("cases") / "junit.xml", TestCases(name + NOT_LEGAL)
    for row in (judged(1, 0.9, response=response + NOT_LEGAL), judged(2, 0.1), judged(3, None, "unparsed")):
        cases.add({}, *row)
    cases.add({}, None, None)
    cases.write(path)
    root = ET.parse(path).getroot()
    [suite] = root
    assert [suite.get(key) for key in ("tests", "failures", "skipped")] == ["4", "1", "2"]
    assert [[child.tag for child in case] for case in suite] == [["failure"], [], ["skipped"], ["skipped"]]
    assert suite[0][0].get("message", "").startswith('hallucinated with probability 0.90: unsupported: "')


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [{"context": k, "answer": r, "supported": str(int(n > 0))} for n, (k, r) in enumerate(TEXTS)]
    return write(tmp_path / "z.csv", rows)


def test_a_table_without_labels_gets_marks_a_page_and_the_command_that_labels_rows(
    table: Path, trained_tagger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    score_here(f"path={table}", f"checkpoint={trained_tagger}", f"run_dir={run}", "threshold=0", "columns.label=null")
    shown = capsys.readouterr().out
    assert "[[" in shown and "z:0" in shown and "100.0 [29.2, 100.0]" in shown
    assert f"3 of 3 answers called hallucinated (threshold 0, model {trained_tagger})." in shown
    (line,) = (line for line in shown.splitlines() if "pipeline=estimate" in line)
    assert f"pipeline.predictions={run}/predictions/z.jsonl" in shlex.split(line)
    log = (run / "score.log").read_text()
    assert "3 rows; columns: knowledge=context" in log and "3 of 3 answers" in log and not (run / "train.log").exists()
    page = (run / "answers.html").read_text()
    header = page[page.index("<header>") : page.index("</header>")]
    assert "3 of 3 answers" in header and "alarm" not in header and "gold" not in header
    assert values_of(run) == {"test/z/predicted_rate": 1}
    failures = ET.parse(run / "junit.xml").getroot().findall(".//failure")
    assert len(failures) == 3 and all('unsupported: "' in one.get("message", "") for one in failures)


def test_labels_give_the_error_rate_and_never_a_verdict(table, trained, tmp_path, capsys) -> None:
    run = tmp_path / "run"
    score_here(f"path={table}", f"checkpoint={trained}", f"run_dir={run}", "threshold=0")
    shown = " ".join(capsys.readouterr().out.split())
    assert "By the 3 labels in the column supported:" in shown and "1 of 1 hallucinated answers are found" in shown
    assert "2 of 2 faithful answers are called hallucinated" in shown and "No labels given" not in shown
    assert (
        f"'models=[default,{trained}]'; faithkit evaluate benchmark=pairs benchmark.path={table} checkpoint=" in shown
    )
    metrics = metrics_of(run, "test/z/")
    assert metrics["accuracy"]["value"] == pytest.approx(1 / 3) and metrics["predicted_rate"]["n"] == 3
    rows = block((run / "answers.html").read_text(), "rows-0")
    assert {row["id"]: row["gold"] for row in rows} == {"z:0": 1, "z:1": 0, "z:2": 0}
    score_here(f"path={run / 'z.scored.csv'}", f"checkpoint={trained}", f"run_dir={tmp_path / '2'}")
    assert "By the 3 labels in the column supported" in capsys.readouterr().out, "and not the label of the verdict"


def test_a_share_over_the_limit_ends_with_exit_code_1(table, trained, tmp_path, monkeypatch, capsys) -> None:
    given = [f"path={table}", f"checkpoint={trained}", "fail_over=0.05"]
    score_here(*given, f"run_dir={tmp_path / 'below'}", "threshold=1")
    with pytest.raises(LimitExceeded, match=r"100.0 \[29.2, 100.0\] percent .* over fail_over=0.05 \(5 percent\)"):
        score_here(*given, f"run_dir={tmp_path / 'over'}", "threshold=0")
    assert (tmp_path / "over" / "junit.xml").exists(), "everything is written before"
    with pytest.raises(LimitExceeded, match="no answer has a verdict"):
        score_here(*given, f"run_dir={tmp_path / 'none'}", "abstain_at=1")

    def main(config: object) -> None:
        raise LimitExceeded("7 percent")

    monkeypatch.setattr(sys, "argv", ["faithkit", *given])
    with pytest.raises(SystemExit) as ended:
        cli._run(main, "score", "faithkit_workflows.settings.prediction:ScoreSettings", None)
    assert ended.value.code == 1 and "failed: 7 percent" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="needs the program chromium")
def test_a_reader_filters_answers_without_labels_by_verdict(tmp_path: Path) -> None:
    rows = kept([0.9, 0.2, 0.1])
    rows.add({}, *judged(9, 0.5, "unparsed"))
    table = ShareCounter().table([], grouped_by="knowledge")
    write_answers_page(tmp_path / "page.html", "t", rows, about=[], table=table, texts=True)
    with chromium() as browser:
        browser.open_file(tmp_path / "page.html")
        assert browser.texts("article .badge") == ["hallucinated", "unparsed", "faithful", "faithful"]
        assert browser.texts("article mark.called") == ["cat", "predicted"]
        assert not [text for text in browser.texts("article") if "gold" in text or "alarm" in text]
        browser.ask("form.elements.verdict.focus()")
        for key, count in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowDown", 1)):  # hallucinated, faithful, no verdict
            for kind in ("keyDown", "keyUp"):
                browser.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=40)
            assert len(browser.texts("article")) == count
        assert browser.texts("article .badge") == ["unparsed"] and not browser.complaints


CONVERSATION = [
    {"role": "user", "content": "What did I <b>order</b>?"},
    {"role": "assistant", "tool_calls": [{"id": "c", "name": "get_order", "arguments": "{}"}]},
    {"role": "tool", "tool_call_id": "c", "content": '{"items": 2, "note": "<script>document.title = 1</script>"}'},
    {"role": "assistant", "content": "You ordered 5 items. I have sent the invoice."},
    {"role": "user", "content": "How many?"},
    {"role": "assistant", "content": "You ordered 2 items."},
]


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conversations")
    rows = [{"id": name, "messages": CONVERSATION} for name in ("one", "two & three")]
    score_here(f"path={write(folder / 'chats.jsonl', rows)}", "checkpoint=default", f"run_dir={folder / 'run'}")
    return folder / "run"


def test_page_and_test_cases_have_the_turns_of_conversations_with_their_calls_and_the_tool_of_each_mark(conversations):
    page = (conversations / "answers.html").read_text()
    rows = {row["id"]: row for row in block(page, "rows-0")}
    assert {name: row["turn"] for name, row in rows.items()} == {
        f"{name}/{turn}": [name, turn, [0]] for name in ("one", "two & three") for turn in (1, 2)
    }
    assert block(page, "calls-0") == [["get_order", "{}", False, CONVERSATION[2]["content"]]]
    marks = rows["one/1"]["said"][0][4]
    names = ["unsupported_action", "unsupported_addition", "action"]
    assert [names, 0.9, None, "no call of a tool does this"] in marks
    assert {mark[5] for mark in marks if len(mark) > 5} <= {"get_order"}
    assert "<script>document" not in page
    junit = (conversations / "junit.xml").read_text()
    assert "(unsupported addition, action): no call of a tool" in junit
    found = [(case.get("classname"), case.get("name")) for case in ET.fromstring(junit).iter("testcase")]
    assert found == [(f"chats.{name}", f"{name}/{turn}") for name in ("one", "two & three") for turn in (1, 2)]


def test_a_table_with_other_columns_of_these_names_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("context,answer,calls,turn\nIt lasts 24 months.,I have sent it.,[3],1\n")
    score_here(f"path={tmp_path / 't.csv'}", "checkpoint=default", f"run_dir={tmp_path / 'run'}")
    assert "unsupported_action" not in (tmp_path / "run" / "t.scored.csv").read_text()
    assert not (tmp_path / "run" / "conversations.jsonl").exists()


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="needs the program chromium")
def test_a_reader_sees_conversations_together_and_unfolds_their_calls(conversations: Path) -> None:
    with chromium() as browser:
        browser.open_file(conversations / "answers.html")
        sections = "[...document.querySelectorAll('.conversation')].map((e) => e.querySelectorAll('article').length)"
        assert browser.ask(sections) == [2, 2]
        assert [text.split(" · ")[1] for text in browser.texts("article h3")] == ["turn 1", "turn 2"] * 2
        assert browser.texts(".question")[0] == "User What did I <b>order</b>?"
        browser.click(".calls summary")
        browser.ask("new Promise((done) => setTimeout(done, 50))")
        assert browser.texts(".calls[open] .context") == [CONVERSATION[2]["content"]]
        browser.select("[name=sort]", "low")
        assert browser.ask(sections) == [] and len(browser.texts("article")) == 4
        assert not browser.complaints


def test_the_share_is_corrected_by_known_errors_where_the_rows_allow_it(table, default_file, tmp_path, capsys) -> None:
    for number, copies in enumerate((1, 100)):
        rows = [{"context": f"{k} {n}", "answer": r} for n in range(copies) for k, r in TEXTS]
        path = write(tmp_path / f"{number}.csv", rows)
        score_here(f"path={path}", f"checkpoint=default:{default_file}", f"run_dir={tmp_path / f'run{number}'}")
        shown = capsys.readouterr().out
        assert ("too few rows to correct the share" in shown) == (copies == 1), shown
