"""Fixtures of the fault tests: undisturbed runs, and paths that command lines name."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.processes import Undisturbed

TRAIN = (
    *("data.num_train=24", "data.num_validation=16", "data.num_test=16", "model.max_length=64", "model.batch_size=8"),
    *("model.num_epochs=1", "model.validations_per_epoch=1", "callbacks.save_every_seconds=0"),
    *("callbacks.log_every_num_steps=1", "callbacks.num_resamples=5", "callbacks.num_examples=0"),
    *("callbacks.progress_bar=false", "optimizer.lr=1e-3", "trainer.precision=32-true"),
)
EVALUATE = ("benchmark=embedded", "benchmark.options.num_test=24", "num_resamples=5", "num_examples=0")
FEW = ("num_rows=12", "save_every_num_rows=4", "decoding.max_new_tokens=3", "num_examples=0")
GENERATE = (*FEW, "engine=transformers")


class Commands(dict[str, Undisturbed]):
    """Runs each command undisturbed at its first use; the evaluation scores the model of the training."""

    def __init__(self, root: Path, bert: Path, llama: Path):
        self.root, self.bert, self.llama = root, bert, llama

    def __missing__(self, script: str) -> Undisturbed:
        if script == "train":
            overrides = [f"model.weights={self.bert}", *TRAIN, "trainer=cpu"]
        elif script == "evaluate":
            overrides = [self.checkpoint, *EVALUATE]
        else:
            overrides = [f"checkpoint={self.llama}", *GENERATE]
        self[script] = Undisturbed.run(script, *overrides, folder=self.root / script)
        return self[script]

    @property
    def checkpoint(self) -> str:
        """Gives the argument that names the trained critic."""
        _ = self["train"]
        return f"checkpoint={self.root / 'train' / 'run'}"


@pytest.fixture(scope="session")
def commands(tiny_bert: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("undisturbed"), tiny_bert, tiny_llama)


@pytest.fixture(scope="session")
def sharded(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Runs a training whose last.ckpt is a folder; in one process, so that its events have an order."""
    trainer = ("trainer=fsdp", "trainer.accelerator=cpu", "trainer.devices=1")
    folder = tmp_path_factory.mktemp("sharded") / "train"
    return Undisturbed.run("train", f"model.weights={tiny_bert}", *TRAIN, *trainer, folder=folder)


@dataclass(frozen=True)
class Places:
    """Runs and files that the placeholders of a command line name."""

    root: Path

    def fill(self, arguments: Sequence[str]) -> list[str]:
        """Replaces `{name}` by the path of that name."""
        paths = {path.stem: str(path) for path in self.root.iterdir()}
        return [argument.format(**paths) if "{" in argument else argument for argument in arguments]

    def contents(self) -> list[Path]:
        return sorted(self.root.rglob("*"))


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Writes runs without weights, which only their reader could miss, and small files."""
    root = tmp_path_factory.mktemp("places")
    for kind in ("critic", "generator"):
        (root / kind / "hf").mkdir(parents=True)
        (root / kind / "hf" / "config.json").write_text("{}")
        (root / kind / "hf" / "faithkit.json").write_text(json.dumps({"kind": kind}))
    (root / "unfinished" / "checkpoints").mkdir(parents=True)
    (root / "unfinished" / "checkpoints" / "last.ckpt").touch()
    (root / "trained").mkdir()
    (root / "trained" / "config.yaml").write_text("seed: 0\nmodel:\n  name: x\n")
    (root / "folder").mkdir()
    (root / "file").write_text('{"id": "a", "text": "b"}\n')
    (root / "table.csv").write_text("knowledge,response,model\na,b,c\n")
    return Places(root)
