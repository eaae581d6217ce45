"""`model=doha` from the command line: every objective, control tokens, two stages, export and answers."""

import json
from pathlib import Path

import pytest

from faithkit.files.model_folder import read_sidecar
from generation import Generator
from generation.export import export
from tests.running import SMALL_GENERATOR, train_here


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A DoHA of plain BART's weights, with places for a whole turn."""
    from tests.tiny import write_language_model

    folder = write_language_model(tmp_path_factory.mktemp("bart"), "bart", num_places=512)
    return ["model=doha", f"model.weights={folder}", *SMALL_GENERATOR]


@pytest.fixture(scope="module")
def trained(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doha") / "run"
    train_here(f"run_dir={folder}", *options, "control=ctrl", "callbacks.num_examples=2", "model.num_epochs=2")
    return folder


def perplexity(folder: Path, dataset: str) -> float:
    metrics = json.loads((folder / "metrics.json").read_text())["metrics"]
    return float(metrics[f"test/{dataset}/perplexity"]["value"])


def test_a_run_leaves_a_folder_of_its_own_kind_that_answers(trained: Path) -> None:
    sidecar = read_sidecar(trained / "hf")
    assert sidecar is not None and sidecar.layout["architecture"] == "doha"
    assert json.loads((trained / "hf" / "config.json").read_text())["model_type"] == "doha"
    generator = Generator.load(str(trained))
    assert type(generator.engine.model).__name__ == "DohaForConditionalGeneration"  # type: ignore[attr-defined]
    assert isinstance(generator.reply(knowledge="The river is long.", history=["Is it long?"]), str)


def test_an_exported_model_is_proved_in_its_own_class_and_its_card_says_so(trained: Path, tmp_path: Path) -> None:
    report = export(str(trained), str(tmp_path / "out"))
    assert report.difference <= 1e-5 and report.reloaded_in == "faithkit's DohaForConditionalGeneration"
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Plain transformers cannot load this model" in card and "Generator.load(FOLDER)" in card
    assert Generator.load(str(tmp_path / "out")).settings == Generator.load(str(trained)).settings
