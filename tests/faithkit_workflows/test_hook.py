"""The stop hook of a coding agent, and conversations in `check` and `score`."""

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from critic.support.detector import FILE, hash_weights
from critic.support.word_model import WordModel
from faithkit import check
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl, write_jsonl
from faithkit_workflows import hook
from faithkit_workflows.check import main as check_main
from tests.running import ROOT

TRANSCRIPT = [
    {"type": "user", "message": {"role": "user", "content": "Fix the parser."}},
    {
        "type": "assistant",
        "message": {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "pytest"}}],
        },
    },
    {
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": "2 failed, 14 passed"}],
        },
    },
]


@pytest.fixture(scope="module")
def by(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shipped detector on a tiny encoder."""
    path = tmp_path_factory.mktemp("default") / "tiny.json"
    replace(WordModel.read(FILE), encoder=str(tiny_bert), encoder_sha256=hash_weights(str(tiny_bert))).write(path)
    return f"default:{path}"


def transcript(folder: Path, answer: str) -> Path:
    last = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": answer}]}}
    path = folder / "session.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*TRANSCRIPT, last]), encoding="utf-8")
    return path


def test_the_hook_stops_an_answer_that_the_tools_do_not_support(by: str, tmp_path: Path) -> None:
    asked = json.dumps({"transcript_path": str(transcript(tmp_path, "All tests pass."))})
    command = [sys.executable, "-m", "faithkit", "hook", "--checkpoint", by]
    done = subprocess.run(command, cwd=ROOT, input=asked, capture_output=True, text=True)
    assert done.returncode == 2
    assert '"All tests pass" (unsupported addition, action): the call Bash shows a failure' in done.stderr


def test_the_hook_lets_a_supported_answer_pass_and_its_mistakes_do_not_block(by, tmp_path, monkeypatch, capsys) -> None:
    def ask(asked: dict[str, Any]) -> int:
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
        return hook.main(["--checkpoint", by])

    path = str(transcript(tmp_path, "All tests pass."))
    assert ask({"transcript_path": path, "stop_hook_active": True}) == 0
    assert ask({"transcript_path": str(transcript(tmp_path, "2 tests failed, 14 passed."))}) == 0
    own = list(read_jsonl(transcript(tmp_path, "2 tests failed, 14 passed.")))
    of_helper = [{**row, "isSidechain": True} for row in read_jsonl(transcript(tmp_path, "All tests pass."))]
    write_jsonl(tmp_path / "both.jsonl", [*own, *of_helper])
    assert ask({"transcript_path": str(tmp_path / "both.jsonl")}) == 0
    assert ask({"transcript_path": str(tmp_path / "missing.jsonl")}) == 1
    assert "does not exist" in capsys.readouterr().err
    with pytest.raises(UserError, match="transcript_path"):
        ask({})


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
