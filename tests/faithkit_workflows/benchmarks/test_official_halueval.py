"""HaluEval's own protocol: replies are written, read as its script reads them, and stand beside ours."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.pages.page_tables import render_text
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.judging_report import official_report
from tests.faithkit.inference.server import ChatServer, Fault, refusal
from tests.running import asking, evaluate_here, values_of


def example(id_: str, label: str) -> Example:
    values = {"id": id_, "source": "halueval", "split": "s", "group": id_, "knowledge": "", "response": "x" * len(id_)}
    return Example(**values, label=label, meta={"task": "qa"})  # type: ignore[arg-type]


def test_letters_anywhere_count_and_failures_are_wrong() -> None:
    replies = {"a": "Yes.", "bb": "Nobel won it.", "ccc": "Yes or No?", "dddd": "it is"}
    examples = [example(id_, HALLUCINATED if id_ == "a" else FAITHFUL) for id_ in replies]
    labels = {"a": HALLUCINATED}
    said = {id_: Prediction(id=id_, label=labels.get(id_, UNPARSED), text=text) for id_, text in replies.items()}
    report = official_report(examples, said, num_resamples=20)
    assert report is not None
    values = {name: metric.value for name, metric in report.metrics.items()}
    assert values["official/accuracy"] == 0.5 and values["official/failed_rate"] == 0.5
    assert values["official/strict_accuracy"] == 0.25 and values["official/unparsed_rate"] == 0.75
    assert not any("task" in name for name in values), "there is but one"
    shown = render_text(*report.tables)
    assert "qa" in shown and "50.0 [" in shown
    assert official_report(examples, {id_: Prediction(id=id_, label=FAITHFUL) for id_ in replies}) is None


@pytest.fixture(scope="module")
def halueval() -> str:
    return written_layout("halueval", {"test": 24})


def judge(server: ChatServer, path: str, run: Path, *options: str) -> None:
    given = [f"benchmark.path={path}", f"run_dir={run}", *options]
    evaluate_here("benchmark=halueval", *given, *asking(server.url))


def test_the_official_run_has_verdicts_written_without_knowledge(halueval, tmp_path, capsys) -> None:
    run = tmp_path / "run"

    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        return "None" if "Knowledge:" not in messages[-1]["content"] else "Yes"

    with ChatServer(answer=answer, tells={"Yes": 0.6, "No": 0.4}) as server:
        judge(server, halueval, run, "benchmark.options.official=true")
    values = values_of(run, "test/halueval/")
    assert values["task/qa/unparsed_rate"] == 1, "None is not a verdict of ours"
    assert values["official/task/qa/failed_rate"] == 0 and values["official/task/summarization/failed_rate"] == 0
    assert values["official/task/qa/accuracy"] == pytest.approx(1 - values["task/qa/gold_rate"])
    assert values["official/task/summarization/accuracy"] == pytest.approx(values["task/summarization/gold_rate"])
    accuracy = f"{100 * values['official/accuracy']:.1f}"
    assert f"as HaluEval's script reads replies: accuracy {accuracy} [" in capsys.readouterr().out
    assert "accuracy as HaluEval's script reads replies" in (run / "report.md").read_text()


def test_a_failed_request_is_counted_and_its_message_is_never_read(halueval: str, tmp_path: Path) -> None:
    run, official = tmp_path / "run", "benchmark.options.official=true"
    words = ("Not allowed", "Yes, this is forbidden")  # either would be a verdict to the script

    def misbehave(body: dict[str, Any]) -> Fault | None:
        asked = body["messages"][-1]["content"]
        return refusal(400, words[len(asked) % 2]) if len(asked) % 3 == 0 and not body.get("logprobs") else None

    with ChatServer(answer=lambda *_: "No", always=misbehave, tells={"Yes": 0.6, "No": 0.4}) as server:
        judge(server, halueval, run, official, "verbose=true")
    file = run / "predictions" / "halueval.jsonl"
    given = [f"benchmark.path={halueval}", official, f"predictions={file}", f"run_dir={tmp_path / 'again'}"]
    evaluate_here("benchmark=halueval", *given)
    rows = [json.loads(row) for row in file.read_text().splitlines()]
    failed = [row for row in rows if row.get("failed")]
    assert 0 < len(failed) < len(rows) and all("the server answered 400" in row["text"] for row in failed)
    for folder in (run, tmp_path / "again"):
        assert values_of(folder)["test/halueval/official/failed_rate"] == pytest.approx(len(failed) / len(rows))


def test_a_judge_writes_its_verdict_where_it_is_told_to(halueval: str, tmp_path: Path) -> None:
    unread = pytest.raises(UserError, match="none of the replies could be read as a verdict")
    with ChatServer(answer=lambda *_: "No idea.", tells={"Yes": 0.6, "No": 0.4}) as server, unread:
        judge(server, halueval, tmp_path / "run", "benchmark.num_rows=4", "judge.written=true")
    rows = (tmp_path / "run" / "predictions" / "halueval.jsonl").read_text().splitlines()
    assert [json.loads(row)["label"] for row in rows] == [UNPARSED] * 4
    assert json.loads(rows[0])["score"] == pytest.approx(0.6), "its probability is kept"
