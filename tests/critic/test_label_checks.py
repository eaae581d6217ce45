"""Rows without labels: what they cannot teach or choose is said before training, and they take no other row's place."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from critic.encoder_module import check_labels
from data_modules.encoding.encoder import Subset
from faithkit.errors import UserError

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
def test_what_labels_cannot_teach_or_choose_is_refused_before_training(
    train: Subset, validation: Subset, words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        check_labels({"train": [train], "validation": [validation]})
    assert caught.value.hint


def test_weak_labels_teach_and_validation_of_one_class_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check_labels({"train": [subset(NONE, [0.1, 0.9, 0.2])], "validation": [subset(BOTH)]})
    assert not caplog.messages
    check_labels({"train": [subset(BOTH)], "validation": [subset([0, 0, -1])]})
    assert "all 2 labelled validation examples are faithful" in caplog.text
