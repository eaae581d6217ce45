"""A detector is loaded by the kind of its folder, with prompt examples that are never tested."""

from pathlib import Path
from typing import Any

import pytest

from data_modules.build import Benchmark, read_benchmark
from data_modules.reading.exclude import Excluded
from faithkit.errors import UserError
from faithkit_workflows.benchmarks.configured import draw_prompt_examples
from faithkit_workflows.detectors.loading import load_detector
from tests.critic.tagger.conftest import tagger_folder, write_tagger  # noqa: F401
from tests.faithkit.inference.server import ChatServer
from tests.running import asking, evaluate_here

OPTIONS: dict[str, Any] = {"precision": "32-true", "batch_tokens": None}


def test_a_generator_is_no_detector(tiny_t5: Path) -> None:
    with pytest.raises(UserError, match="is a generator; a critic, tagger, default, thorough or judge is needed"):
        load_detector(str(tiny_t5), **OPTIONS)
    with pytest.raises(UserError, match="neither checkpoint nor predictions"):
        load_detector(None, **OPTIONS)


BLOCK = {"name": "halludial", "path": "embedded", "split": None, "num_rows": 40, "on_bad_row": "stop", "options": {}}


@pytest.fixture(scope="module")
def benchmark(session_home: Path) -> Benchmark:
    return read_benchmark(BLOCK)


def test_no_example_shares_knowledge_dialogue_or_group_with_a_tested_row(benchmark: Benchmark) -> None:
    shots = draw_prompt_examples(benchmark, BLOCK, "judgement", 20, seed=0)
    tested, groups = Excluded.of(benchmark.examples), {example.group for example in benchmark.examples}
    assert len(shots) == 20 and all(shot.split == "train" for shot in shots)
    assert not any(tested.covers(shot) or shot.group in groups for shot in shots)
    same = Benchmark("halludial", shots, {})  # were these tested, others would be drawn
    others = draw_prompt_examples(same, BLOCK, "judgement", 20, seed=0)
    assert not {shot.knowledge for shot in shots} & {shot.knowledge for shot in others}


def test_every_question_of_a_run_begins_with_the_same_examples(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("KEY", "none")
    with ChatServer(answer=lambda messages, seed, sample: "Yes") as server:
        given = ["benchmark=halludial", "benchmark.path=embedded", "benchmark.num_rows=6", "num_examples=0", "seed=3"]
        key = ["engine.api_key_variable=KEY", "judge.examples=2", f"run_dir={tmp_path / 'run'}"]
        evaluate_here(*given, *asking(server.url, *key))
    beginnings = {content.split("Now the one that you are to judge:")[0] for content in server.contents}
    [beginning] = beginnings
    assert "\n\nYes\n\nExample 2\n\n" in beginning and beginning.endswith("\n\nNo\n\n")
    assert "examples in the prompt, of embedded-halludial/train: " in capsys.readouterr().err


def test_a_dataset_without_training_rows_is_told_how_to_go_on() -> None:
    block = {**BLOCK, "name": "halueval"}
    with pytest.raises(UserError, match=r"no training rows to draw examples from\n.*\n.*judge.examples=FILE"):
        draw_prompt_examples(read_benchmark(block), block, "verdict", 2, seed=0)
