"""A judge's run from its command to its folder, and what its folder is good for."""

from pathlib import Path

import pytest

from data_modules.embedded.layouts import WRITERS
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.model_folder import read_sidecar
from judge.judge import Judge
from tests.model_folders import with_places
from tests.running import evaluate_here, metrics_of, train_here

TINY = (
    *("model=judge", "model.max_length=900", "model.batch_size=4", "optimizer.lr=1e-3", "callbacks.num_resamples=20"),
    *("callbacks.num_examples=0", "callbacks.progress_bar=false", "trainer=cpu", "logger=none"),
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HalluDial's files, with rows of the embedded corpus."""
    return WRITERS["halludial"](tmp_path_factory.mktemp("halludial"), {"train": 64, "test": 24})


@pytest.fixture(scope="module")
def judge_run(
    tmp_path_factory: pytest.TempPathFactory, language_models: dict[str, Path], session_home: Path, rows: Path
) -> Path:
    """The folder of a finished run of a tiny judge that learnt verdicts."""
    folder = tmp_path_factory.mktemp("runs") / "judge"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAITHKIT_HOME", str(session_home))
        data = (f"data.path={rows}", "data.validation_fraction=0.3")
        train_here(*TINY, *data, f"model.weights={language_models['llama']}", "model.ask=verdict", f"run_dir={folder}")
    return folder


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
def test_the_other_targets_are_learnt_by_the_same_command(
    ask: str, data: str, language_models: dict[str, Path], tmp_path: Path
) -> None:
    llama = with_places(language_models["llama"], tmp_path / "llama", 8000)
    train_here(
        *TINY, f"model.weights={llama}", f"model.ask={ask}", f"data={data}",
        "model.max_length=4000", "data.embedded_rows={train: 40, validation: 24, test: 24}",
        f"run_dir={tmp_path / 'run'}",
    )  # fmt: skip
    assert (tmp_path / "run" / "metrics.json").exists()
