"""A tagger is loaded from what is one, and what is wrong with a folder is said."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from critic import Critic, Tagger
from critic.tagger.span_calibration import SpanCalibration
from faithkit.errors import UserError
from faithkit.records import SPAN_TYPES, UNTYPED
from faithkit_workflows.detectors.loading import kind_of, load_detector
from tests.critic.tagger.test_predictor import ANSWER, CONTEXT
from tests.model_folders import make_foreign


def test_each_kind_refuses_the_others_folder(tagger_folder: Path, trained: Path, tmp_path: Path) -> None:
    assert (kind_of(str(tagger_folder)).name, kind_of(str(trained)).name) == ("tagger", "critic")
    with pytest.raises(UserError, match=r"is a 'critic', and a 'tagger' is needed(.|\n)*run of a tagger"):
        Tagger.load(str(trained))
    with pytest.raises(UserError, match=r"is a 'tagger', and a 'critic' is needed"):
        Critic.load(str(tagger_folder))
    loaded = load_detector(str(tagger_folder), precision="32-true", batch_tokens=None)
    assert isinstance(loaded, Tagger)
    assert isinstance(load_detector(str(trained), precision="32-true", batch_tokens=None), Critic)


@pytest.mark.parametrize("typed", [True, False])
def test_weights_of_another_making_are_read_by_their_labels(write_tagger: Callable[..., Path], typed: bool) -> None:
    folder = write_tagger(typed=typed, sidecar=False)
    assert kind_of(str(folder)).name == "tagger"
    tagger = Tagger.load(str(folder))
    assert tagger.calibration == SpanCalibration() and tagger.encoder.max_length == 126
    tagged = tagger.predict(CONTEXT[0], ANSWER[0])
    assert all(span.label in ((*SPAN_TYPES,) if typed else (UNTYPED,)) for span in tagged.spans)


def test_weights_that_are_no_tagger_are_refused(
    tiny_bert: Path, trained: Path, write_tagger: Callable[..., Path], tmp_path: Path
) -> None:
    critic = make_foreign(Path(shutil.copytree(trained / "hf", tmp_path / "critic")))
    for folder, problem in (
        (tiny_bert, "a token classifier is needed"),
        (critic, "a token classifier is needed"),
        (write_tagger(sidecar=False, labels=("O", "B-PER", "I-PER")), "its labels are O, B-PER, I-PER"),
        (tmp_path / "nowhere" / "at" / "all", "no such run or folder"),
    ):
        with pytest.raises(UserError, match=problem):
            Tagger.load(str(folder))
