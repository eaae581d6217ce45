"""A judge's run from its command to its folder; the folder that is exported judges as the run does."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.model_folder import read_sidecar
from faithkit_workflows import export as script
from judge.export import export
from judge.judge import Judge
from tests.judge.conftest import TINY
from tests.judge.test_lora import NOT_THEIRS, probabilities
from tests.model_folders import flip, with_places
from tests.running import compose, evaluate_here, metrics_of, train_here


def test_the_loaded_judge_gives_what_its_run_wrote(judge_run: Path, rows: Path, tmp_path: Path) -> None:
    written = read_predictions(str(judge_run / "predictions" / "halludial.jsonl"))
    evaluate_here(
        "benchmark=halludial", f"benchmark.path={rows}", f"checkpoint={judge_run}",
        f"run_dir={tmp_path / 'again'}", "num_resamples=20", "num_examples=0",
    )  # fmt: skip
    again = read_predictions(str(next((tmp_path / "again" / "predictions").glob("*.jsonl"))))
    assert written.keys() == again.keys() and len(written) == 24
    assert all(found.score == pytest.approx(again[i].score, abs=1e-4) for i, found in written.items())
    assert all(found.label == again[i].label for i, found in written.items())


def test_its_own_prompt_and_threshold_hold_for_its_own_question_alone(judge_run: Path) -> None:
    own, other = Judge.load(str(judge_run)), Judge.load(str(judge_run), ask="spans")
    assert own.options.ask == "verdict" and other.options.ask == "spans" and other.calibration.threshold == 0.5
    sidecar = read_sidecar(judge_run / "hf")
    assert sidecar is not None and sidecar.kind == "judge" and sidecar.layout["ask"] == "verdict"
    assert own.prompts.each[0].text == sidecar.layout["prompt"]["text"] and "{response}" in own.prompts.each[0].text
    assert own.calibration.threshold == sidecar.thresholds["threshold"]
    assert {"test/halludial/macro_f1", "test/halludial/auroc"} <= metrics_of(judge_run).keys()


def test_it_is_the_same_judge_where_an_engine_names_it(judge_run: Path, rows: Path, tmp_path: Path) -> None:
    options = ["benchmark=halludial", f"benchmark.path={rows}", "num_examples=0", "benchmark.num_rows=8"]
    evaluate_here(*options, f"checkpoint={judge_run}", "precision=auto", f"run_dir={tmp_path / 'named'}")
    engine = ["engine=transformers", f"engine.model={judge_run}", "engine.cache=null"]
    evaluate_here(*options, *engine, f"run_dir={tmp_path / 'asked'}")
    named, asked = (read_predictions(tmp_path / run / "predictions/halludial.jsonl") for run in ("named", "asked"))
    assert asked == named, "its prompt, temperature and threshold come with it"
    with pytest.raises(UserError, match="none of the replies could be read"):
        evaluate_here(*options, *engine, "judge.ask=steps", "judge.max_new_tokens=4", f"run_dir={tmp_path / 'other'}")
    assert "was trained with judge.ask=verdict" in (tmp_path / "other/evaluate.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("ask", "data"), [("judgement", "halludial"), ("spans", "ragtruth")])
def test_the_other_targets_are_learnt_alike(ask: str, data: str, language_models: Any, tmp_path: Path) -> None:
    llama = with_places(language_models["llama"], tmp_path / "llama", 8000)
    train_here(
        *TINY, f"model.weights={llama}", f"model.ask={ask}", f"data={data}",
        "model.max_length=4000", "data.embedded_rows={train: 40, validation: 24, test: 24}",
        f"run_dir={tmp_path / 'run'}",
    )  # fmt: skip
    assert (tmp_path / "run" / "metrics.json").exists()


def fp32(folder: Path) -> Judge:
    return Judge.load(folder, precision="32-true")


@pytest.mark.parametrize("kind", [pytest.param("full", marks=pytest.mark.slow), "lora", "adapter"])
def test_an_exported_folder_judges_so(kind: str, judge_run: Path, lora_run: Path, tmp_path: Path, capsys: Any) -> None:
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
def test_a_damaged_run_is_not_exported_and_nothing_is_left(judge_run: Path, lora_run: Path, tmp_path: Path) -> None:
    for run in (judge_run, lora_run):
        damaged = shutil.copytree(run, tmp_path / "run")
        flip("model.safetensors")(damaged / "hf")
        with pytest.raises(UserError, match="was changed or damaged"):
            export(str(damaged), str(tmp_path / "out"))
        shutil.rmtree(damaged)
    other = shutil.copytree(lora_run, tmp_path / "other")
    for name in NOT_THEIRS:  # without hashes: the logits tell
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
