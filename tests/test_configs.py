"""Every choice composes, and what it names can be built."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from data_modules.build import build_source, build_sources
from data_modules.sources import SOURCES
from tests.running import ROOT, compose


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / "configs" / group).glob("[!_]*.yaml"))


@pytest.mark.parametrize("data", choices("data"))
def test_every_dataset_composes_and_its_sources_are_built(data: str, tmp_path: Path) -> None:
    cfg = OmegaConf.to_container(compose("train", f"data={data}"), resolve=True)
    assert isinstance(cfg, dict)
    sources = build_sources([{**part, "path": str(tmp_path)} for part in cfg["data"]["parts"]])
    assert all(weight > 0 for _, weight in sources)


@pytest.mark.parametrize("scale", choices("scale"))
@pytest.mark.parametrize("trainer", choices("trainer"))
@pytest.mark.parametrize("model", choices("model"))
def test_every_model_composes_at_every_scale_on_every_trainer(model: str, trainer: str, scale: str) -> None:
    cfg = compose("train", f"model={model}", f"trainer={trainer}", f"scale={scale}")
    resolved = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(resolved, dict) and resolved["model"]["name"] == model


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_every_experiment_composes(experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = compose("train", f"experiment={experiment}", "data_dir=/somewhere")
    assert OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)


@pytest.mark.parametrize("benchmark", choices("benchmark"))
def test_every_benchmark_composes(benchmark: str, tmp_path: Path) -> None:
    cfg = OmegaConf.to_container(compose("evaluate", f"benchmark={benchmark}"), resolve=True)
    assert isinstance(cfg, dict)
    if benchmark != "transfer":
        options = cfg["benchmark"]["options"]
        assert build_source(cfg["benchmark"]["name"], str(tmp_path), **options).name == benchmark


def test_paper_scale_is_the_papers_recipe() -> None:
    cfg = compose("train", "scale=paper", "trainer=ddp")
    assert (cfg.model.weights, cfg.optimizer.lr, cfg.optimizer.weight_decay) == ("FacebookAI/roberta-large", 1e-5, 0.1)
    assert (cfg.model.batch_size, cfg.model.num_epochs, cfg.callbacks.patience) == (16, 10, 5)
    assert (cfg.model.max_length, cfg.optimizer.warmup, cfg.model.gradient_clip_val) == (512, 0.08, 1.0)


def test_the_command_line_wins_over_model_and_scale() -> None:
    cfg = compose("train", "scale=paper", "optimizer.lr=3e-5", "model.batch_size=4")
    assert cfg.optimizer.lr == 3e-5 and cfg.data.batch_size == 4


def test_every_dataset_has_a_config_and_a_benchmark() -> None:
    assert set(choices("data")) == set(SOURCES) | {"mix"}
    assert set(choices("benchmark")) == set(SOURCES) | {"transfer"}
