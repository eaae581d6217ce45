"""`threshold=` of scoring cuts as it does in Python, for critics, taggers and judges; others refuse it."""

import json
from pathlib import Path

import pytest

from critic.sequence.scorer import Critic
from critic.tagger.predictor import Tagger
from faithkit.errors import UserError
from faithkit.files.saved_config import write_config
from tests.faithkit_workflows.test_score import TEXTS, score_here, write_csv
from tests.running import commanded


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "z.csv", [{"knowledge": k, "response": r} for k, r in TEXTS])


def scored(table: Path, checkpoint: Path | str, run: Path, *overrides: str) -> list[dict[str, object]]:
    score_here(f"path={table}", f"checkpoint={checkpoint}", f"run_dir={run}", *overrides)
    return [json.loads(line) for line in (run / "predictions" / "z.jsonl").read_text().splitlines()]


def middle(rows: list[dict[str, object]]) -> float:
    return sorted(float(str(row["score"])) for row in rows)[1]


def test_a_critic_calls_as_in_python(table: Path, trained: Path, tmp_path: Path) -> None:
    stored = scored(table, trained, tmp_path / "stored")
    cut = middle(stored)
    found = scored(table, trained, tmp_path / "run", f"threshold={cut}")
    assert [row["score"] for row in found] == [row["score"] for row in stored]
    expected = Critic.load(trained).score([k for k, _ in TEXTS], [r for _, r in TEXTS], threshold=cut)
    assert [row["label"] for row in found] == [one.label for one in expected]
    assert len({row["label"] for row in found}) == 2
    origin = json.loads((tmp_path / "run" / "predictions" / "z.origin.json").read_text())
    assert origin["models"][0]["threshold"] == f"{cut:.4g}, set by the command"
    again = (f"resume={tmp_path / 'run'}", "threshold=0.9")
    with commanded(again), pytest.raises(UserError, match="a resumed run keeps its settings: threshold"):
        score_here(*again)


def test_a_tagger_calls_as_in_python_and_its_spans_agree(table: Path, trained_tagger: Path, tmp_path: Path) -> None:
    cut = middle(scored(table, trained_tagger, tmp_path / "stored"))
    found = scored(table, trained_tagger, tmp_path / "run", f"threshold={cut}")
    expected = Tagger.load(trained_tagger).predict([k for k, _ in TEXTS], [r for _, r in TEXTS], threshold=cut)
    assert [row["label"] for row in found] == [one.label for one in expected]
    assert {row["label"] for row in found if row["spans"]} == {"hallucinated"}


def test_a_judge_that_weighs_takes_it_and_one_that_writes_does_not(
    table: Path, language_models: dict[str, Path], trained: Path, tmp_path: Path
) -> None:
    model = language_models["llama"]
    assert {row["label"] for row in scored(table, model, tmp_path / "0", "threshold=0")} == {"hallucinated"}
    assert {row["label"] for row in scored(table, model, tmp_path / "1", "threshold=1")} == {"faithful"}
    engine = {"engine": {"name": "transformers", "model": str(model), "cache": None}}
    write_config(tmp_path / "writes.yaml", {**engine, "judge": {"ask": "judgement"}})
    with pytest.raises(UserError, match="this judge writes its verdicts"):
        scored(table, tmp_path / "writes.yaml", tmp_path / "2", "threshold=0.5")
    write_config(tmp_path / "both.yaml", {**engine, "checkpoint": str(trained), "cascade": {"band": [0.4, 0.6]}})
    with pytest.raises(UserError, match="threshold needs a single critic, tagger or weighing judge"):
        scored(table, tmp_path / "both.yaml", tmp_path / "3", "threshold=0.5")
