"""Features of models, which are kept by the model's content."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from faithkit.errors import UserError
from faithkit.files.model_folder import CARD
from faithkit.records import Example
from faithkit_workflows.domains import features as module
from faithkit_workflows.domains.features import Features, model_key
from tests.tiny import write_bert


def test_a_model_is_identified_by_its_files(tiny_bert: Path, tmp_path: Path) -> None:
    key = model_key(str(tiny_bert))
    copy = Path(shutil.copytree(tiny_bert, tmp_path / "run" / "hf"))
    (copy / CARD).write_text("the model card is not part of the model")
    assert model_key(str(copy)) == model_key(str(tmp_path / "run")) == key
    assert model_key(str(write_bert(tmp_path / "other" / "hf", seed=1))) != key
    (copy / "tokenizer_config.json").write_text("{}")
    assert model_key(str(copy)) != key
    assert model_key("someone/some-model") == "someone/some-model"
    with pytest.raises(UserError, match="no such run or folder"):
        model_key("./nowhere")


def test_features_are_computed_again_for_another_model_at_the_same_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def compute_cosines(encoder: str, knowledge: list[str], responses: list[str]) -> np.ndarray:
        calls.append(encoder)
        return np.zeros(len(responses))

    monkeypatch.setattr(module, "compute_cosines", compute_cosines)
    rows = [Example(id="1", source="s", split="t", group="g", knowledge="k", response="r")]
    folder = tmp_path / "hf"
    for seed, times in ((0, 1), (1, 2)):
        write_bert(folder, seed=seed)
        for _ in range(2):
            Features(tmp_path / "kept", encoder=str(folder)).compute("d", rows, None)
            assert len(calls) == times
