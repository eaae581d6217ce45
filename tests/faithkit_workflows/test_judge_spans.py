"""A judge that lists hallucinated parts is scored on RAGTruth as a tagger is: by character, beside the baselines."""

import json
from pathlib import Path

import pytest

from data_modules.build import read_benchmark
from faithkit.files.jsonl import read_predictions
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example
from tests.faithkit.inference.server import ChatServer
from tests.model_folders import with_places
from tests.running import asking, evaluate_here, metrics_of, train_here

ROWS = 24


@pytest.fixture(scope="module")
def rows(session_home: Path) -> dict[str, Example]:
    """Answers of the embedded corpus in RAGTruth's layout, by their text."""
    block = {"name": "ragtruth", "path": "embedded", "split": None, "num_rows": ROWS, "on_bad_row": "stop"}
    examples = read_benchmark({**block, "options": {}}).examples
    return {example.response.strip(): example for example in examples}


def gold_parts(example: Example) -> list[str]:
    return [example.response[span.start : span.end] for span in example.spans or ()]


def test_a_server_that_lists_spans_is_scored_by_character_beside_the_baselines(
    rows: dict[str, Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
def test_a_model_of_this_machine_and_a_trained_checkpoint_are_scored_by_span_too(
    language_models: dict[str, Path], rows: dict[str, Example], tmp_path: Path
) -> None:
    small = ("benchmark=ragtruth", "benchmark.path=embedded", "benchmark.num_rows=6", "num_examples=0")
    llama = with_places(language_models["llama"], tmp_path / "llama", 8000)
    evaluate_here(
        *small, "engine=transformers", f"engine.model={llama}", "judge.ask=spans",
        "judge.max_new_tokens=8", "engine.cache=null", f"run_dir={tmp_path / 'zero'}",
    )  # fmt: skip
    train_here(
        "model=judge_lora", "model.ask=spans", "data=ragtruth", f"model.weights={llama}", "model.max_length=4000",
        "model.batch_size=4", "data.embedded_rows={train: 16, validation: 12, test: 12}", "trainer=cpu", "logger=none",
        "callbacks.progress_bar=false", "callbacks.num_resamples=20", "callbacks.num_examples=0",
        "callbacks.monitor=validation/ragtruth/perplexity", "callbacks.mode=min", f"run_dir={tmp_path / 'run'}",
    )  # fmt: skip
    evaluate_here(*small, f"checkpoint={tmp_path / 'run'}", f"run_dir={tmp_path / 'trained'}")
    for name in ("zero", "trained", "run"):
        scored = metrics_of(tmp_path / name)
        assert {
            f"test/embedded-ragtruth/{name}" for name in ("char_f1", "response_f1", "unparsed_rate")
        } <= scored.keys()
