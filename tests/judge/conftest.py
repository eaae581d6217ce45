"""Finished runs of tiny judges, with all weights and with adapters, and the rows that they learn from."""

from pathlib import Path

import pytest

from data_modules.embedded.layouts import WRITERS
from tests.running import train_here

TINY = (
    *("model=judge", "model.max_length=900", "model.batch_size=4", "optimizer.lr=1e-3", "callbacks.num_resamples=20"),
    *("callbacks.num_examples=0", "callbacks.progress_bar=false", "trainer=cpu", "logger=none"),
)
LORA = (*TINY[1:], "model=judge_lora", "model.ask=verdict", "model.lora_rank=4", "optimizer.lr=3e-2", "checkpoints=all")


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HalluDial's files, with rows of the embedded corpus."""
    return WRITERS["halludial"](tmp_path_factory.mktemp("halludial"), {"train": 64, "test": 24})


@pytest.fixture(scope="session")
def data(rows: Path, language_models: dict[str, Path]) -> list[str]:
    return [f"data.path={rows}", "data.validation_fraction=0.3", f"model.weights={language_models['llama']}"]


@pytest.fixture(scope="session")
def judge_run(tmp_path_factory: pytest.TempPathFactory, data: list[str]) -> Path:
    """The folder of a finished run of a tiny judge that learnt verdicts."""
    folder = tmp_path_factory.mktemp("runs") / "judge"
    train_here(*TINY, *data, "model.ask=verdict", f"run_dir={folder}")
    return folder


@pytest.fixture(scope="session")
def lora_run(tmp_path_factory: pytest.TempPathFactory, data: list[str]) -> Path:
    """The folder of a finished run of a tiny judge with adapters."""
    folder = tmp_path_factory.mktemp("runs") / "lora"
    train_here(*LORA, *data, f"run_dir={folder}")
    return folder
