"""A run becomes a folder that plain transformers loads, with a card that says what it is."""

from pathlib import Path

import pytest

from critic import Critic
from critic.export import export
from faithkit.errors import UserError


def test_plain_transformers_gives_the_same_probability(trained: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    report = export(str(trained), str(tmp_path / "out"))
    assert report.difference <= 1e-5
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert model.config.id2label == {0: "faithful", 1: "hallucinated"}
    critic = Critic.load(str(trained))
    inputs = tokenizer("the river is long", "it is long", return_tensors="pt")
    with torch.inference_mode():
        logits = model(**inputs).logits[0]
    ours = critic.score("the river is long", "it is long").probability
    assert float(torch.sigmoid((logits[1] - logits[0]) / critic.calibration.temperature)) == pytest.approx(
        ours, abs=1e-5
    )


def test_an_export_can_be_scored_and_exported_again(trained: Path, tmp_path: Path) -> None:
    export(str(trained), str(tmp_path / "one"))
    export(str(tmp_path / "one"), str(tmp_path / "two"))
    first, second = (Critic.load(str(tmp_path / name)).score("a river", "it is long") for name in ("one", "two"))
    assert first == second


def test_nothing_is_overwritten_and_nothing_is_left_behind(trained: Path, tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(UserError, match="not empty"):
        export(str(trained), str(tmp_path / "full"))
    with pytest.raises(UserError, match=r"no faithkit\.json in this folder"):
        export(str(tiny_bert), str(tmp_path / "never"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]
