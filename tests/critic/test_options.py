"""Options of a training: one dataclass a block, checked with the key in the error."""

from typing import Any

import pytest

from critic.sequence.options import CriticOptions
from critic.tagger.options import TaggerOptions
from faithkit.errors import UserError
from faithkit.training.training_options import OptimizerOptions, read_options

OPTIMIZER = {"lr": 1e-3, "weight_decay": 0.01, "warmup": 0.1, "schedule": "linear"}


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
    ],
)
def test_a_wrong_option_is_named_by_its_key(kind: type, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_options(kind, {"weights": "w", **options})
    with pytest.raises(UserError, match="weights is not set"):
        read_options(kind, {})


@pytest.mark.parametrize(
    ("name", "value"), [("weight_decay", -1), ("warmup", 1.5), ("layer_decay", 0), ("head_lr", 0.0)]
)
def test_a_wrong_option_of_the_optimizer_is_named_by_its_key(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"optimizer.{name} is"):
        OptimizerOptions(**{**OPTIMIZER, name: value})
