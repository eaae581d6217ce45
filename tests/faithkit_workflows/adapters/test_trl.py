"""The reward in a step of TRL's trainer."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit_workflows.adapters.trl import FaithfulnessReward
from tests.faithkit_workflows.adapters.cases import PASSAGES, QUESTION, SUPPORTED, UNSUPPORTED, run_example


def test_supported_completions_are_paid_and_empty_ones_are_not() -> None:
    columns = {"prompts": [QUESTION] * 3, "context": [PASSAGES] * 3}
    first, second, empty = FaithfulnessReward()(completions=[SUPPORTED, UNSUPPORTED, " "], **columns)
    assert first is not None and second is not None and first > 0.5 > second > 0 == empty
    messages = [[{"role": "assistant", "content": answer}] for answer in (SUPPORTED, UNSUPPORTED, None)]
    assert FaithfulnessReward(threshold=0.5)(completions=messages, **columns) == [1, 0, 0]
    with pytest.raises(UserError, match=r"no column 'passages'(.|\n)*they have context"):
        FaithfulnessReward(context="passages")(completions=[SUPPORTED] * 3, **columns)


def test_the_trainer_takes_a_step_with_it(language_models: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs make adapters TOOL=trl")
    from datasets import Dataset
    from trl import GRPOConfig

    sizes = {"max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 8}
    quiet = {"logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True, "bf16": False}
    config = GRPOConfig(output_dir=str(tmp_path), **sizes, **quiet)
    data = Dataset.from_list([{"prompt": QUESTION, "context": PASSAGES}] * 4)
    given = {"model": str(language_models["gpt2"]), "dataset": data, "config": config}
    trainer = run_example("trl", **given)["trainer"]
    trainer.train()
    assert 0 <= trainer.state.log_history[0]["rewards/faithfulness/mean"] <= 1
