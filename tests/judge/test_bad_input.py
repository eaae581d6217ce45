"""A judge's commands answer bad input by an error that names the place, or by a run that counts what it lost."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from faithkit.cli import explain
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from tests.faithkit.inference.server import ChatServer
from tests.judge.conftest import TINY
from tests.model_folders import edit_json
from tests.running import evaluate_here, metrics_of, train_here

ROWS = 12
QUIET = ("benchmark=halludial", "benchmark.path=embedded", f"benchmark.num_rows={ROWS}", "num_examples=0")


def test_a_model_without_a_template_judges_and_counts_what_is_too_long(language_models: Any, tmp_path: Path) -> None:
    assert "chat_template" not in (language_models["llama"] / "tokenizer_config.json").read_text()
    model = (f"engine.model={language_models['llama']}", "engine=transformers", "engine.cache=null")
    evaluate_here(*QUIET, *model, f"run_dir={tmp_path / 'all'}")
    assert metrics_of(tmp_path / "all")["test/embedded-halludial/unparsed_rate"]["value"] == 0
    sizes = sorted(len(text) for text in prompts_of(tmp_path / "all"))
    window = 1 + sizes[ROWS // 2]  # fewer tokens than characters, so that some fit and others may not
    evaluate_here(*QUIET, *model, f"engine.max_length={window // 2}", f"run_dir={tmp_path / 'short'}")
    name = "predictions/embedded-halludial.jsonl"
    whole, found = (read_predictions(tmp_path / run / name) for run in ("all", "short"))
    lost = [one for one in found.values() if one.text and "too long" in one.text]
    assert 0 < len(lost) < ROWS and all(one.label == "unparsed" and one.score is None for one in lost)
    assert all(found[i].label == one.label for i, one in whole.items() if found[i] not in lost), "none was shifted"
    unparsed = metrics_of(tmp_path / "short")["test/embedded-halludial/unparsed_rate"]["value"]
    assert unparsed == pytest.approx(len(lost) / ROWS)


def prompts_of(run: Path) -> list[str]:
    from data_modules.build import read_benchmark
    from judge.prompt import read_prompt

    block = {"name": "halludial", "path": "embedded", "split": None, "num_rows": ROWS, "on_bad_row": "stop"}
    template = read_prompt("verdict")
    return [template.fill(example) for example in read_benchmark({**block, "options": {}}).examples]


@pytest.mark.parametrize("ask", ["verdict", "judgement", "steps", "spans"])
def test_a_silent_server_gives_no_label(ask: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("KEY", "none")
    answers = ChatServer(answer=lambda messages, seed, sample: "")
    with answers as server, pytest.raises(UserError, match="none of the replies could be read"):
        evaluate_here(
            *QUIET, "engine=openai", "engine.model=small", f"engine.base_url={server.url}", "engine.cache=null",
            "engine.api_key_variable=KEY", f"judge.ask={ask}", f"run_dir={tmp_path / 'run'}",
        )  # fmt: skip
    found = metrics_of(tmp_path / "run")
    assert found["test/embedded-halludial/unparsed_rate"]["value"] == 1
    assert found["test/embedded-halludial/accuracy"]["value"] == 0
    printed = capsys.readouterr().out
    assert "unparsed: 100.0% of the replies could not be read" in printed
    [shown] = [line for line in printed.splitlines() if line.startswith(" model ")]
    assert not any(character.isdigit() for character in shown) and "model: most replies could not be read" in printed


def refused(command: Any, *given: str) -> str:
    """Runs a command that is refused; gives what a user reads, at most five lines."""
    with pytest.raises(Exception) as caught:
        command(*given)
    told = explain(caught.value)
    assert told is not None and len(told.splitlines()) <= 5, told
    assert isinstance(caught.value, UserError) or isinstance(caught.value.__cause__, UserError)
    return told


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_a_prompt_without_a_field_stops_at_once(command: str, language_models: Any, tmp_path: Path) -> None:
    (tmp_path / "verdict.txt").write_text("Is it wrong?\n\n{knowledge}\n\n{history}")
    weights, run = language_models["llama"], f"run_dir={tmp_path / 'run'}"
    if command == "train":
        given = (f"model.weights={weights}", "model.ask=verdict", f"model.prompts={tmp_path}", run)
        told = refused(train_here, *TINY, *given)
    else:
        given = ("engine=transformers", f"engine.model={weights}", f"judge.prompts={tmp_path}", run)
        told = refused(evaluate_here, *QUIET, *given)
    assert "lacks {response}" in told and "verdict.txt" in told and "hint" in told
    assert not [path for folder in ("predictions", "checkpoints") for path in (tmp_path / "run").glob(f"{folder}/*")]


@pytest.mark.parametrize(
    ("family", "change", "given", "problem"),
    [
        ("t5", {}, (), "encoder-decoder"),
        ("llama", {"eos_token": None}, (), "no token that ends an answer"),
        ("llama", {}, ("model.max_length=100000",), "2048 positions"),
        ("llama", {}, ("model.max_length=40",), "without any history"),
        ("llama", {}, ("model.ask=spans",), "has no spans"),
    ],
)
def test_what_no_judge_can_learn_is_explained_in_five_lines(
    family: str, change: Any, given: Any, problem: str, data: list[str], language_models: Any, tmp_path: Path
) -> None:
    folder = shutil.copytree(language_models[family], tmp_path / "model")
    edit_json(folder / "tokenizer_config.json", lambda stored: stored.update(change))
    line = (*TINY, *data[:2], f"model.weights={folder}", f"run_dir={tmp_path / 'run'}", *given)
    assert problem in refused(train_here, *line)
