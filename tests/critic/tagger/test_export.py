"""A tagger's run becomes a folder that plain transformers loads, with a card whose code gives our probabilities."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critic import Tagger
from critic.export import export
from critic.runtime import Request
from critic.tagger.span_calibration import tagger_labels
from faithkit.calibration import sigmoid
from tests.running import train_here

CONTEXT, ANSWER = "the river is long and the city is old", "the king plays music in the city"


@pytest.fixture(scope="module")
def exported(trained_tagger: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "out"
    assert export(str(trained_tagger), str(folder)).difference <= 1e-5
    return folder


def run_card(folder: Path) -> dict[str, Any]:
    """Runs the code of a model card, and returns its variables."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {"FOLDER": str(folder), "context": CONTEXT, "answer": ANSWER}
    exec(code, scope)  # noqa: S102 - our own card
    scope["found"] = scope["probability"][scope["in_answer"]].detach().numpy()
    return scope


def test_the_cards_own_code_gives_our_probabilities(exported: Path, trained_tagger: Path) -> None:
    scope, tagger = run_card(exported), Tagger.load(str(trained_tagger))
    odds = tagger.answers([Request(CONTEXT, "", ANSWER)]).odds
    fitted = tagger.calibration  # the card's code looks at each token by itself, and has four digits
    np.testing.assert_allclose(scope["found"], sigmoid(fitted.slope * odds + fitted.bias), atol=1e-3)
    assert list(scope["model"].config.id2label.values()) == list(tagger_labels(True))


def test_a_calibration_of_log_odds_alone_is_in_the_head(tagger_options: list[str], tmp_path: Path) -> None:
    train_here(*tagger_options, f"run_dir={tmp_path / 'run'}", "model.evidence=false", "model.typed=false")
    assert export(str(tmp_path / "run"), str(tmp_path / "out")).difference <= 1e-5
    scope, tagger = run_card(tmp_path / "out"), Tagger.load(tmp_path / "run")
    probability = tagger.calibration.probabilities(tagger.answers([Request(CONTEXT, "", ANSWER)]))
    np.testing.assert_allclose(scope["found"], probability, atol=1e-6)
    assert len(json.loads((tmp_path / "out" / "faithkit.json").read_text())["thresholds"]["head"]) == 2
    predicted = (tmp_path / "run" / "predictions" / "embedded-ragtruth.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in predicted[:8]]
    tagged = [tagger.predict(row["knowledge"], row["response"], row.get("history")) for row in rows]
    assert [one.score for one in tagged] == pytest.approx([row["score"] for row in rows], abs=1e-5)


def test_an_export_tags_as_its_run_and_is_exported_again(exported: Path, trained_tagger: Path, tmp_path: Path) -> None:
    card = (exported / "README.md").read_text()
    assert all(part in card for part in ("data: embedded-ragtruth (", "char_f1", "token-classification", "for f1"))
    export(str(exported), str(tmp_path / "two"))
    first, *others = (
        Tagger.load(str(folder)).predict([CONTEXT, "music"], [ANSWER, "it is"])
        for folder in (trained_tagger, exported, tmp_path / "two")
    )
    assert all(other == first for other in others)
    assert "faithkit_packed" not in (tmp_path / "two" / "config.json").read_text()
