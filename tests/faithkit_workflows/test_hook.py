"""The stop hook of a coding agent, and conversations in `check` and `score`."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faithkit import check
from faithkit.files.jsonl import read_jsonl, write_jsonl
from faithkit_workflows import hook
from faithkit_workflows.check import main as check_main
from tests.running import ROOT


def said(role: str, content: Any) -> dict[str, Any]:
    return {"type": role, "message": {"role": role, "content": content}}


CALL = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "pytest"}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "2 failed, 14 passed"}
TRANSCRIPT = [said("user", "Fix the parser."), said("assistant", [CALL]), said("user", [RESULT])]


@pytest.fixture
def by(default_file: Path) -> str:
    return f"default:{default_file}"


def transcript(folder: Path, answer: str) -> Path:
    write_jsonl(folder / "session.jsonl", [*TRANSCRIPT, said("assistant", [{"type": "text", "text": answer}])])
    return folder / "session.jsonl"


def test_the_hook_stops_an_answer_that_the_tools_do_not_support(by: str, tmp_path: Path) -> None:
    asked = json.dumps({"transcript_path": str(transcript(tmp_path, "All tests pass."))})
    command = [sys.executable, "-m", "faithkit", "hook", "--checkpoint", by]
    done = subprocess.run(command, cwd=ROOT, input=asked, capture_output=True, text=True)
    assert done.returncode == 2
    assert '"All tests pass" (unsupported addition, action): the call Bash shows a failure' in done.stderr


def test_the_hook_lets_a_supported_answer_pass_and_its_mistakes_do_not_block(by, tmp_path, monkeypatch, capsys) -> None:
    def ask(asked: dict[str, Any], checkpoint: str = by) -> int:
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
        return hook.main(["--checkpoint", checkpoint])

    path = str(transcript(tmp_path, "All tests pass."))
    assert ask({"transcript_path": path, "stop_hook_active": True}) == 0
    assert ask({"transcript_path": str(transcript(tmp_path, "2 tests failed, 14 passed."))}) == 0
    own = list(read_jsonl(transcript(tmp_path, "2 tests failed, 14 passed.")))
    of_helper = [{**row, "isSidechain": True} for row in read_jsonl(transcript(tmp_path, "All tests pass."))]
    write_jsonl(tmp_path / "both.jsonl", [*own, *of_helper])
    assert ask({"transcript_path": str(tmp_path / "both.jsonl")}) == 0
    assert ask({"transcript_path": str(tmp_path / "missing.jsonl")}) == 1
    assert "does not exist" in capsys.readouterr().err
    assert ask({}) == 1 and "transcript_path" in capsys.readouterr().err
    assert ask({"transcript_path": path}, "runs/missing") == 1 and "runs/missing" in capsys.readouterr().err
    assert hook.main(["--chekpoint", by]) == 1 and "did you mean --checkpoint" in capsys.readouterr().err


def test_check_and_score_judge_each_turn(by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = transcript(tmp_path, "All tests pass. 14 passed.")
    assert check_main(["--messages", str(path), "--checkpoint", by, "--fail"]) == 1
    assert "[[All tests pass|unsupported_action 0.90]]" in capsys.readouterr().out
    command = [sys.executable, "-m", "faithkit", "score", str(path), f"checkpoint={by}", f"run_dir={tmp_path / 'run'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (row,) = read_jsonl(tmp_path / "run" / "session.scored.jsonl")
    assert row["label"] == "hallucinated" and row["spans"][0]["label"] == "unsupported_action"
    (line,) = read_jsonl(tmp_path / "run" / "conversations.jsonl")
    assert (line["turns"], line["unsupported"], line["first_unsupported"]) == (1, 1, 1)
    (found,) = check(messages=[one["message"] for one in read_jsonl(path)], by=by)
    assert (found.label, found.score) == (row["label"], pytest.approx(row["probability"]))
