"""A run's folder is taken up again as it was, also where its classes have moved since."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_method
from omegaconf import OmegaConf

from faithkit.cli import CONFIGS
from faithkit.errors import UserError
from faithkit.files.run_folder import MOVED, open_run


@pytest.fixture(autouse=True)
def hydra_of_a_script() -> Iterator[None]:
    """Cleans up what Hydra knows of a script."""
    yield
    HydraConfig.instance().cfg = None
    GlobalHydra.instance().clear()


def resume(folder: Path, *overrides: str) -> dict[str, object]:
    arguments = [f"resume={folder}", *overrides]
    with initialize_config_dir(config_dir=str(CONFIGS), version_base="1.3"):
        HydraConfig.instance().set_config(compose("train", overrides=arguments, return_hydra_config=True))
        return open_run(compose("train", overrides=arguments), "critic")[1]


def write_run(folder: Path, *overrides: str) -> Path:
    with initialize_config_dir(config_dir=str(CONFIGS), version_base="1.3"):
        text = OmegaConf.to_yaml(compose("train", overrides=list(overrides)), resolve=True)
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    return folder


def test_a_run_of_before_names_its_classes_by_their_names_of_today(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "model=t5", "control=ctrl")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("workflows.entailment", "critic.entailment"))
    assert "critic.entailment.load_entailment" in config.read_text()
    loader = resume(folder)["control"]["load"]  # type: ignore[index]
    assert loader == {"_target_": "workflows.entailment.load_entailment", "_partial_": True}


@pytest.mark.parametrize("name", MOVED.values())
def test_every_name_of_today_is_there(name: str) -> None:
    assert callable(get_method(name))


def test_a_resumed_run_keeps_its_configuration_but_for_single_values(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "seed=7", "model.num_epochs=3")
    config = resume(folder, "model.num_epochs=5")
    assert config["seed"] == 7 and config["model"]["num_epochs"] == 5  # type: ignore[index]
    with pytest.raises(UserError, match="cannot change a resumed run"):
        resume(folder, "data=begin")
