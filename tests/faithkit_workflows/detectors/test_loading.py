"""A detector is loaded by the kind that its folder names."""

from pathlib import Path
from typing import Any

import pytest

from critic import Critic, Tagger
from faithkit.detector import JUDGE
from faithkit.errors import UserError
from faithkit_workflows.detectors.loading import load_detector
from faithkit_workflows.settings.engines import check_checkpoint
from tests.critic.tagger.conftest import tagger_folder, write_tagger  # noqa: F401
from tests.data_modules.examples import example

OPTIONS: dict[str, Any] = {"precision": "32-true", "batch_tokens": None}


def test_the_folder_says_which_detector_it_holds(trained: Path, tagger_folder: Path) -> None:  # noqa: F811
    critic, tagger = (load_detector(str(path), **OPTIONS) for path in (trained, tagger_folder))
    assert isinstance(critic, Critic) and isinstance(tagger, Tagger)
    rows = [example(response="the king"), example(response="it is long")]
    for detector in (critic, tagger):
        predictions = list(detector.predict_examples(rows))
        assert [p.id for p in predictions] == [e.id for e in rows] and all(p.label for p in predictions)


def test_a_generator_is_no_detector(tiny_t5: Path) -> None:
    with pytest.raises(UserError, match="is a generator; a critic, tagger or judge is needed"):
        load_detector(str(tiny_t5), **OPTIONS)
    with pytest.raises(UserError, match="neither checkpoint nor predictions"):
        load_detector(None, **OPTIONS)


@pytest.mark.parametrize("checkpoint", ["critic:runs/x", "tagger:runs/x", "judge:runs/x"])
def test_a_kind_trained_here_is_named_by_its_folder_alone(checkpoint: str) -> None:
    (problem,) = check_checkpoint("checkpoint", checkpoint, JUDGE)
    assert problem.problem == "no such run or folder"
