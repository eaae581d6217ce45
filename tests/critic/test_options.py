"""What cannot be trained is said before: options by their keys, and rows whose labels teach or choose nothing."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from critic.encoder_module import check_labels
from critic.options import CriticOptions, TaggerOptions
from data_modules.encoding.encoder import Subset
from faithkit.errors import UserError
from faithkit.training.training_options import OptimizerOptions, read_options


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (CriticOptions, {"label_smoothing": 1.0}, "model.label_smoothing is 1.0"),
        (CriticOptions, {"support_weight": -1}, "model.support_weight is -1"),
        (CriticOptions, {"threshold_aim": "luck"}, "luck"),
        (CriticOptions, {"evidence": "words_and_tokens"}, "set model.freeze_encoder=true"),
        (CriticOptions, {"evidence_alone": True, "freeze_encoder": True}, "set model.evidence=words_and_tokens"),
        (TaggerOptions, {"token_support": True, "typed": True}, "set model.typed=false"),
        (TaggerOptions, {"positive_weight": 0}, "model.positive_weight is 0"),
        (TaggerOptions, {"focal_gamma": -0.5}, "model.focal_gamma is -0.5"),
        (TaggerOptions, {"support_weight": float("nan")}, "model.support_weight is nan"),
        (OptimizerOptions, {"weight_decay": -1}, "optimizer.weight_decay is"),
        (OptimizerOptions, {"warmup": 1.5}, "optimizer.warmup is"),
        (OptimizerOptions, {"layer_decay": 0}, "optimizer.layer_decay is"),
        (OptimizerOptions, {"head_lr": 0.0}, "optimizer.head_lr is"),
    ],
)
def test_a_wrong_option_is_named_by_its_key(kind: type, options: dict[str, Any], words: str) -> None:
    needed = {"lr": 1e-3, "weight_decay": 0.01, "warmup": 0.1, "schedule": "linear"}
    with pytest.raises(UserError, match=words):
        read_options(kind, {**(needed if kind is OptimizerOptions else {"weights": "w"}), **options})


BOTH, NONE = [0, 1, 0, 1], [-1, -1, -1]


def subset(labels: Sequence[int], targets: Sequence[float] | None = None) -> Subset:
    columns = {"label": np.array(labels, np.int8)}
    if targets is not None:
        columns["target"] = np.array(targets, np.float32)
    return Subset("rows", SimpleNamespace(columns=columns), np.arange(len(labels)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("train", "validation", "words"),
    [
        (subset([1, 1]), subset(BOTH), "all 2 labelled training examples are hallucinated"),
        (subset(NONE), subset(BOTH), "no training example has a label"),
        (subset(BOTH), subset(NONE), "no validation example has a label"),
        (subset(BOTH), subset(NONE, [0.1, 0.9, 0.5]), "no validation example has a label"),
    ],
)
def test_labels_that_cannot_teach_or_choose_are_refused(train: Subset, validation: Subset, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        check_labels({"train": [train], "validation": [validation]})
    assert caught.value.hint


def test_weak_labels_teach_and_validation_of_one_class_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check_labels({"train": [subset(NONE, [0.1, 0.9, 0.2])], "validation": [subset(BOTH)]})
    assert not caplog.messages
    check_labels({"train": [subset(BOTH)], "validation": [subset([0, 0, -1])]})
    assert "all 2 labelled validation examples are faithful" in caplog.text
