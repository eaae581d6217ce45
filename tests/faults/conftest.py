"""Fixtures of the faults: undisturbed runs, places that commands name."""

from pathlib import Path

import pytest

from tests.faults.command_places import Places
from tests.faults.kills import Command, Undisturbed, undisturbed

TRAIN = (
    "data.num_train=24",
    "data.num_validation=16",
    "data.num_test=16",
    "model.max_length=64",
    "model.batch_size=8",
    "model.num_epochs=1",
    "model.validations_per_epoch=1",
    "callbacks.save_every_seconds=0",
    "callbacks.log_every_num_steps=1",
    "callbacks.num_resamples=5",
    "callbacks.num_examples=0",
    "callbacks.progress_bar=false",
    "optimizer.lr=1e-3",
    "trainer=cpu",
    "trainer.precision=32-true",
)
EVALUATE = ("benchmark=embedded", "benchmark.options.num_test=24", "num_resamples=5", "num_examples=0")
GENERATE = (
    "num_rows=12",
    "save_every_num_rows=4",
    "decoding.max_new_tokens=3",
    "num_examples=0",
    "engine=transformers",
)


@pytest.fixture(scope="session")
def commands(tiny_bert: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Undisturbed]:
    """The undisturbed runs; the evaluation scores the model that the training leaves."""
    folder = tmp_path_factory.mktemp("undisturbed")
    train = undisturbed(Command("train", (f"model.weights={tiny_bert}", *TRAIN)), folder / "train")
    evaluate = Command("evaluate", (f"checkpoint={folder / 'train' / 'run'}", *EVALUATE))
    generate = Command("generate", (f"checkpoint={tiny_llama}", *GENERATE))
    return {
        "train": train,
        "evaluate": undisturbed(evaluate, folder / "evaluate"),
        "generate": undisturbed(generate, folder / "generate"),
    }


@pytest.fixture(scope="session")
def sharded(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """An undisturbed training whose last.ckpt is a folder; of one process, so that its events have an order."""
    one = ("trainer=fsdp", "trainer.accelerator=cpu", "trainer.devices=1", "trainer.precision=32-true")
    plain = [option for option in TRAIN if not option.startswith("trainer")]
    folder = tmp_path_factory.mktemp("sharded")
    return undisturbed(Command("train", (f"model.weights={tiny_bert}", *plain, *one)), folder / "train")


@pytest.fixture(scope="session")
def made_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places.make(tmp_path_factory.mktemp("places"))


@pytest.fixture
def places(made_places: Places, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Runs and files of a user without an account."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", "/nowhere")
    monkeypatch.setenv("HOME", "/nowhere")
    return made_places
