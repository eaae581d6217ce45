"""`benchmark=halludial_comparative` and `halueval_comparative`, against a server and with a model here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_modules.build import read_benchmark
from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit_workflows.benchmarks.judge_benchmarks import pair_up
from tests.faithkit.inference.server import ChatServer
from tests.running import asking, evaluate_here, values_of

NAME = "halludial_comparative"


@pytest.fixture(scope="module")
def halludial() -> str:
    return written_layout("halludial", {"train": 8, "test": 64})


def metrics(folder: Path, name: str = NAME) -> dict[str, float]:
    return values_of(folder, f"test/{name}/")


def ask(server: ChatServer, path: str, run: Path, *options: str, name: str = NAME) -> None:
    where = [f"benchmark={name}", f"benchmark.path={path}", f"run_dir={run}"]
    evaluate_here(*where, *asking(server.url), *options)


def reader(path: str) -> Callable[[list[dict[str, str]], int | None, int], str]:
    """A server's judge that knows which replies are hallucinated."""
    block = {"name": "halludial", "path": path, "split": "test", "num_rows": None, "on_bad_row": "stop", "options": {}}
    wrong = {one.response for one in read_benchmark(block).examples if one.label == HALLUCINATED}

    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        first = messages[-1]["content"].partition("Reply 1:\n")[2].partition("\n\nReply 2:")[0]
        return "1" if first in wrong else "2"

    return answer


def test_one_who_reads_is_right_in_both_orders(halludial, tmp_path, capsys) -> None:
    with ChatServer(answer=reader(halludial)) as server:
        ask(server, halludial, tmp_path / "run")
    found, shown = metrics(tmp_path / "run"), capsys.readouterr().out
    assert (found["accuracy"], found["both_orders"], found["position_bias"], found["invalid_rate"]) == (1, 1, 0, 0)
    assert found["length_accuracy"] < 1 and "which of two replies is hallucinated" in shown
    report = tmp_path / "run" / "report.md"
    assert "reply 1" in report.read_text() and shown.splitlines()[-1] == f"all figures: {report}"
    given = [f"predictions={tmp_path / 'run' / 'predictions' / f'{NAME}.jsonl'}", f"run_dir={tmp_path / 'again'}"]
    evaluate_here(f"benchmark={NAME}", f"benchmark.path={halludial}", *given)
    assert metrics(tmp_path / "again") == found, "given predictions are scored without a model"


def test_drawn_examples_are_pairs_of_the_training_rows(tmp_path: Path) -> None:
    path = written_layout("halludial", {"train": 48, "test": 24})
    with ChatServer(answer=reader(path)) as server:
        ask(server, path, tmp_path / "run", "judge.examples=2", "benchmark.num_rows=4")
    [beginning] = {content.split("Now the one that you are to judge:")[0] for content in server.contents}
    first, second = beginning.split("Example 2\n\n")
    assert first.endswith("\n\n1\n\n") and second.endswith("\n\n2\n\n") and "Reply 2:" in second


def test_halueval_has_its_tasks_and_the_length_of_each(language_models, tmp_path, capsys) -> None:
    path, run = written_layout("halueval", {"test": 32}), tmp_path / "run"
    engine = ["engine=transformers", f"engine.model={language_models['llama']}", "engine.cache=null"]
    evaluate_here("benchmark=halueval_comparative", f"benchmark.path={path}", f"run_dir={run}", *engine)
    found = metrics(run, "halueval_comparative")
    assert {f"task/{task}/length_accuracy" for task in ("qa", "dialogue", "summarization")} <= found.keys()
    assert "combined_accuracy" in found and found["invalid_rate"] == 0
    assert "qa: longer reply" in capsys.readouterr().out


def test_pairs_are_of_one_turn() -> None:
    def row(id_: str, label: str, response: str, knowledge: str = "k") -> Example:
        values = {"id": id_, "source": "a", "split": "b", "group": "c", "knowledge": knowledge}
        return Example(**values, response=response, label=label)

    rights = [row("r1", FAITHFUL, "one"), row("r2", FAITHFUL, "two")]
    wrongs = [row(f"w{i}", HALLUCINATED, text) for i, text in enumerate(["x", "y", "z", "two"])]
    rows, notes = pair_up([*rights, *wrongs, row("w9", HALLUCINATED, "x", "other")])
    assert [one.id for one in rows[::2]] == ["w0|r1:first", "w1|r2:first", "w2|r1:first"]
    assert [note.split(" ")[0] for note in notes] == ["1", "1"]
    assert len(pair_up([*rights, *wrongs], 2)[0]) == 4


def test_data_without_pairs_and_a_command_without_a_judge_are_refused(tmp_path: Path) -> None:
    alone = tmp_path / "alone_test.jsonl"
    row: dict[str, Any] = {"dialogue_id": 1, "knowledge": "k", "dialogue_history": "[Human]: a", "turn": 0}
    alone.write_text(json.dumps({**row, "response": "x", "target": "Yes. x"}) + "\n")
    with ChatServer() as server, pytest.raises(UserError, match="no response has a counterpart"):
        ask(server, str(alone), tmp_path / "run")
