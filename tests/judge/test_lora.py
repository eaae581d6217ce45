"""A judge of which LoRA adapters alone are trained: its run, its two folders, and adapters from elsewhere."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from faithkit.provenance.used_model import describe_model
from faithkit.training.checkpoints import read_checkpoint
from faithkit_workflows.detectors.loading import kind_of
from judge.judge import Judge
from judge.task import JudgeModule
from tests.judge.conftest import LORA, TINY
from tests.model_folders import edit_json, edit_tensors, flip, make_foreign
from tests.running import assert_same_run, break_at, resume_here, run, train_here, train_in_two

NOT_THEIRS = ("faithkit.json", "seen_rows.parquet")  # what a folder of someone else's lacks
QUESTIONS = [("The river is long.", "the river is old"), ("A dog.", "a cat"), ("The king lives.", "the king is old")]


def probabilities(judge: Judge) -> list[float]:
    found = judge.judge([known for known, _ in QUESTIONS], [said for _, said in QUESTIONS])
    assert all(one.probability is not None for one in found)
    return [one.probability or 0.0 for one in found]


def test_checkpoints_hold_adapters_alone_and_the_base_is_untouched(lora_run: Path, language_models: Any) -> None:
    stored = read_checkpoint(lora_run / "checkpoints" / "last.ckpt")
    assert stored["state_dict"] and all(".lora_" in name for name in stored["state_dict"])
    numbers = sum(len(group["params"]) for group in stored["optimizer_states"][0]["param_groups"])
    assert len(stored["optimizer_states"][0]["state"]) == numbers == len(stored["state_dict"])
    base, merged = (load_file(f / "model.safetensors") for f in (language_models["llama"], lora_run / "hf"))
    changed = {name for name in base if not torch.equal(base[name], merged[name])}
    linear = {name for name in base if name.endswith("proj.weight")}
    assert changed == linear, "all-linear: every layer's own, and neither embeddings nor norms"


def test_merged_and_unmerged_give_the_same_judgements_here_and_in_plain_libraries(lora_run: Path) -> None:
    from peft import AutoPeftModelForCausalLM

    merged, unmerged = (Judge.load(lora_run / name, precision="32-true") for name in ("hf", "adapter"))
    assert unmerged.prompts == merged.prompts and unmerged.calibration == merged.calibration
    assert probabilities(unmerged) == pytest.approx(probabilities(merged), abs=1e-4)
    kinds = ((AutoPeftModelForCausalLM, "adapter"), (AutoModelForCausalLM, "hf"))
    with torch.inference_mode():
        found = [kind.from_pretrained(lora_run / name).eval()(torch.arange(5, 45)[None]).logits for kind, name in kinds]
    torch.testing.assert_close(*found, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_an_interrupted_training_of_adapters_resumes_to_the_same_weights(data: list[str], tmp_path: Path) -> None:
    given = [*LORA, *data, "model.lora_dropout=0.2", "callbacks.save_every_seconds=0"]
    train_here(*given, f"run_dir={tmp_path / 'whole'}")
    break_at(4, JudgeModule, tmp_path / "run", *given)
    resume_here(tmp_path / "run")
    assert "resuming at step 4" in (tmp_path / "run" / "train.log").read_text()
    for name in ("last", "best"):
        assert_same_run(tmp_path / "run", tmp_path / "whole", name)


@pytest.mark.slow
def test_a_resume_on_other_base_weights_is_refused(data: list[str], language_models: Any, tmp_path: Path) -> None:
    base, run = shutil.copytree(language_models["llama"], tmp_path / "base"), tmp_path / "run"
    train_here(*LORA, *data[:2], f"model.weights={base}", f"run_dir={run}")
    (run / "metrics.json").unlink()
    edit_tensors(base, lambda tensors: tensors["model.norm.weight"].add_(0.1))
    with pytest.raises(UserError, match="not those that this training began with"):
        resume_here(run)
    changed = r"have changed since these adapters were trained.*\n.*adapter\n.*hint: restore"
    with pytest.raises(UserError, match=changed):
        Judge.load(run / "adapter")
    shutil.rmtree(base)
    with pytest.raises(UserError, match=r"base.* is not a folder"):
        Judge.load(run / "adapter")
    assert Judge.load(run).judge("The river is long.", "the river is old").probability is not None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"auto_mapping": {"base_model_class": "Evil", "parent_library": "os"}}, "auto_mapping.*runs no code"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"megatron_config": {"a": 1}}, "megatron_config"),
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"target_modules": "(a+)+$"}, "target_modules"),
        ({"target_modules": ["no_such"]}, "no_such.*\n.*\n?.*q_proj"),
        ({"r": 10**9}, "r is 1000000000"),
        ({"r": 8}, "tensors differ"),
        ({"base_model_name_or_path": "/no/such/place"}, "/no/such/place"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path"),
    ],
)
def test_adapters_of_others_run_no_code(change: dict[str, Any], problem: str, lora_run: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    shutil.copytree(lora_run / "adapter", foreign, ignore=shutil.ignore_patterns(*NOT_THEIRS))
    assert Judge.load(foreign).calibration.threshold == 0.5, "another's adapters load, uncalibrated"
    edit_json(foreign / "adapter_config.json", lambda stored: stored.update(change))
    with pytest.raises(UserError, match=problem):
        Judge.load(foreign)


@pytest.fixture
def on_the_hub(lora_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The adapters in a hub's cache, laid out as its client does, under the name someone/adapter."""
    from huggingface_hub import constants

    cached = tmp_path / "hub" / "models--someone--adapter"
    snapshot = Path(shutil.copytree(lora_run / "adapter", cached / "snapshots" / "abc"))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return snapshot


def test_adapters_are_loaded_by_their_hub_name(lora_run: Path, on_the_hub: Path) -> None:
    by_path, by_name = Judge.load(lora_run / "adapter"), Judge.load("someone/adapter")
    assert by_name.calibration == by_path.calibration and by_name.engine.identity == by_path.engine.identity
    assert probabilities(by_name) == probabilities(by_path)
    engine = build_text_engine(EngineOptions(name="transformers", model="someone/adapter", cache=None))
    assert engine.identity == by_path.engine.identity
    assert kind_of("someone/adapter").name == "judge" and describe_model("someone/adapter").weights
    for file in NOT_THEIRS:
        (on_the_hub / file).unlink()
    assert Judge.load("someone/adapter").calibration.threshold == 0.5, "another's adapters, uncalibrated"
    assert kind_of("someone/adapter").name == "judge"


def test_adapters_of_the_hub_are_checked_as_those_of_a_folder(on_the_hub: Path) -> None:
    for file in NOT_THEIRS:
        (on_the_hub / file).unlink()
    edit_json(on_the_hub / "adapter_config.json", lambda stored: stored.update(auto_mapping={"parent_library": "os"}))
    with pytest.raises(UserError, match=r"auto_mapping.*runs no code"):
        Judge.load("someone/adapter")
    edit_json(on_the_hub / "adapter_config.json", lambda stored: stored.pop("auto_mapping") and None)
    (on_the_hub / "adapter_model.safetensors").rename(on_the_hub / "adapter_model.bin")
    with pytest.raises(UserError, match=r"adapter_model\.safetensors is missing; pickled adapters are not read"):
        Judge.load("someone/adapter")


def test_damaged_adapters_and_those_beside_a_whole_model_are_refused(lora_run: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(lora_run / "adapter", tmp_path / "damaged")
    flip("adapter_model.safetensors")(damaged)
    with pytest.raises(UserError, match=r"adapter_model.safetensors was changed or damaged"):
        Judge.load(damaged)
    both = shutil.copytree(lora_run / "hf", tmp_path / "both")
    make_foreign(both)
    shutil.copy(lora_run / "adapter" / "adapter_config.json", both)
    with pytest.raises(UserError, match="adapters are not a complete model"):
        Judge.load(both)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    ("given", "folders"),
    [((*TINY, "model.ask=verdict", "checkpoints=all"), ["hf"]), ((*LORA, "model.lora_dropout=0"), ["hf", "adapter"])],
    ids=["judge", "judge_lora"],
)
def test_two_processes_train_as_one(
    given: Any, folders: list[str], trainer: str, data: list[str], tmp_path: Path
) -> None:
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
