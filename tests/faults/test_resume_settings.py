"""A resumed run takes few settings from its command, and never mixes two in one file."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.files.run_folder import read_config
from faithkit_workflows import evaluate, generate, score, train
from tests.running import opened

SCRIPTS = {"train": train, "generate": generate, "evaluate": evaluate, "score": score}
NEEDED = {"generate": ["checkpoint=x"], "score": ["checkpoint=x", "path=y"]}


def begin(script: str, folder: Path, *overrides: str, work: str | None = "predictions/a.jsonl") -> Path:
    with opened(script, f"run_dir={folder}", *NEEDED.get(script, []), *overrides):
        pass
    if work:
        (folder / work).parent.mkdir(exist_ok=True)
        (folder / work).write_text('{"id": "1"}\n{"id": "2"}\n')
    return folder


def test_a_change_is_written_to_the_configuration_and_the_log(tmp_path: Path) -> None:
    folder = begin("generate", tmp_path / "run", "batch_size=4")
    for value in (8, 8, 2):
        line = (f"resume={folder}", f"batch_size={value}")
        with opened("generate", *line, may_change=generate.MAY_CHANGE) as (_, config):
            assert config["batch_size"] == value
    assert read_config(folder / "config.yaml")["batch_size"] == 2
    log = (folder / "generate.log").read_text()
    assert log.count("resumed with") == 2 and "batch_size=8" in log and "batch_size=2" in log
    folder = begin("train", tmp_path / "other", "seed=4", work="checkpoints/best.ckpt")
    line = (f"resume={folder}", "logger=none", "trainer=gpu", "seed=4")  # another logger and another machine
    with opened("train", *line, may_change=train.MAY_CHANGE) as (_, config):
        assert config["logger"] == {} and config["trainer"]["accelerator"] == "gpu"
    assert read_config(folder / "config.yaml")["logger"] == {}


@pytest.mark.parametrize(
    ("script", "override", "words"),
    [
        ("generate", "decoding.top_p=0.9", r"decoding.top_p=0.9 \(it began with top_p=0.6\)"),
        ("generate", "decoding=greedy", r"decoding.strategy=greedy \(it began with strategy=nucleus\)"),
        ("generate", "checkpoint=y", r"checkpoint=y \(it began with checkpoint=x\)"),
        ("train", "data.num_train=9", "data.num_train=9"),
        ("train", "data=begin", r"data.name=begin \(it began with name=embedded\)"),
        ("train", "trainer.precision=bf16-mixed", "trainer.precision=bf16-mixed"),
        ("train", "run_dir=elsewhere", "run_dir=elsewhere"),
        ("train", "~control", r"~control \(the run has no such value\)"),
        ("evaluate", "benchmark=mnli", "benchmark.name=mnli"),
        ("score", "columns.response=x", "columns.response=x"),
    ],
)
def test_a_change_of_finished_work_is_refused(script: str, override: str, words: str, tmp_path: Path) -> None:
    folder = begin(script, tmp_path / "run")
    before = (folder / "config.yaml").read_bytes()
    hint = "begin again in another run_dir; what may change: "
    with (
        pytest.raises(UserError, match=rf"{words}.*\n  at: .*config.yaml\n  hint: {hint}"),
        opened(script, f"resume={folder}", override, may_change=SCRIPTS[script].MAY_CHANGE),
    ):
        pass
    assert (folder / "config.yaml").read_bytes() == before


def test_refused_settings_are_reported_together(tmp_path: Path) -> None:
    folder = begin("train", tmp_path / "run", "seed=7", "model.num_epochs=3")
    overrides = ("seed=8", "callbacks.num_examples=9", "model.num_epochs=3", "model.batch_size=3", "~control")
    problem = r"(?s)seed=8 \(it began with seed=7\), model.batch_size=3 .*, ~control \(the run has no such value\)"
    resumed = opened("train", f"resume={folder}", *overrides, may_change=train.MAY_CHANGE)
    with pytest.raises(UserError, match=problem), resumed:
        pass


def test_a_run_without_work_is_to_be_begun_again(tmp_path: Path) -> None:
    folder = begin("train", tmp_path / "run", work=None)
    words = rf"optimizer.lr=1.*\n.*\n  hint: nothing is written yet: .*run_dir={folder}"
    with pytest.raises(UserError, match=words), opened("train", f"resume={folder}", "optimizer.lr=1"):
        pass
    begin("train", folder, "optimizer.lr=1", work=None)
    assert read_config(folder / "config.yaml")["optimizer"]["lr"] == 1
