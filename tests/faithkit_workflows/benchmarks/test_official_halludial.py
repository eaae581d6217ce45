"""HalluDial's own score: replies that its script cannot read are dropped. Ours, which counts them, is next to it."""

import json
from pathlib import Path

import pytest

from tests.faithkit.inference.server import ChatServer
from tests.running import asking, evaluate_here, values_of

# By hand. Official: two replies dropped; of 5 hallucinated rows 3 found, of 3 faithful ones 2; P 3/4 and 2/4,
# R 3/5 and 2/3, F1 6/9 and 4/7: its eval.py prints the same. Ours: None, Not sure and I think yes have no verdict,
# "no" has one; F1 6/10 and 4/7.
HALLUCINATED = ("Yes", "Yes.", "Yes", "No", "None", "I think yes")
FAITHFUL = ("No", "Not sure", "no", "Yes")
OFFICIAL = {
    **{"macro_f1": (6 / 9 + 4 / 7) / 2, "f1": 6 / 9, "faithful_f1": 4 / 7, "precision": 3 / 4, "recall": 3 / 5},
    **{"accuracy": 5 / 8, "mean_precision": (3 / 4 + 2 / 4) / 2, "mean_recall": (3 / 5 + 2 / 3) / 2, "num_dropped": 2},
}


def write_rows(folder: Path) -> list[tuple[str, str]]:
    """Writes a file in the official layout; returns the id and the reply of each row."""
    (folder / "induced").mkdir()
    replies = [("Yes. It is made up.", text) for text in HALLUCINATED] + [("No.", text) for text in FAITHFUL]
    rows = [
        {
            "dialogue_id": number, "turn": 1, "knowledge": "The Danube flows through ten countries.", "target": target,
            "dialogue_history": "[Human]: Where does it flow?", "response": f"Through {number} countries.",
        }
        for number, (target, _) in enumerate(replies)
    ]  # fmt: skip
    (folder / "induced" / "induced_test.json").write_text(json.dumps(rows))
    return [(f"{number}:1", reply) for number, (_, reply) in enumerate(replies)]


def test_the_official_score_and_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replies, run = write_rows(tmp_path), tmp_path / "run"

    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        return next(reply for id_, reply in replies if f"Through {id_[:-2]} countries." in messages[-1]["content"])

    with ChatServer(answer=answer, tells={"Yes": 0.6, "No": 0.4}) as server:
        engine = asking(server.url)
        where = [f"benchmark.path={tmp_path}", "benchmark.options.scenario=induced", f"run_dir={run}"]
        evaluate_here("benchmark=halludial", "benchmark.official=true", *where, *engine)
    values = values_of(run, "test/halludial/")
    for name, value in OFFICIAL.items():
        assert values[f"official_{name}"] == values[f"scenario/induced/official_{name}"] == pytest.approx(value), name
    assert values["macro_f1"] == pytest.approx((6 / 10 + 4 / 7) / 2) and values["unparsed_rate"] == pytest.approx(0.3)
    shown = capsys.readouterr().out
    assert "as HalluDial's script reads replies: macro-F1 61.9 [" in shown and "2 of 10 replies dropped" in shown
    report = (run / "report.md").read_text()
    assert "all, official" in report and "all, ours" in report
