"""The protocol: failures are counted, documents and rows of all kinds are taken, an interrupted audit goes on."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit_workflows.audit.audit_page import report_accuracy, report_audit
from faithkit_workflows.audit.mutations import BUILT_IN
from faithkit_workflows.audit.protocol import ANSWERS, run_audit
from faithkit_workflows.audit.target import PASSAGES, Asker, FunctionTarget
from tests.data_modules.official_rows import write
from tests.faithkit_workflows.audit import faulty
from tests.faithkit_workflows.audit.auditing import MODULE, SMALL, audit, configure
from tests.running import ROOT

ENGLISH = "The mill was built in 1820 and has 3 floors. It is not open in winter. All rooms are on the left."


def write_rows(path: Path, labels: list[Any]) -> Path:
    """Rows of six documents; every second answer is wrong."""
    rows = []
    for number, label in enumerate(labels):
        fact, answer = (f"The tower of Ort{number % 6} is {20 + number + more} metres high." for more in (0, 5))
        row = {"context": f"{fact} It was built before 1900.", "question": "How high is it?", "label": label}
        rows.append({**row, "answer": answer if number % 2 else fact})
    return write(path, rows)


REASONS = {"raising": "the model is not loaded", "nan": "NaN instead of a probability", "one_too_many": "wrong length"}


@pytest.mark.parametrize(("name", "reason"), REASONS.items())
def test_a_function_that_always_fails_is_asked_a_few_times_and_reported(name: str, reason: str, tmp_path: Path) -> None:
    done = audit(name, tmp_path, *SMALL)
    asked = sum(count for problem, count in done.problems.items() if not problem.startswith("not asked"))
    assert reason in done.figures.reason and asked <= 20 and not done.answers
    report_audit(tmp_path, done)
    assert "gave no verdict at all" in (tmp_path / "audit.html").read_text()


def test_rows_that_a_function_fails_on_are_counted_and_the_others_audited(tmp_path: Path) -> None:
    done = audit("raising_at_negations", tmp_path)
    assert set(done.problems) == {"KeyError: 'not'"}
    assert done.figures.detection.found["number"].value > 0.9
    assert [fault.name for fault in done.faults] == ["no verdict"]


def test_a_function_that_takes_a_minute_is_given_up(tmp_path: Path) -> None:
    done = audit("sleeping", tmp_path, *SMALL, "row_seconds=0.05")
    assert done.problems["over row_seconds"] == 5 and done.seconds < 5


def test_the_time_limit_ends_an_audit_with_what_it_has(tmp_path: Path) -> None:
    done = audit("slow", tmp_path, "max_seconds=1")
    assert done.problems["not asked: no time left"] and done.seconds < 10
    assert done.figures.detection.score is not None and done.figures.invariance.comparisons


def test_an_interrupted_audit_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    config = configure(f"{MODULE}:good", *SMALL)
    asked: list[str] = []

    def counting(rows: faulty.Rows) -> list[float]:
        asked.extend(row["answer"] for row in rows)
        return faulty.good(rows)

    first = run_audit(FunctionTarget("f", counting), tmp_path, config)
    lines = (tmp_path / ANSWERS).read_text().splitlines(keepends=True)
    (tmp_path / ANSWERS).write_text("".join(lines[:-10]))
    whole, asked[:] = len(asked), []
    again = run_audit(FunctionTarget("f", counting), tmp_path, config)
    assert 10 <= len(asked) < whole
    assert again.figures == first.figures


def test_a_resumed_audit_asks_again_for_a_row_whose_text_changed(tmp_path: Path) -> None:
    asked: list[str] = []

    def noting(rows: Any) -> Any:
        asked.extend(row["answer"] for row in rows)
        return faulty.good(rows)

    text, meta = "It is red.", {PASSAGES: ("It is red.",)}
    row = Example(id="a", source="s", split="all", group="g", knowledge=text, response=text, meta=meta)
    labels = []
    for response in (text, text, "It is blue."):
        limits = {"row_seconds": 5.0, "max_seconds": 60.0, "batch_size": 4}
        asker = Asker(FunctionTarget("f", noting), tmp_path / ANSWERS, **limits)
        labels.append(asker.ask([replace(row, response=response)], "rows")["a"].label)
        asker.close()
    assert labels == [FAITHFUL, FAITHFUL, HALLUCINATED] and asked == [text, "It is blue."]


def test_documents_of_all_kinds_are_counted_and_english_ones_used(tmp_path: Path) -> None:
    texts = {
        "good.txt": ENGLISH,
        "one.md": "The mill was built in 1820 and has 3 floors.",
        "empty.txt": "\n",
        "german.txt": "Die Mühle wurde 1820 gebaut und hat drei Stockwerke. Im Winter ist sie geschlossen.",
        "heading.md": "The list of all the rooms",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("Ein Stück".encode("latin-1"))
    done = audit("good", tmp_path / "run", f"documents={tmp_path}")
    assert [document.name for document in done.material.documents] == ["good.txt", "one.md"]
    reasons = ("not UTF-8 text, or not readable", "empty", "not in English", "no whole sentence of 5 to 45 words")
    assert done.material.left_out == {f"document: {reason}": 1 for reason in reasons}
    assert done.figures.detection.score is not None and not done.problems


def test_labelled_rows_give_accuracy_beside_baselines(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ["faithful", "hallucinated"] * 30)
    done = audit("good", tmp_path / "run", f"rows={path}", "num_cases=3")
    accuracy = done.figures.accuracy
    assert accuracy is not None and done.material.source == "the sources of the rows"
    assert accuracy.systems[done.target]["macro_f1"].value == 1
    assert {"majority", "word overlap", "response length", "random"} <= set(accuracy.systems)
    lines, _ = report_accuracy(done)
    assert any("strongest simple baseline" in line for line in lines)
    assert any("calibration error" in line for line in lines)


def test_labels_of_unknown_meaning_are_counted_and_their_rows_still_audited(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ["faithful", "hallucinated"] * 12 + ["purple", ""] * 3)
    done = audit("good", tmp_path / "run", f"rows={path}", "num_cases=3")
    assert done.material.left_out["row: a label of unknown meaning"] == 3
    assert done.material.left_out["row: no label"] == 3
    assert done.figures.accuracy is not None
    path = write_rows(tmp_path / "strange.jsonl", ["purple", "green"] * 12)
    done = audit("good", tmp_path / "other", f"rows={path}", "num_cases=3")
    assert done.figures.accuracy is None and done.figures.detection.score is not None
    report_audit(tmp_path, done)
    assert "a label of unknown meaning (24)" in (tmp_path / "audit.html").read_text()


def test_the_page_shows_texts_as_texts(tmp_path: Path) -> None:
    text = f"{ENGLISH} The sign on the door has <b>3</b> words & a \u202emark."
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    done = audit("always_yes", tmp_path / "run", f"documents={tmp_path}", "num_cases=2")
    report_audit(tmp_path / "run", done)
    page = (tmp_path / "run" / "audit.html").read_text()
    assert "<b>one verdict for all:</b>" in page and "<b>3" not in page and "\u202e" not in page
    assert (tmp_path / "run" / "answers.html").exists()


def test_an_interrupted_command_says_how_to_go_on_and_then_writes_page_and_figures(tmp_path: Path) -> None:
    run, line = tmp_path / "run", [sys.executable, "-m", "faithkit", "audit"]
    first = [*line, f"{MODULE}:slow", *SMALL, "batch_size=1", f"run_dir={run}"]
    started = subprocess.Popen(first, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not (run / ANSWERS).exists() or not (run / ANSWERS).stat().st_size:
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 130 and f"faithkit audit resume={run}" in errors
    again = [*line, f"resume={run}", f"extensions=['{MODULE}:slow']"]
    done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Verdict:\n- No fault" in done.stdout and "audit.html" in done.stdout
    found = json.loads((run / "audit.json").read_text())
    assert found["protocol"] == 3 and found["documents"]["source"] == BUILT_IN and found["faults"] == []
