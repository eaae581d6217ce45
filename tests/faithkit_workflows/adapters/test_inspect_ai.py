"""The scorer in an evaluation of inspect_ai, and its logs as runs that the report compares."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.runs import find_runs
from faithkit_workflows.compare.comparison import compare_runs
from tests.faithkit_workflows.adapters.cases import PASSAGES, QUESTION, SUPPORTED, UNSUPPORTED, run_example

pytest.importorskip("inspect_ai", reason="needs make adapters TOOL=inspect_ai")
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Scorer, match

from faithkit_workflows.adapters.inspect_ai import faithfulness
from faithkit_workflows.adapters.inspect_logs import write_run

LABELS = ["faithful", "hallucinated"] * 6


def run_task(folder: Path, outputs: list[str], targets: list[str], scorer: Scorer, epochs: int = 1) -> EvalLog:
    """Evaluates a model that gives these outputs."""
    samples = [
        Sample(id=f"s{number}", input=f"{QUESTION} ({number})", target=target, metadata={"context": PASSAGES})
        for number, target in enumerate(targets)
    ]
    replies = [ModelOutput.from_content("mockllm/model", output) for output in outputs]
    for reply in replies:
        reply.usage = ModelUsage()  # else tokens are counted by a file of another server
    task = Task(dataset=samples, scorer=scorer, name="warranty", epochs=epochs)
    model = get_model("mockllm/model", custom_outputs=replies)
    (log,) = eval(task, model=model, log_dir=str(folder), display="none", max_samples=1)
    assert log.status == "success", log.error
    return log


def test_answers_of_two_models_are_scored_and_compared(tmp_path: Path) -> None:
    outputs = {"good": [SUPPORTED] * 12, "bad": [*[UNSUPPORTED] * 11, ""]}
    for name, replies in outputs.items():
        log = run_task(tmp_path / name, replies, ["24"] * 12, faithfulness())
        assert log.results is not None
        assert (log.results.scores[0].metrics["mean"].value > 0.5) == (name == "good")
        write_run(log.location, tmp_path / "runs" / name)
    runs = find_runs(tmp_path / "runs" / "*")
    assert not [problem for run in runs for problem in run.problems]
    rates = {run.name: run.metrics["test/warranty/critic_rate"] for run in runs}
    assert (rates["good"].value, rates["bad"].value, rates["bad"].n) == (0.0, 1.0, 11)
    (pair,) = compare_runs(runs, num_resamples=50).pairs
    assert pair.num_rows == 12 and abs(pair.differences["critic_rate"].value) == 1.0
    assert pair.differences["critic_rate"].p_value < 0.01


def test_models_that_judge_are_compared_by_their_labels(tmp_path: Path) -> None:
    right, wrong = [f"It is {label}." for label in LABELS], ["Faithful"] * 11 + ["faithful, hallucinated"]
    for name, outputs in {"right": right, "wrong": wrong}.items():
        log = run_task(tmp_path / name, outputs, LABELS, match("any"))
        write_run(log.location, tmp_path / "runs" / name, scorer="match")
    first, second = sorted(find_runs(tmp_path / "runs" / "*"), key=lambda run: run.name)
    assert first.metrics["test/warranty/macro_f1"].value == 1
    assert second.metrics["test/warranty/accuracy"].value == 0.5
    (pair,) = compare_runs([first, second], num_resamples=50).pairs
    assert pair.mcnemar is not None and (pair.mcnemar.first_alone, pair.mcnemar.second_alone) == (6, 0)


def test_epochs_of_a_sample_are_one_group(tmp_path: Path) -> None:
    log = run_task(tmp_path, [SUPPORTED] * 4, ["24"] * 2, faithfulness(threshold=0.0), epochs=2)
    folder = write_run(log.location, tmp_path / "run")
    (run,) = find_runs(folder)
    assert run.metrics["test/warranty/critic_rate"].value == 1  # by the threshold
    comparison = compare_runs([run])
    assert sorted(comparison.sets[0].test_set.examples) == ["s0", "s0:2", "s1", "s1:2"]
    assert {one.group for one in comparison.sets[0].test_set.examples.values()} == {"s0", "s1"}


def test_a_log_without_the_score_is_explained(tmp_path: Path) -> None:
    log = run_task(tmp_path, ["a"], ["a"], match())
    with pytest.raises(UserError, match=r"no sample has the score 'faithfulness'(.|\n)*set scorer to match"):
        write_run(log.location, tmp_path / "run")
    with pytest.raises(UserError, match="'match' has no label or probability"):
        write_run(log.location, tmp_path / "run", scorer="match")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").touch()
    with pytest.raises(UserError, match="is not empty"):
        write_run(log.location, tmp_path / "run", scorer="match")
    with pytest.raises(UserError, match="the log cannot be read"):
        write_run(tmp_path / "none.eval", tmp_path / "run")


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reply = ModelOutput.from_content("mockllm/model", SUPPORTED)
    reply.usage = ModelUsage()
    samples = [Sample(id="s", input=QUESTION, target="24", metadata={"context": PASSAGES})]
    run_example("inspect_logs", samples=samples, model=get_model("mockllm/model", custom_outputs=[reply]))
    assert (tmp_path / "runs" / "a" / "metrics.json").is_file()
