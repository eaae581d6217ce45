"""Every recipe of `scale=paper` composes, and trains, validates, tests and saves with random weights after two steps.

The models have two small layers; classes, names of tensors, special tokens and lengths of rows are the published ones.
"""

import csv
import json
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from data_modules.embedded.layouts import WRITERS
from data_modules.embedded.layouts.common import write_json
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RunFolder
from tests.paper_scale.random_weights import corpus_texts, write_weights
from tests.running import plain_config, train_here
from tests.test_configs import choices

TWO_STEPS = (
    *("model.num_epochs=1", "model.accumulate_grad_batches=1"),  # four rows in batches of two
    *("callbacks.save_every_seconds=0", "callbacks.log_every_num_steps=1"),
    *("callbacks.num_examples=1", "callbacks.num_resamples=20", "callbacks.progress_bar=false", "logger=csv"),
    *("trainer=cpu", "trainer.precision=bf16-mixed"),  # as a GPU chooses it
)


@dataclass(frozen=True)
class Recipe:
    """A training of the papers' scale.

    Args:
        weights: A key of `random_weights.ARCHITECTURES`.
        data: turns (FaithDial's files), answers (RAGTruth's) or judgements (HalluDial's).
        arguments: The command line, without weights and data.
        num_words: The length of the row's longest text, so that rows fill the length that the recipe reads.
    """

    weights: str
    data: str
    arguments: tuple[str, ...]
    num_words: int = 600


def generators() -> dict[str, Recipe]:
    """Lists each generator with each objective and each way of control."""
    weights = {"t5": "t5-base", "gpt2": "gpt2", "dialogpt": "dialogpt-medium", "doha": "bart-base"}
    lines = {
        f"{model}-{name}": Recipe(weights[model], "turns", (f"model={model}", f"{group}={name}"))
        for model in weights
        for group, names in (("objective", ("mle", "loss_truncation", "infonce")), ("control", ("ctrl",)))
        for name in names
    }
    llama = ("model=gpt2", "model.max_length=1280")
    lines |= {
        f"llama-{name}": Recipe("llama-2", "turns", (*llama, f"{group}={name}"), 1300)
        for group, name in (("objective", "mle"), ("objective", "infonce"), ("control", "ctrl"))
    }
    lines["gpt2-1024"] = Recipe("gpt2", "turns", ("model=gpt2", "model.max_length=1024"), 1100)
    stages = ("model=gpt2", "data=wow_then_faithdial", "data.wow_path=embedded")
    return lines | {"gpt2-two-stages": Recipe("gpt2", "turns", stages)}


CRITIC, TAGGER, LONG = ("model=critic", "data=faithcritic"), ("model=tagger",), "model.max_length=4096"
RECIPES = {
    "critic-roberta-large": Recipe("roberta-large", "turns", CRITIC),
    "critic-deberta-v3-large": Recipe("deberta-v3", "turns", CRITIC),
    "critic-modernbert": Recipe("modernbert", "turns", CRITIC),
    "tagger-roberta-large": Recipe("roberta-large", "answers", TAGGER),
    "tagger-modernbert": Recipe("modernbert", "answers", (*TAGGER, LONG), 3000),
    "tagger-deberta-v3-base": Recipe("deberta-v3", "answers", (*TAGGER, "model.packed=false")),
    **generators(),
    "judge-llama-2-7b": Recipe(
        "llama-2", "judgements", ("model=judge", "data=halludial", "data.validation_fraction=0.5"), 1300
    ),
    "judge_lora-llama-2-13b": Recipe(
        "llama-2", "answers", ("model=judge_lora", "model.ask=spans", "data=ragtruth"), 2000
    ),
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gives the folder of an architecture's weights, written at its first use."""
    root = tmp_path_factory.mktemp("weights")

    def folder(name: str) -> Path:
        if not (root / name).exists():
            write_weights(root / name, name)
        return root / name

    return folder


def long_text(num_words: int) -> str:
    words: list[str] = []
    for text in cycle(list(corpus_texts(20))):
        words += text.split()
        if len(words) >= num_words:
            return " ".join(words[:num_words])
    raise AssertionError("the corpus has no texts")


def write_rows(folder: Path, recipe: Recipe) -> list[str]:
    """Writes rows of the recipe's lengths, and gives the overrides that divide them."""
    text = long_text(recipe.num_words)
    if recipe.data == "turns":
        WRITERS["faithdial"](folder, 8)
        for path in folder.glob("*.json"):
            dialogues = json.loads(path.read_text())
            for turn in (turn for dialogue in dialogues for turn in dialogue["utterances"]):
                if recipe.arguments == CRITIC:
                    turn["knowledge"] = f"{turn['knowledge']} {text}"
                else:  # a generator shortens the history alone
                    turn["history"] = [text, text, *turn["history"]]
            write_json(path, dialogues)
        return ["data.num_rows=4"]
    if recipe.data == "judgements":
        WRITERS["halludial"](folder, {"train": 16, "test": 8})
        for path in folder.rglob("*.json"):
            rows = json.loads(path.read_text())
            for row in rows:
                row["dialogue_history"] = f"[Human]: {text} [Assistant]: {text} {row['dialogue_history']}"
            write_json(path, rows)
        return ["data.num_rows=12"]
    WRITERS["ragtruth"](folder, {"train": 24, "test": 12})
    sources = [json.loads(line) for line in (folder / "source_info.jsonl").read_text().splitlines()]
    for source in sources:
        shown = source["source_info"]
        if isinstance(shown, str):
            source["source_info"] = f"{shown} {text}"
        elif "passages" in shown:
            shown["passages"] += f" {text}"
    write_jsonl(folder / "source_info.jsonl", sources)
    return ["data.fold=0", "data.num_folds=4", "data.validation_fraction=0.333", "data.num_rows=16"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_takes_two_steps(name: str, weights: Any, tmp_path: Path) -> None:
    recipe, run = RECIPES[name], RunFolder(tmp_path / "run")
    line = [*recipe.arguments, "scale=paper", f"model.weights={weights(recipe.weights)}", "model.batch_size=2"]
    line += [*TWO_STEPS, f"run_dir={run.path}", f"data.path={tmp_path / 'rows'}"]
    line += write_rows(tmp_path / "rows", recipe)
    if any(argument.startswith("control=") for argument in line):
        line.append(f"control.entailment={weights('roberta-large-mnli')}")
    if "objective=loss_truncation" in line:
        line.append("objective.window=2")  # so that the second step leaves a response out
    train_here(*line)
    with next(run.path.glob("**/csv/metrics.csv")).open(newline="") as file:
        steps = [row["step"] for row in csv.DictReader(file) if row.get("train/loss")]
    assert len(steps) >= 2 and run.metrics.exists()
    assert any(folder.is_dir() for folder in (run.hf, run.adapter))


def test_every_model_objective_and_control_has_a_recipe() -> None:
    arguments = {argument for recipe in RECIPES.values() for argument in recipe.arguments}
    for group in ("model", "objective", "control"):
        assert {f"{group}={name}" for name in choices(group)} <= arguments


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_composes(name: str) -> None:
    config = plain_config("train", *RECIPES[name].arguments, "scale=paper")
    assert config["scale"]["name"] == "paper" and config["model"]["weights"]
