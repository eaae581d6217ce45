"""Options of a training: one dataclass a block, checked with the key in the error; old runs are still read."""

from pathlib import Path
from typing import Any

import pytest

from critic.sequence.options import CriticOptions
from critic.sequence.task import CriticTask
from critic.tagger.options import TaggerOptions
from faithkit.errors import UserError
from faithkit.training.training_options import OptimizerOptions, read_options
from faithkit_workflows.train import build_task
from tests.running import plain_config

OPTIMIZER = {"lr": 1e-3, "weight_decay": 0.01, "warmup": 0.1, "schedule": "linear"}
# The options that a task's own block named, every one, before it was given the whole `model` block.
OLD_CRITIC = (
    "weights max_length order label_smoothing support_weight freeze_embeddings dropout gradient_checkpointing "
    "threshold_aim"
).split()
OLD_TAGGER = (
    "weights max_length max_windows typed packed positive_weight focal_gamma support_weight freeze_embeddings dropout "
    "attention_dropout gradient_checkpointing evidence threshold_aim"
).split()


@pytest.mark.parametrize(("model", "keys"), [("critic", OLD_CRITIC), ("tagger", OLD_TAGGER)])
def test_a_configuration_of_before_gives_the_same_task(model: str, keys: list[str], tiny_bert: Path) -> None:
    changes = ["model.support_weight=0.25", "optimizer.lr=0.125", "model.threshold_aim=argmax"]
    changes += ["model.span_weight=0"] if model == "critic" else []  # it came later: off in a run of before
    config = plain_config("train", f"model={model}", f"model.weights={tiny_bert}", *changes)
    task = build_task(config)
    block = config["model"]
    block["task"] = {**block["task"], **{key: block[key] for key in keys}}
    old = build_task({"model": {"name": model, "task": block["task"]}})
    assert old.options == task.options and old.optimizer == task.optimizer  # type: ignore[attr-defined]
    assert task.options.support_weight == 0.25 and task.optimizer.lr == 0.125  # type: ignore[attr-defined]


def test_the_tasks_own_block_wins_over_the_model_block(tiny_bert: Path) -> None:
    task = CriticTask(optimizer=OPTIMIZER, model={"weights": "elsewhere", "num_epochs": 3}, weights=str(tiny_bert))
    assert task.options.weights == str(tiny_bert)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (CriticOptions, {"label_smoothing": 1.0}, "model.label_smoothing is 1.0"),
        (CriticOptions, {"support_weight": -1}, "model.support_weight is -1"),
        (CriticOptions, {"support_wait": 1}, "model.task has no option support_wait"),
        (CriticOptions, {"threshold_aim": "luck"}, "luck"),
        (TaggerOptions, {"positive_weight": 0}, "model.positive_weight is 0"),
        (TaggerOptions, {"focal_gamma": -0.5}, "model.focal_gamma is -0.5"),
        (TaggerOptions, {"support_weight": float("nan")}, "model.support_weight is nan"),
    ],
)
def test_a_wrong_option_is_named_by_its_key(kind: type, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_options(kind, {"weights": "w"}, options)
    with pytest.raises(UserError, match="weights is not set"):
        read_options(kind, {}, {})


@pytest.mark.parametrize(
    ("name", "value"), [("weight_decay", -1), ("warmup", 1.5), ("layer_decay", 0), ("head_lr", 0.0)]
)
def test_a_wrong_option_of_the_optimizer_is_named_by_its_key(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"optimizer.{name} is"):
        OptimizerOptions(**{**OPTIMIZER, name: value})
