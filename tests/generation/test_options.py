"""Options of a generator's training: taken of the `model` block, or of the task's own block as in older runs."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit_workflows.train import build_task
from generation.options import GeneratorOptions
from generation.task import GeneratorTask
from tests.running import plain_config

# The options that a task's own block named, every one, before it was given the whole `model` block.
OLD_KEYS = (
    "weights max_length max_response_length max_history packed dropout attention_dropout gradient_checkpointing"
).split()


@pytest.mark.parametrize(("model", "folder"), [("t5", "tiny_t5"), ("gpt2", "tiny_llama")])
def test_a_configuration_of_before_gives_the_same_task(model: str, folder: str, request: pytest.FixtureRequest) -> None:
    weights: Path = request.getfixturevalue(folder)
    changes = [f"model.weights={weights}", "model.max_history=3", "model.dropout=0.25", "model.max_length=96"]
    config = plain_config("train", f"model={model}", *changes, "model.max_response_length=32")
    task = build_task(config)
    block = config["model"]
    old = build_task({"model": {"name": model, "task": {**block["task"], **{key: block[key] for key in OLD_KEYS}}}})
    assert isinstance(task, GeneratorTask) and isinstance(old, GeneratorTask)
    assert old.options == task.options and old.optimizer == task.optimizer
    assert old.encoder.fingerprint() == task.encoder.fingerprint()
    assert (task.options.max_history, task.options.dropout, task.options.packed) == (3, 0.25, model == "gpt2")


def test_an_unknown_architecture_is_explained() -> None:
    with pytest.raises(UserError, match=r"model\.architecture is 'tree'"):
        GeneratorOptions(architecture="tree", weights="x", max_length=64, max_response_length=16)
