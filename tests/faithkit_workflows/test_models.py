"""`faithkit models` names models that there are, with figures that stand where it says."""

import re
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from faithkit.weights.local import LOCAL, known_models
from faithkit_workflows.models import detail, overview
from tests.running import ROOT

MODELS = list(known_models().values())
FIGURES = [
    (model, figure)
    for model in MODELS
    for figure in (
        *([model["memory"]] if "memory" in model else []),
        *(figure for key in ("speed", "training", "figures") for figure in model.get(key, [])),
    )
]


@cache
def sections(file: str) -> dict[str, str]:
    """The text under each heading of a file, on one line."""
    parts = re.split(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {head: " ".join(body.split()) for head, body in zip(parts[1::2], parts[2::2], strict=True)}


def digits(text: str) -> list[str]:
    """The numbers of a text without points and leading zeros: .86, 0.86 and 86 are one figure."""
    return [found.replace(".", "").replace(",", "").lstrip("0") for found in re.findall(r"[\d.,]*\d", text)]


@pytest.mark.parametrize(("model", "figure"), FIGURES, ids=lambda row: row.get("name", row.get("says")))
def test_a_figure_stands_where_it_says(model: dict[str, Any], figure: dict[str, Any]) -> None:
    text = sections(figure["in"])[figure["under"]]
    assert " ".join(figure["quote"].split()) in text, f"{figure['in']} does not say so: {figure['quote']}"
    told = [number for number in digits(figure["says"].replace("F1", "")) if number not in digits(figure["quote"])]
    assert not told, f"{model['name']} says {told}, which its quote does not have"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_a_models_weights_are_those_that_its_command_takes(model: dict[str, Any]) -> None:
    from tests.running import compose

    overrides = [word.replace("PRE/hf", "minilm") for word in model["command"].split()[2:]]
    assert compose("train", *overrides).model["weights"] == model["weights"]
    assert model["weights"] in LOCAL or "/" in model["weights"]


def test_local_weights_are_as_large_as_the_registry_says() -> None:
    for model in MODELS:
        if model["weights"] in LOCAL:
            assert model["parameters"] in LOCAL[model["weights"]].description, model["name"]


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "faithkit", "models", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_all_models_fit_a_screen_of_eighty_columns() -> None:
    lines = list(overview(MODELS))
    assert len(lines) <= 50 and max(map(len, lines)) <= 80
    assert said().stdout.splitlines() == lines


def test_one_model_is_told_with_its_command_and_every_figure() -> None:
    for model in MODELS:
        text = " ".join("\n".join(detail(model)).split())
        assert model["command"] in text and all(figure["says"] in text for _, figure in FIGURES if _ is model)
    assert said("judge-small").stdout.splitlines() == list(detail(known_models()["judge-small"]))


def test_a_task_has_its_models() -> None:
    shown = said("tagger").stdout
    assert "tagger-answers" in shown and "critic-dialogue" not in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["tager"], "did you mean tagger?"), (["critic", "judge"], "faithkit models critic")],
)
def test_a_wrong_name_is_explained(arguments: list[str], words: str) -> None:
    done = said(*arguments)
    assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) <= 5


def test_a_page_names_every_model() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert [model["name"] for model in MODELS if f"`{model['name']}`" not in page] == []
