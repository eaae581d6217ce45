"""A judge becomes a folder that plain transformers loads and that judges as the run does; damaged ones are refused."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from faithkit.errors import UserError
from judge.export import export
from judge.judge import Judge
from tests.judge.test_lora import lora_run as lora_run  # fixtures
from tests.judge.test_lora import options as options
from tests.judge.test_lora import probabilities
from tests.judge.test_lora import rows as rows
from tests.judge.test_train import judge_run as judge_run
from tests.model_folders import flip
from tests.running import compose


def fp32(folder: Path) -> Judge:
    return Judge.load(folder, precision="32-true")


@pytest.mark.parametrize("kind", [pytest.param("full", marks=pytest.mark.slow), "lora", "adapter"])
def test_the_exported_folder_judges_as_the_run_does(
    kind: str, judge_run: Path, lora_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM

    from faithkit_workflows import export as script

    run = {"full": judge_run, "lora": lora_run, "adapter": lora_run / "adapter"}[kind]
    script.main(compose("export", f"checkpoint={run}", f"output_dir={tmp_path / 'out'}"))
    assert "reloaded in plain transformers: largest difference of " in capsys.readouterr().out
    ours, theirs = fp32(run), fp32(tmp_path / "out")
    assert theirs.prompts == ours.prompts and theirs.calibration == ours.calibration
    assert probabilities(theirs) == pytest.approx(probabilities(ours), abs=1e-4)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.model_type == "llama"
    card = (tmp_path / "out" / "README.md").read_text()
    wanted = ["## Limits", "{response}", "Fingerprints", f"{ours.calibration.threshold:.4g}"]
    for part in [*wanted, *(["test/halludial", "macro_f1"] if kind != "adapter" else [])]:
        assert part in card, part
    again = export(str(tmp_path / "out"), str(tmp_path / "again"))
    assert again.difference == 0 and probabilities(fp32(tmp_path / "again")) == probabilities(theirs)


@pytest.mark.slow
def test_a_damaged_run_is_not_exported_and_nothing_is_left_behind(
    judge_run: Path, lora_run: Path, tmp_path: Path
) -> None:
    for run, folder in ((judge_run, "hf"), (lora_run, "hf")):
        damaged = shutil.copytree(run, tmp_path / "run")
        flip("model.safetensors")(damaged / folder)
        with pytest.raises(UserError, match="was changed or damaged"):
            export(str(damaged), str(tmp_path / "out"))
        shutil.rmtree(damaged)
    other = shutil.copytree(lora_run, tmp_path / "other")
    for name in ("faithkit.json", "seen_rows.parquet"):  # without hashes: the logits tell
        (other / "adapter" / name).unlink(missing_ok=True)
    file = other / "adapter" / "adapter_model.safetensors"
    save_file({name: tensor + 0.5 for name, tensor in load_file(file).items()}, file)
    shutil.move(other / "config.yaml", other / "config")  # a run of ours would miss the sidecar first
    with pytest.raises(UserError, match="differs by"):
        export(str(other), str(tmp_path / "out"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(UserError, match="not empty"):
        export(str(judge_run), str(tmp_path / "full"))
    assert not (tmp_path / "out").exists()
