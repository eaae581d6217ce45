"""A tagger's run becomes a folder that plain transformers loads, with a card whose code gives our probabilities."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critic import Tagger
from critic.export import export
from critic.logistic import sigmoid
from critic.requests import Request
from critic.tagger.settings import tagger_labels

CONTEXT, ANSWER = "the river is long and the city is old", "the king plays music in the city"


@pytest.fixture(scope="module")
def exported(trained_tagger: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "out"
    assert export(str(trained_tagger), str(folder)).difference <= 1e-5
    return folder


def test_the_cards_own_code_gives_our_probabilities(exported: Path, trained_tagger: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (exported / "README.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {"FOLDER": str(exported), "context": CONTEXT, "answer": ANSWER}
    exec(code, scope)  # noqa: S102 - our own card
    theirs = scope["probability"][scope["in_answer"]].detach().numpy()
    tagger = Tagger.load(str(trained_tagger))
    odds, _, _ = tagger.odds([Request(CONTEXT, "", ANSWER)])
    fitted = tagger.calibration  # the card's code looks at each token by itself, and has four digits
    np.testing.assert_allclose(theirs, sigmoid(fitted.slope * odds + fitted.bias), atol=1e-3)
    assert list(scope["model"].config.id2label.values()) == list(tagger_labels(True))


def test_the_card_names_data_metrics_thresholds_and_limits(exported: Path) -> None:
    card = (exported / "README.md").read_text()
    wanted = (
        "span tagger",
        "data: embedded-ragtruth (",
        "char_f1",
        "token-classification",
        "## Limits",
        "Fingerprints",
    )
    for part in (*wanted, "Characters are marked from", "chosen for f1"):
        assert part in card, part


def test_an_export_tags_as_the_run_does_and_can_be_exported_again(
    exported: Path, trained_tagger: Path, tmp_path: Path
) -> None:
    export(str(exported), str(tmp_path / "two"))
    first, *others = (
        Tagger.load(str(folder)).predict([CONTEXT, "music"], [ANSWER, "it is"])
        for folder in (trained_tagger, exported, tmp_path / "two")
    )
    assert all(other == first for other in others)
    assert "faithkit_packed" not in (tmp_path / "two" / "config.json").read_text()
