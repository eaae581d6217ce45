"""Judges of responses stand beside their own error, measured on labelled rows that they were not trained on."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_modules.build import read_benchmark
from data_modules.embedded.layouts import written_layout
from faithkit.detector import ENTAILMENT
from faithkit.errors import UserError
from faithkit.files.model_folder import read_stored, seal
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.used_model import TRAINED, SeenRows
from faithkit.records import Example
from faithkit_workflows.benchmarks.responses import read_labelled
from faithkit_workflows.detectors.entailment import load_entailment
from tests.data_modules.official_rows import write
from tests.running import evaluate_here, metrics_of
from tests.tiny import write_nli


@pytest.fixture(scope="module")
def audit() -> str:
    return written_layout("audit", {"test": 40})


@pytest.fixture(scope="module")
def wow() -> str:
    return written_layout("wow_faithdial", {"train": 20, "validation": 20, "test": 60})


@pytest.fixture(scope="module")
def answers(wow: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Responses of which every second copies half of the knowledge."""
    block = {"name": "wow", "path": wow, "split": "test", "num_rows": None, "on_bad_row": "stop", "options": {}}
    examples = read_benchmark(block, labelled=False).examples
    texts = [e.knowledge[: len(e.knowledge) // 2] if i % 2 else "I like music!" for i, e in enumerate(examples)]
    rows = [{"id": example.id, "text": text} for example, text in zip(examples, texts, strict=True)]
    return write(tmp_path_factory.mktemp("answers") / "answers.jsonl", rows)


def judged(folder: Path, wow: str, answers: Path, *options: str, audit: str = "") -> dict[str, Any]:
    """Evaluates the answers, with the audit's labels if it is given, and gives the metrics."""
    given = ["benchmark=wow", f"benchmark.path={wow}", "benchmark.split=test", "benchmark.bert_score.encoder=null"]
    labels = [f"benchmark.judge_labels=[{{dataset: audit, path: '{audit}'}}]"] if audit else []
    evaluate_here(*given, f"predictions={answers}", f"run_dir={folder}", *labels, *options)
    return metrics_of(folder)


def with_training(
    trained: Path, folder: Path, data: dict[str, Any] | None = None, rows: Sequence[Example] = ()
) -> Path:
    """The critic's folder as if it had been trained on other data, or had seen other rows."""
    shutil.copytree(trained / "hf", folder)
    if rows:
        SeenRows.of({TRAINED: [row_keys(rows)]}).write(folder)
    stored = read_stored(folder)
    assert stored is not None
    if data is not None:
        stored["origin"]["config"]["data"] = data
    seal(folder, stored)
    return folder


def test_every_judge_stands_beside_its_error_and_its_corrected_rate(trained, audit, wow, answers, tmp_path, capsys):
    judges = f"benchmark.judges=[word_overlap,counted_features,'{trained}']"
    found = judged(tmp_path / "run", wow, answers, judges, f"benchmark.critic={trained}", audit=audit)
    shown = " ".join(capsys.readouterr().out.split())
    for key in ("critic", "word_overlap", "counted_features", "critic_4"):
        assert 0 <= found[f"test/wow/{key}_rate"]["value"] <= 1
        assert found[f"test/wow/judge/{key}_recall"]["low"] <= found[f"test/wow/judge/{key}_recall"]["high"]
    assert found["test/wow/critic_4_rate"]["value"] == found["test/wow/critic_rate"]["value"], "the same critic"
    recall, alarms = (found[f"test/wow/judge/word_overlap_{name}"]["value"] for name in ("recall", "false_alarms"))
    exact = (found["test/wow/word_overlap_rate"]["value"] - alarms) / (recall - alarms)
    corrected = found["test/wow/word_overlap_rate_corrected"]
    assert corrected["value"] == pytest.approx(min(max(exact, 0), 1)) and corrected["low"] <= corrected["high"]
    assert "test/wow/gold/word_overlap_rate" in found and "corrected by the judge's errors" in shown
    report = (tmp_path / "run" / "report.md").read_text()
    assert "against people's labels" in report and "each fitted on the other folds" in report
    assert "against people's labels" not in shown, "the terminal has the rates alone"


def test_without_labelled_rows_nothing_is_corrected_and_it_says_so(trained, wow, answers, tmp_path, capsys) -> None:
    found = judged(tmp_path / "run", wow, answers, "verbose=true", f"benchmark.critic={trained}")
    assert not any("corrected" in name for name in found)
    assert "no rate is corrected" in capsys.readouterr().out
    with pytest.raises(UserError, match="is fitted on labelled rows"):
        judged(tmp_path / "none", wow, answers, "benchmark.judges=[word_overlap]")


def test_rows_that_the_critic_was_trained_on_do_not_tell_its_error(trained: Path, audit: str, tmp_path: Path) -> None:
    labels = [{"dataset": "audit", "path": audit}]
    every = read_labelled({"critic": None, "judge_labels": labels})
    assert every is not None and every.name == f"{len(every.rows)} rows of audit"
    # Trained on the audit, less one of its corpora: those rows alone are new to it.
    excluded = [{"dataset": "audit", "path": audit, "corpora": "cmu"}]
    parts: dict[str, Any] = {"natural": {"dataset": "weak_wow", "path": "elsewhere", "audit_path": audit}}
    critic = with_training(trained, tmp_path / "less", {"parts": parts, "exclude": excluded})
    held = read_labelled({"critic": str(critic), "judge_labels": labels})
    assert held is not None and 0 < len(held.rows) < len(every.rows) and "that the critic has not seen" in held.name
    whole = with_training(trained, tmp_path / "whole", {"parts": parts, "exclude": []})
    with pytest.raises(UserError, match="trained on every row of audit"):
        read_labelled({"critic": str(whole), "judge_labels": labels})
    other = with_training(trained, tmp_path / "other", {"parts": [{"dataset": "snli", "path": "x"}], "exclude": []})
    free = read_labelled({"critic": str(other), "judge_labels": labels})
    assert free is not None and len(free.rows) == len(every.rows)


def test_a_second_judge_is_not_measured_on_rows_that_it_has_seen(trained, audit, wow, answers, tmp_path, capsys):
    every = read_labelled({"critic": str(trained), "judge_labels": [{"dataset": "audit", "path": audit}]})
    assert every is not None
    half = [replace(row, id=row.id.partition("/")[2]) for row in every.rows[: len(every.rows) // 2]]
    second = with_training(trained, tmp_path / "second", rows=half)
    options = [f"benchmark.judges=['{trained}','{second}']", f"benchmark.critic={trained}", "verbose=true"]
    found = judged(tmp_path / "run", wow, answers, *options, audit=audit)
    shown = " ".join(capsys.readouterr().out.split())
    each = [found[f"test/wow/judge/{key}_recall"]["n"] for key in ("critic", "critic_2", "critic_3")]
    others = [found[f"test/wow/judge/{key}_false_alarms"]["n"] for key in ("critic", "critic_2", "critic_3")]
    sizes = [one + other for one, other in zip(each, others, strict=True)]
    assert sizes[0] == sizes[1] == len(every.rows) and 0 < sizes[2] <= len(every.rows) - len(half)
    assert "that second has not seen" in shown
    assert "by judge 3" in shown, "what each judge has seen of the judged turns is told too"


def test_an_nli_model_judges_by_entailment(wow, audit, answers, tmp_path, capsys) -> None:
    nli = write_nli(tmp_path / "nli", positions=200)
    found = judged(tmp_path / "run", wow, answers, f"benchmark.judges=['nli:{nli}']", "verbose=true", audit=audit)
    shown = " ".join(capsys.readouterr().out.split())
    rows = [json.loads(line) for line in (tmp_path / "run" / "scores" / "wow.jsonl").read_text().splitlines()]
    model = load_entailment(str(nli), device="cpu")
    block = {"name": "wow", "path": wow, "split": "test", "num_rows": None, "on_bad_row": "stop", "options": {}}
    knowledge = [example.knowledge for example in read_benchmark(block, labelled=False).examples]
    expected = model.entailment(knowledge, [row["response"] for row in rows])
    assert [row["critic_2_score"] for row in rows] == pytest.approx(1 - expected[:, ENTAILMENT])
    called = expected.argmax(axis=1) != ENTAILMENT
    assert 0 < called.mean() < 1 and found["test/wow/critic_2_rate"]["value"] == pytest.approx(called.mean())
    assert 0 <= found["test/wow/judge/critic_2_recall"]["value"] <= 1
    assert "entailment by nli" in shown and "leaks: unknown for judge 2" in shown
    assert "it was not trained with faithkit" in shown
