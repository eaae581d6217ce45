"""A run's folder is taken up again as it was, also where its classes have moved since."""

from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_method

from faithkit.errors import UserError
from faithkit.files.resumed_config import MOVED
from faithkit.files.saved_config import read_config
from tests.running import opened
from workflows.train import MAY_CHANGE


def resume(folder: Path, *overrides: str) -> dict[str, Any]:
    with opened("train", f"resume={folder}", *overrides, may_change=MAY_CHANGE) as (_, config):
        return config


def write_run(folder: Path, *overrides: str) -> Path:
    with opened("train", f"run_dir={folder}", *overrides):
        pass
    return folder


def test_a_run_of_before_names_its_classes_by_their_names_of_today(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "model=t5", "control=ctrl")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("workflows.entailment", "critic.entailment"))
    assert "critic.entailment.load_entailment" in config.read_text()
    loader = resume(folder)["control"]["load"]
    assert loader == {"_target_": "workflows.entailment.load_entailment", "_partial_": True}


@pytest.mark.parametrize("name", MOVED.values())
def test_every_name_of_today_is_there(name: str) -> None:
    assert callable(get_method(name))


def test_a_resumed_run_keeps_its_configuration_but_for_what_may_change(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "seed=7", "model.num_epochs=3")
    config = resume(folder, "callbacks.num_examples=9", "model.num_epochs=3")
    assert config["seed"] == 7 and config["model"]["num_epochs"] == 3 and config["callbacks"]["num_examples"] == 9
    with pytest.raises(UserError, match=r"data.name=begin \(it began with name=embedded\)"):
        resume(folder, "data=begin")


def test_a_run_of_before_gets_the_defaults_of_newer_settings(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("extensions: []\n", ""))
    assert "extensions" not in read_config(config) and resume(folder)["extensions"] == []
