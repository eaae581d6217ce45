"""A judge trained by two processes, with copies of the model or with its shards, is the judge of one process."""

from pathlib import Path

import pytest

from faithkit.files.jsonl import read_predictions
from judge.judge import Judge
from tests.judge.test_lora import LORA, probabilities
from tests.judge.test_lora import rows as rows  # a fixture
from tests.judge.test_train import TINY
from tests.running import run, train_here, train_in_two


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    ("given", "folders"),
    [((*TINY, "model.ask=verdict", "checkpoints=all"), ["hf"]), ((*LORA, "model.lora_dropout=0"), ["hf", "adapter"])],
    ids=["judge", "judge_lora"],
)
def test_two_processes_train_the_judge_of_one(
    given: tuple[str, ...],
    folders: list[str],
    trainer: str,
    rows: Path,
    language_models: dict[str, Path],
    tmp_path: Path,
) -> None:
    data = (f"data.path={rows}", "data.validation_fraction=0.3", f"model.weights={language_models['llama']}")
    plain = [o for o in (*given, *data, "trainer.precision=32-true") if not o.startswith("trainer=")]
    train_here(*plain, "trainer=cpu", f"run_dir={tmp_path / 'one'}")
    train_in_two(trainer, tmp_path / "two", *plain, "model.gradient_checkpointing=true", timeout=900)
    one, both = (read_predictions(str(tmp_path / name / "predictions" / "halludial.jsonl")) for name in ("one", "two"))
    assert one.keys() == both.keys() and len(one) == 24
    assert all(both[i].score == pytest.approx(found.score, abs=1e-4) for i, found in one.items())
    for folder in folders:
        found = [probabilities(Judge.load(tmp_path / name / folder, precision="32-true")) for name in ("one", "two")]
        assert found[0] == pytest.approx(found[1], abs=1e-4)
    (tmp_path / "two" / "metrics.json").unlink()  # a whole checkpoint: the end is repeated by resume
    done = run("train.py", f"resume={tmp_path / 'two'}", timeout=900)
    assert done.returncode == 0 and "resuming at step" in done.stderr, done.stderr
