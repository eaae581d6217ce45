"""Benchmarks of named sets, as a user evaluates a detector of any tool on them."""

import json
from pathlib import Path

import pytest

from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.runs.reading import find_runs
from faithkit_workflows.compare.comparison import compare_runs
from faithkit_workflows.compare.comparison_page import write_comparison_page
from tests.data_modules.official.benchmark_sets import AGGREFACT
from tests.data_modules.official_rows import make, read, write, write_case
from tests.faithkit.pages.test_page import block
from tests.running import evaluate_here, values_of


def predictions(file: Path, name: str, corpus: str, **options: str) -> str:
    """A file of another tool, which calls every second row hallucinated and marks its beginning."""
    rows = []
    labelled = [one for one in read(make(name, corpus, **options))[0] if one.label is not None]
    for number, one in enumerate(labelled):
        called = number % 2 == 0
        spans = [{"start": 0, "end": 3, "label": "hallucination"}] if called and one.spans is not None else []
        rows.append({"id": one.id, "label": "hallucinated" if called else "faithful", "score": 0.6, "spans": spans})
    write(file, rows)
    return str(file)


def evaluate(tmp_path: Path, name: str, corpus: str, **options: str) -> dict[str, float]:
    given, run = predictions(tmp_path / "given.jsonl", name, corpus, **options), tmp_path / "run"
    line = [f"benchmark={name}", f"benchmark.path={corpus}", f"predictions={given}", f"run_dir={run}"]
    evaluate_here(*line, *(f"benchmark.options.{key}={value}" for key, value in options.items()), "num_resamples=20")
    return values_of(run, f"test/{name}/")


@pytest.mark.parametrize(
    ("name", "metric", "place"),
    [
        ("aggrefact", "mean/balanced_accuracy", "place "),
        ("true_sets", "mean/auroc", "place "),
        ("psiloqa", "mean/iou", "place "),
        ("faithbench", "set/all rows/balanced_accuracy", "as its paper scores it"),
        ("summedits", "mean/balanced_accuracy", "by domain"),
        ("wice", "macro_f1", "test/wice, percent"),
        ("lettucedetect_code", "mean/iou", "by set"),
        ("lettucedetect_prose", "mean/iou", "by set"),
    ],
)
def test_the_protocol_of_each_is_printed_with_published_figures(tmp_path, capsys, name, metric, place) -> None:
    values = evaluate(tmp_path, name, written_layout(name, {"validation": 90, "test": 90}))
    assert 0 <= values[metric] <= 1
    if name.startswith("lettucedetect"):
        assert values["type/contradiction/numerical/char_recall"] < 1, "a few characters of each span are marked"
    printed = capsys.readouterr().out
    assert place in printed and f"{100 * values[metric]:.1f} [" in printed
    has_figures = name in ("aggrefact", "true_sets", "psiloqa", "lettucedetect_code", "lettucedetect_prose")
    assert ("* " in printed) == has_figures, "published figures by set"


def test_dialogues_are_scored_by_turn_and_by_conversation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = written_layout("diahalu", {"test": 30})
    values = evaluate(tmp_path, "diahalu", corpus, level="turn")
    assert {"turn/1/accuracy", "turn/2/accuracy", "conversation/macro_f1", "first_turn/right"} <= values.keys()
    assert values["conversation/gold_rate"] > values["gold_rate"] > 0, "one turn makes a conversation hallucinated"
    printed = capsys.readouterr().out
    assert "by turn, percent" in printed and "no label of a whole conversation is read" in printed
    whole = evaluate(tmp_path / "whole", "diahalu", corpus)
    assert "macro_f1" in whole and "conversation/macro_f1" not in whole, "the official protocol judges whole dialogues"
    (tmp_path / "halludial").mkdir()
    found = evaluate(tmp_path / "halludial", "halludial", written_layout("halludial", {"train": 30, "test": 60}))
    assert "turn/1/accuracy" in found


def test_rows_of_the_official_shape_are_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = evaluate(tmp_path, "aggrefact", str(write_case(tmp_path, "aggrefact")))
    assert values["set/AggreFact-CNN/balanced_accuracy"] == 0, "the faithful row is called, the other is not"
    assert values["set/Wice/balanced_accuracy"] == pytest.approx((0 + 1 / 2) / 2)
    assert " Wice " in capsys.readouterr().out


def test_an_error_names_the_key_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"set benchmark.path .*; docs/reference/data.md has its download"):
        evaluate_here("benchmark=aggrefact", f"benchmark.path={tmp_path / 'none'}", "checkpoint=default")
    bad = write(tmp_path / "test.jsonl", [{**AGGREFACT[0], "label": "yes"}])
    with pytest.raises(UserError, match=r"'label' is 'yes'.*\n.*\n.*set benchmark.on_bad_row=skip"):
        evaluate_here("benchmark=aggrefact", f"benchmark.path={bad}", "checkpoint=default", f"run_dir={tmp_path / 'r'}")


def test_pages_show_the_calls_that_the_verdict_on_an_agent_depends_on(tmp_path: Path) -> None:
    """A claim of an action is judged by the calls before it, which no context shows."""
    function = {"name": "get_order", "arguments": '{"id": 7}'}
    result = "Order 7: <b>two</b> lamps, sent."
    for label, answer in {"faithful": "You ordered two lamps.", "hallucinated": "I have cancelled the order."}.items():
        messages = [
            {"role": "user", "content": "What did I order?"},
            {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "1", "content": result},
            {"role": "assistant", "content": answer},
        ]
        fault = "action not done" if label == "hallucinated" else None
        row = {"id": f"order-{label}", "setting": "orders", "fault": fault, "pair": "order", "label": label}
        row["spans"] = [{"start": 0, "end": len(answer) - 1}] if fault else []
        with (tmp_path / "conversations.jsonl").open("a") as file:
            file.write(json.dumps({**row, "messages": messages}) + "\n")
    evaluate(tmp_path, "agents", str(tmp_path))
    write_comparison_page(tmp_path / "runs.html", compare_runs(find_runs(tmp_path / "run")), title="Runs")
    for name in ("run/answers.html", "runs.html"):
        page = (tmp_path / name).read_text()
        assert block(page, "calls-0") == [["get_order", '{"id": 7}', False, result]]
        turns = {row["id"]: row["turn"] for row in block(page, "rows-0")}
        assert turns == {name: [name, None, [0]] for name in ("order-faithful", "order-hallucinated")}
    report = (tmp_path / "run" / "report.md").read_text()
    assert report.count(r'| calls | get\_order({"id": 7}) |') == 4  # two answers in two tables
