"""Loggers: one or several by name, offline without an account, with what a result depends on."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder, environment
from faithkit.training.loggers import build_loggers
from tests.running import SMALL, train_here


def test_csv_tensorboard_and_offline_wandb_side_by_side(tiny_bert: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    loggers = ["logger=[csv,tensorboard,wandb]", "logger.wandb.offline=true"]
    train_here(f"model.weights={tiny_bert}", f"run_dir={folder}", *loggers, *SMALL)
    assert "validation/embedded/macro_f1" in (folder / "csv" / "metrics.csv").read_text()
    assert "git_commit" in (folder / "csv" / "hparams.yaml").read_text()
    assert list(folder.glob("tensorboard/events.out.*"))
    assert list(folder.glob("wandb/offline-run-*/*.wandb"))


def test_an_unknown_logger_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="csv, tensorboard, wandb"):
        build_loggers({"csvv": {}}, RunFolder(tmp_path), {})


def test_a_missing_tensorboard_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning_fabric.loggers import tensorboard

    for package in ("_TENSORBOARD_AVAILABLE", "_TENSORBOARDX_AVAILABLE"):
        monkeypatch.setattr(tensorboard, package, False)
    with pytest.raises(UserError, match=r"pip install '\.\[tensorboard\]'"):
        build_loggers({"tensorboard": {}}, RunFolder(tmp_path), {})


def test_the_environment_holds_no_secret_and_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "s3cret-value")
    text = str(environment())
    assert "s3cret-value" not in text and str(Path.home()) not in text
    assert environment()["python"]
