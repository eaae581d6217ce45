"""The harness runs the tasks from their files, with a tiny model."""

from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit_workflows.adapters.lm_eval import tasks

BENCHMARKS = ("diahalu", "faithdial", "halludial", "ragtruth")


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_rows_have_the_judges_prompt_and_the_label(benchmark: str) -> None:
    rows = tasks.load_rows(benchmark, 30, **{benchmark: "embedded"})["test"]
    assert len(rows) == 30 and set(rows["label"]) == {0, 1} and len(set(rows["id"])) == 30
    assert all("Answer with one word, Yes or No." in prompt for prompt in rows["prompt"])
    with pytest.raises(UserError, match=f"files of {benchmark} are not named"):
        tasks.load_rows(benchmark)


def test_the_likelier_word_is_the_verdict() -> None:
    read = [tasks.read_verdict({"label": label}, [(-1.0, False), (-1.0 + odds, False)]) for label, odds in
            [(1, 2.0), (1, -0.5), (0, -1.0), (0, -0.7)]]  # fmt: skip
    assert [one["acc"] for one in read] == [1, 0, 1, 1]
    assert tasks.auroc([one["auroc"] for one in read]) == 1
    assert tasks.macro_f1([one["macro_f1"] for one in read]) == pytest.approx((2 / 3 + 4 / 5) / 2)


def test_the_harness_runs_all_tasks(language_models: dict[str, Path]) -> None:
    pytest.importorskip("lm_eval", reason="needs make adapters TOOL=lm_eval")
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    metadata: dict[str, Any] = {**dict.fromkeys(BENCHMARKS, "embedded"), "num_rows": 6}
    manager = TaskManager(include_path=str(Path(tasks.__file__).parent), metadata=metadata)
    options = {"model_args": f"pretrained={language_models['gpt2']},device=cpu", "batch_size": 4}
    done = simple_evaluate("hf", tasks=["faithkit"], task_manager=manager, metadata=metadata, **options)
    assert done is not None
    for benchmark in BENCHMARKS:
        found = done["results"][f"faithkit_{benchmark}"]
        assert 0 <= found["acc,none"] <= 1 and 0 <= found["macro_f1,none"] <= 1
        assert len(done["samples"][f"faithkit_{benchmark}"]) == 6
    assert 0 <= done["results"]["faithkit"]["acc,none"] <= 1
