"""`faithkit models` lists existing models, with figures that their sources contain."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from faithkit.detector import DETECTORS
from faithkit.files.cache import cache_dir
from faithkit.weights.resolve import LOCAL, known_models
from faithkit_workflows.models import detail
from faithkit_workflows.settings.engines import check_checkpoint
from faithkit_workflows.settings.preflight import suggest_path
from tests.running import ROOT, compose

MODELS = list(known_models().values())
LISTS = ("speed", "training", "figures")
FIGURES = [(model, model["memory"]) for model in MODELS if "memory" in model]
FIGURES += [(model, figure) for model in MODELS for key in LISTS for figure in model.get(key, [])]


@cache
def sections(file: str) -> dict[str, str]:
    """The text under each heading of a file, on one line."""
    parts = re.split(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {head: " ".join(body.split()) for head, body in zip(parts[1::2], parts[2::2], strict=True)}


def digits(text: str) -> list[str]:
    """The numbers of a text without points and leading zeros: .86, 0.86 and 86 are one figure."""
    return [found.replace(".", "").replace(",", "").lstrip("0") for found in re.findall(r"[\d.,]*\d", text)]


@pytest.mark.parametrize(("model", "figure"), FIGURES, ids=lambda row: row.get("name", row.get("value")))
def test_the_source_of_a_figure_has_its_numbers(model: dict[str, Any], figure: dict[str, Any]) -> None:
    numbers = digits(sections(figure["file"])[figure["section"]])
    missing = set(digits(figure["value"].replace("F1", ""))) - set(numbers)
    assert not missing, f"{model['name']}: {figure['file']}, {figure['section']!r} lacks {missing}"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_a_command_trains_the_weights_of_its_model(model: dict[str, Any]) -> None:
    if model["task"] == "detector":  # it comes with faithkit
        assert re.match(r"python -m faithkit_workflows\.fit_(support|reader) ", model["command"])
        return
    overrides = [word.replace("PRE/hf", "minilm") for word in model["command"].split()[2:]]
    assert compose("train", *overrides).model["weights"] == model["weights"]
    assert model["weights"] in LOCAL or "/" in model["weights"]


def run_models(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "faithkit", "models", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_every_model_is_shown_with_its_command_and_every_figure() -> None:
    for model in MODELS:
        text = " ".join("\n".join(detail(model)).split())
        assert model["command"] in text and all(figure["value"] in text for one, figure in FIGURES if one is model)
    assert run_models("judge-small").stdout.splitlines() == list(detail(known_models()["judge-small"]))


HHEM = ("vectara/hallucination_evaluation_model", "Apache-2.0", "71.8", ":FOLDER")
RECIPE = ("python train.py experiment=critic_general data_dir=DIR",)


@pytest.mark.parametrize(("name", "words"), [("hhem-2.1-open", HHEM), ("critic_general", RECIPE)])
def test_detectors_of_others_and_recipes_are_shown_too(name: str, words: tuple[str, ...]) -> None:
    done = run_models(name)
    assert done.returncode == 0 and all(one in " ".join(done.stdout.split()) for one in words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tager"], "did you mean tagger?"),
        (["critic_genral"], "did you mean critic_general?"),
        (["critic", "judge"], "faithkit models critic"),
    ],
)
def test_a_wrong_name_is_explained(arguments: list[str], words: str) -> None:
    done = run_models(*arguments)
    assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) <= 5


MEANT = {"defalt": "default", "Defaults": "default", "hhem-2.1-opn": "hhem-2.1-open"}
MEANT["minichek-roberta-large:/tmp"] = "minicheck-roberta-large or"


@pytest.mark.parametrize(("typed", "meant"), MEANT.items())
def test_the_nearest_detector_is_suggested(typed: str, meant: str) -> None:
    (error,) = check_checkpoint("checkpoint", typed, *DETECTORS)
    assert error.hint.rstrip("?").startswith(f"did you mean {meant}")


@pytest.mark.parametrize("name", ["default", "smollm2-135m", "roberta-large-mnli", "roberta-base", "owner/defalt"])
def test_other_names_are_left_to_loading(name: str) -> None:
    assert [*check_checkpoint("checkpoint", name, *DETECTORS)] == []


@pytest.mark.parametrize("name", ["flan-t5-small", "minilm", "spacy-sm", "punkt"])
def test_local_weights_that_are_no_detector_are_refused_before_the_download(name, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path))
    (error,) = check_checkpoint("checkpoint", name, *DETECTORS)
    assert f"checkpoint={name} is no detector" in error.problem
    assert not (cache_dir() / "weights").exists()


NEAR = {"headr.csv": "header.csv", "rows.cvs": "rows.csv", "run_1": "run-1"}
FAR = {"nothere.csv": "header.csv", "a.csv": "b.csv"}


@pytest.mark.parametrize(("typed", "there"), [*NEAR.items(), *FAR.items()])
def test_only_a_near_name_is_suggested(typed: str, there: str, tmp_path: Path) -> None:
    (tmp_path / there).touch()
    hint = suggest_path("path", tmp_path / typed)
    assert hint == (f"did you mean path={tmp_path / there}?" if typed in NEAR else "set path to a file that exists")
