"""A language model judges wherever a critic does: by its folder, its name, or a file that names it behind a server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_modules.build import read_benchmark
from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import write_config
from faithkit.inference.text import Decoding
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example
from faithkit_workflows.answering.strategies import BestOf
from faithkit_workflows.chat import main as chat
from faithkit_workflows.detectors.loading import load_detector
from generation.generator import Generator
from judge.judge import Judge
from tests.data_modules.official_rows import write
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.generation.folders import examples
from tests.model_folders import with_places
from tests.running import ROOT, asking, compose, evaluate_here, metrics_of, train_here, values_of

SAMPLED = Decoding(strategy="nucleus", top_p=0.95, max_new_tokens=8, num_samples=3)


def run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "faithkit", name, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


@pytest.fixture(params=["folder", "server"])
def detector(request, language_models, tmp_path, no_account) -> Iterator[str]:
    """A judge as a user writes it behind `detector=`."""
    if request.param == "folder":
        yield str(language_models["llama"])
        return
    with ChatServer(tells={"Yes": 0.4, "No": 0.6}) as server:
        file = tmp_path / "judge.yaml"
        engine = {"name": "openai", "model": MODEL, "base_url": server.url, "cache": str(tmp_path / "replies")}
        write_config(file, {"engine": engine})
        yield str(file)


def test_it_chooses_the_best_of_several_answers(detector: str, tiny_llama: Path) -> None:
    judge = load_detector(detector, precision="32-true", batch_tokens=None)
    assert isinstance(judge, Judge)
    chosen = BestOf(Generator.load(str(tiny_llama)), judge, SAMPLED).answer(examples()[:3])
    assert [one.id for one in chosen] == [one.id for one in examples()[:3]]
    assert all(one.score is not None for one in chosen if one.text)


def test_it_chooses_among_the_answers_of_other_models_and_judges_responses(detector: str, tmp_path: Path) -> None:
    wow = written_layout("wow_faithdial", {"train": 4, "validation": 4, "test": 6})
    rows = written_layout("ragtruth", {"train": 4, "validation": 4, "test": 12})
    own = "engine=none" if detector.endswith(".yaml") else "engine=transformers"
    given = f"checkpoint={detector}" if own == "engine=none" else f"engine.model={detector}"
    options = ["benchmark=suppression", f"benchmark.path={rows}", own, given, "engine.cache=null"]
    evaluate_here(*options, f"run_dir={tmp_path / 'suppressed'}")
    assert any("fewest/hallucination_rate" in name for name in values_of(tmp_path / "suppressed"))
    options = ["benchmark=wow", f"benchmark.path={wow}", "benchmark.split=test", "benchmark.bert_score.encoder=null"]
    block = {"name": "wow", "path": wow, "split": "test", "num_rows": None, "on_bad_row": "stop", "options": {}}
    written = [{"id": one.id, "text": "It is long."} for one in read_benchmark(block, labelled=False).examples]
    answers = write(tmp_path / "answers.jsonl", written)
    judged = [f"benchmark.judges=['{detector}']", f"benchmark.critic={detector}", f"predictions={answers}"]
    evaluate_here(*options, *judged, f"run_dir={tmp_path / 'judged'}")
    found = values_of(tmp_path / "judged")
    assert found["test/wow/critic_rate"] == found["test/wow/critic_2_rate"]


def test_it_stands_beside_each_answer_of_a_talk(detector, tiny_llama, monkeypatch, capsys) -> None:
    lines = iter(["The river is long.", "", "Is it?"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(lines, "/quit"))
    options = [f"checkpoint={tiny_llama}", f"detector={detector}", "decoding=greedy", "decoding.max_new_tokens=5"]
    chat(compose("chat", *options))
    assert "P(hallucinated)" in capsys.readouterr().out


@pytest.mark.parametrize("script", ["score", "evaluate", "audit"])
def test_a_command_without_a_readable_verdict_gives_no_rate_and_ends_with_an_error(script: str, tmp_path: Path) -> None:
    table, file = tmp_path / "rows.csv", tmp_path / "judge.yaml"
    rows = [f"The mill has {number} floors.,It has {number + 1} floors.,hallucinated" for number in range(12)]
    table.write_text("\n".join(["context,answer,label", *rows]) + "\n")
    with ChatServer(answer=lambda *_: "I like turtles.") as server:
        engine = {"name": "openai", "model": MODEL, "base_url": server.url, "cache": None}
        write_config(file, {"engine": engine, "judge": {"ask": "judgement"}})
        given = {
            "score": [f"path={table}", f"checkpoint={file}"],
            "evaluate": ["benchmark=pairs", f"benchmark.path={table}", f"checkpoint={file}"],
            "audit": [f"target={file}", "num_cases=2", "num_variants=2", "long_words=50"],
        }[script]
        done = run_script(script, *given, f"run_dir={tmp_path / 'run'}")
    assert done.returncode == 2, done.stderr
    assert "error rate" not in done.stdout and "Traceback" not in done.stderr
    reason = {"audit": "gave no verdict at all"}.get(script, "could be read as a verdict")
    assert reason in done.stderr


ROWS = 24


@pytest.fixture(scope="module")
def rows(session_home: Path) -> dict[str, Example]:
    """Answers of the embedded corpus in RAGTruth's layout, by their text."""
    block = {"name": "ragtruth", "path": "embedded", "split": None, "num_rows": ROWS, "on_bad_row": "stop"}
    examples = read_benchmark({**block, "options": {}}).examples
    return {example.response.strip(): example for example in examples}


def gold_parts(example: Example) -> list[str]:
    return [example.response[span.start : span.end] for span in example.spans or ()]


def test_a_server_that_lists_spans_is_scored_by_character_beside_the_baselines(rows, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KEY", "none")
    hallucinated = [e for e in rows.values() if e.label == HALLUCINATED]
    unread, shouted, invented = hallucinated[:3]

    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        said = messages[-1]["content"].split("Reply to check:\n", 1)[1].rsplit("\n\nCopy every", 1)[0]
        example = rows[said]
        if example is unread:
            return "The second sentence looks wrong to me."
        parts = gold_parts(example)
        if example is shouted:
            return f"```json\n{json.dumps({'hallucinations': [part.upper() for part in parts]})}\n```"
        return json.dumps({"hallucinations": [*parts, "a herd of purple elephants"] if example is invented else parts})

    with ChatServer(answer=answer) as server:
        given = ["benchmark=ragtruth", "benchmark.path=embedded", f"benchmark.num_rows={ROWS}", "judge.ask=spans"]
        evaluate_here(*given, *asking(server.url, "engine.api_key_variable=KEY", f"run_dir={tmp_path / 'run'}"))
    found = read_predictions(str(tmp_path / "run" / "predictions" / "embedded-ragtruth.jsonl"))
    by_id = {example.id: example for example in rows.values()}
    for name, prediction in found.items():
        example = by_id[name]
        label = UNPARSED if example is unread else HALLUCINATED if example.spans else FAITHFUL
        assert prediction.label == label
        marked = {i for span in prediction.spans for i in range(span.start, span.end)}
        gold = {i for span in example.spans or () for i in range(span.start, span.end)}
        assert marked == (set() if example is unread else gold)
    scored = metrics_of(tmp_path / "run")
    lost = sum(span.end - span.start for span in unread.spans or ())
    total = sum(span.end - span.start for e in rows.values() for span in e.spans or ())
    assert scored["test/embedded-ragtruth/char_precision"]["value"] == 1.0
    assert scored["test/embedded-ragtruth/char_recall"]["value"] == pytest.approx(1 - lost / total, abs=0.02)
    assert scored["test/embedded-ragtruth/unparsed_rate"]["value"] == pytest.approx(1 / ROWS)
    recall = scored["test/embedded-ragtruth/response_recall"]
    assert recall["value"] == pytest.approx(1 - 1 / len(hallucinated)) and recall["low"] <= recall["value"]
    for name in ("mismatch_char_f1", "all_characters_char_f1", "no_spans_response_f1", "char_f1", "response_f1"):
        assert {"low", "high"} <= scored[f"test/embedded-ragtruth/{name}"].keys(), name
    shown = capsys.readouterr()
    assert "words not in context" in shown.out and "all characters" in shown.out
    assert "quoted parts that are not in their responses and mark nothing: 1" in shown.err


@pytest.mark.slow
def test_a_model_of_this_machine_and_a_trained_checkpoint_are_scored_by_span_too(language_models, rows, tmp_path):
    small = ("benchmark=ragtruth", "benchmark.path=embedded", "benchmark.num_rows=6", "num_examples=0")
    llama = with_places(language_models["llama"], tmp_path / "llama", 8000)
    engine = ("engine=transformers", f"engine.model={llama}", "engine.cache=null")
    with pytest.raises(UserError, match="none of the replies"):  # random weights: the figures are written all the same
        evaluate_here(*small, *engine, "judge.ask=spans", "judge.max_new_tokens=8", f"run_dir={tmp_path / 'zero'}")
    train_here(
        "model=judge_lora", "model.ask=spans", "data=ragtruth", f"model.weights={llama}", "model.max_length=4000",
        "model.batch_size=4", "data.embedded_rows={train: 16, validation: 12, test: 12}", "trainer=cpu", "logger=none",
        "callbacks.progress_bar=false", "callbacks.num_resamples=20", "callbacks.num_examples=0",
        "callbacks.monitor=validation/ragtruth/perplexity", "callbacks.mode=min", f"run_dir={tmp_path / 'run'}",
    )  # fmt: skip
    with pytest.raises(UserError, match="none of the replies"):
        evaluate_here(*small, f"checkpoint={tmp_path / 'run'}", f"run_dir={tmp_path / 'trained'}")
    for name in ("zero", "trained", "run"):
        scored = metrics_of(tmp_path / name)
        assert all(f"test/embedded-ragtruth/{short}" in scored for short in ("char_f1", "response_f1", "unparsed_rate"))
