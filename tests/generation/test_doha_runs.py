"""`model=doha` from the command line: every objective, control tokens, two stages, export and answers."""

import json
from pathlib import Path

import pytest
import torch

from faithkit.errors import UserError
from faithkit.files.model_folder import read_sidecar
from generation import Generator
from generation.export import export
from tests.faithkit_workflows.test_generate import answers, generate_here
from tests.running import SMALL_GENERATOR, compose, train_here

NEGATIVES = "data.negatives={kinds: [verbatim, other], num: 2}"


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


@pytest.mark.parametrize(
    "decoding", ["greedy", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nucleus", "beam"))]
)
def test_what_it_writes_does_not_depend_on_the_batch(decoding: str, trained: Path, tmp_path: Path) -> None:
    asked = [f"checkpoint={trained}", f"decoding={decoding}", "num_rows=8", "decoding.max_new_tokens=8"]
    for name, size in (("one", 1), ("many", 8)):
        generate_here(*asked, f"run_dir={tmp_path / name}", f"batch_size={size}", "num_examples=0")
    assert answers(tmp_path / "one") == answers(tmp_path / "many")


@pytest.mark.slow
@pytest.mark.parametrize("objective", [["loss_truncation", "objective.window=8"], ["infonce", NEGATIVES]])
def test_every_objective_trains_it(objective: list[str], options: list[str], tmp_path: Path) -> None:
    name, *further = objective
    train_here(f"run_dir={tmp_path / 'run'}", *options, f"objective={name}", *further)
    assert 1 < perplexity(tmp_path / "run", "embedded-faithdial") < 1000


@pytest.mark.slow
def test_a_second_stage_goes_on_from_the_first(options: list[str], tmp_path: Path) -> None:
    train_here(f"run_dir={tmp_path / 'run'}", *options, "data=wow_then_faithdial", "data.num_rows=16")
    first, second = (
        torch.load(tmp_path / "run" / stage / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
        for stage in ("stage1-wow", ".")
    )
    assert first.keys() == second.keys()
    name = "model.model.decoder.layers.0.knowledge_attn.q_proj.weight"
    assert (first[name] - second[name]).abs().max() < 0.05 and not torch.equal(
        first[name], first[name.replace("knowledge", "encoder")]
    )


def test_at_paper_scale_it_is_bart_base() -> None:
    cfg = compose("train", "model=doha", "scale=paper", "objective=loss_truncation", "control=ctrl")
    assert cfg.model.weights == "facebook/bart-base" and cfg.model.architecture == "doha"
    assert cfg.control.entailment and cfg.optimizer.lr == 6.25e-5


def test_weights_of_another_family_are_told(language_models: dict[str, Path], tmp_path: Path) -> None:
    weights = f"model.weights={language_models['t5']}"
    with pytest.raises(UserError, match="is no doha model"):
        train_here(f"run_dir={tmp_path / 'run'}", "model=doha", weights, *SMALL_GENERATOR)
