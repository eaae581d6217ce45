"""A detector is loaded by the kind that its folder names; a new kind needs one line in the table."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from critic import Critic, Tagger
from faithkit.errors import UserError
from faithkit.records import Example, Prediction
from faithkit_workflows.detectors.loading import DETECTORS, load_detector
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
    with pytest.raises(UserError, match="'generator' is no detector"):
        load_detector(str(tiny_t5), **OPTIONS)
    with pytest.raises(UserError, match="neither checkpoint nor predictions"):
        load_detector(None, **OPTIONS)


class Loud:
    """Calls whatever shouts hallucinated."""

    @classmethod
    def load(cls, path: str, *, precision: str, batch_tokens: int | None) -> "Loud":
        return cls()

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        for one in examples:
            yield Prediction(id=one.id, label="hallucinated" if one.response.isupper() else "faithful")


def test_another_kind_is_one_file_and_one_line(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("loud_detector")
    module.Loud = Loud  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "loud_detector", module)
    monkeypatch.setitem(DETECTORS, "loud", ("loud_detector", "Loud"))
    (tmp_path / "config.json").write_text("{}")
    sidecar = json.loads((trained / "hf" / "faithkit.json").read_text())
    (tmp_path / "faithkit.json").write_text(json.dumps({**sidecar, "kind": "loud"}))
    (said,) = load_detector(str(tmp_path), **OPTIONS).predict_examples([example(response="NO")])
    assert said.label == "hallucinated"
