"""`make paper-smoke`: models of the published sizes, rows of the recipes' lengths, and every step really run."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_modules.datasets.faithcritic import FaithCritic
from data_modules.datasets.faithdial import FaithDial
from data_modules.datasets.ragtruth import RagTruth
from data_modules.encoding.pairs import PairEncoder
from data_modules.encoding.sequence_layout import TurnLayout, add_markers
from data_modules.encoding.spans import SpanEncoder
from data_modules.encoding.turns import TurnEncoder
from data_modules.reading.dataset import Source, read_examples
from data_modules.reading.rows import ReadReport
from tests.paper_smoke.architectures import num_parameters
from tests.paper_smoke.commands import commands_of, typed
from tests.paper_smoke.estimate import estimate
from tests.paper_smoke.recipes import RECIPES, Recipe
from tests.paper_smoke.report import own_batch_size, real_row, run_row
from tests.paper_smoke.run import Result, is_done, run_recipe
from tests.paper_smoke.vocabularies import VOCABULARIES
from tests.paper_smoke.workshop import Workshop
from tests.test_configs import choices

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
PUBLISHED = {
    "roberta-large": 355_359_744,
    "gpt2": 124_439_808,
    "dialogpt-medium": 354_823_168,
    "t5-base": 222_903_552,
    "bart-base": 139_420_416,
    "deberta-v3-base": 183_831_552,
    "deberta-v3-large": 434_012_160,
}
SPECIAL = {
    "roberta": {"bos": 0, "pad": 1, "eos": 2, "unk": 3, "mask": 50_264},
    "gpt2": {"bos": 50_256, "eos": 50_256, "pad": None},
    "modernbert": {"unk": 50_280, "cls": 50_281, "sep": 50_282, "pad": 50_283, "mask": 50_284},
    "deberta": {"pad": 0, "cls": 1, "sep": 2, "unk": 3, "mask": 128_000},
    "t5": {"pad": 0, "eos": 1, "unk": 2},
    "llama": {"unk": 0, "bos": 1, "eos": 2, "pad": None},
    "albert": {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4},
}


# Without a model; a table of one's own, which reads as any other; other benchmarks' rows once more.
NOT_MEASURED = {"analysis", "pairs", "domains"}


def test_every_model_objective_control_and_benchmark_is_in_a_recipe() -> None:
    arguments = {argument for recipe in RECIPES for argument in recipe.arguments}
    for group in ("model", "objective", "control"):
        assert {f"{group}={name}" for name in choices(group)} <= arguments
    measured = {name for recipe in RECIPES for name in recipe.benchmarks}
    assert measured == set(choices("benchmark")) - NOT_MEASURED
    assert any(recipe.processes == 2 for recipe in RECIPES if recipe.task == "critic")
    assert len(BY_NAME) == len(RECIPES)


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_have_as_many_parameters_as_the_published_ones(name: str) -> None:
    assert num_parameters(name) == pytest.approx(PUBLISHED[name], rel=1e-3)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_tokenizers_have_the_published_special_tokens(name: str) -> None:
    tokenizer = VOCABULARIES[name]()
    assert {side: getattr(tokenizer, f"{side}_token_id") for side in SPECIAL[name]} == SPECIAL[name]
    text = "the river flows through ten countries."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids).strip() == text and tokenizer.unk_token_id not in ids


def read(source: Source, split: str) -> list[Any]:
    return list(read_examples(source, split, ReadReport()))


@pytest.mark.slow
def test_rows_are_as_long_as_the_recipes_read(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small=True)
    critic, tagger, gpt2 = (BY_NAME[name] for name in ("critic-modernbert-base", "tagger-modernbert-base", "gpt2-mle"))
    counts: Counter[str] = Counter()
    for recipe in (critic, tagger, gpt2):
        shop.prepare(recipe)
    tokenizer = shop.tokenizer(critic)
    pairs = read(FaithCritic(path=str(shop.rows(critic))), "train")
    encoded = PairEncoder(tokenizer=tokenizer, max_length=512).encode(pairs, counts)
    assert set(encoded["length"]) == {512} and counts["truncated: knowledge"] == len(pairs)
    answers = read(RagTruth(path=str(shop.rows(tagger))), "train")
    lengths = SpanEncoder(tokenizer=tokenizer, max_length=4096).encode(answers, counts)["length"]
    assert min(lengths) > 4050 and max(lengths) <= 4096 and not counts["read through several windows"]
    tokenizer = shop.tokenizer(gpt2)
    layout = TurnLayout(kind="causal", max_length=640, max_response_length=128, max_history=None, control=())
    add_markers(tokenizer, layout)
    turns = read(FaithDial(path=str(shop.rows(gpt2))), "train")
    lengths = TurnEncoder(tokenizer, layout).encode(turns, counts)["length"]
    assert counts["history cut: rows"] == len(turns) and min(lengths) > 640 - 128 and max(lengths) <= 640


def test_a_recipe_is_killed_resumed_exported_and_evaluated(tmp_path: Path) -> None:
    recipe, shop = BY_NAME["critic-deberta-v3-large"], Workshop(tmp_path, small=True)
    result = run_recipe(recipe, shop)
    assert result.error is None and result.resumed_at == 1
    assert list(result.seconds) == ["train", "resume", "export", "evaluate begin"]
    assert result.step_seconds is not None and 0 < result.step_seconds < result.seconds["resume"]
    assert all(peaks[0] > 0.1 for peaks in result.memory.values())
    assert not shop.run_folder(recipe).exists(), "gigabytes of the real one"
    assert is_done(recipe, shop) and not is_done(replace(recipe, batch_size=4), shop)
    cells = run_row(recipe, result)
    assert cells[0] == recipe.name and cells[-1] == "passed, 1 benchmarks"


@pytest.mark.slow
def test_a_recipe_that_fails_says_why_and_is_run_again(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small=True)
    recipe = replace(BY_NAME["critic-roberta-large"], own=("model.max_length=600",))
    result = run_recipe(recipe, shop)
    assert result.error is not None and "this encoder reads 512 tokens at most" in result.error
    assert list(result.seconds) == ["train"] and not is_done(recipe, shop)
    assert "512 tokens at most" in run_row(recipe, result)[-1]


def test_two_processes_are_measured_each(tmp_path: Path) -> None:
    recipe = BY_NAME["critic-modernbert-base"]
    command = commands_of(recipe, Workshop(tmp_path))["train"]
    assert "trainer=ddp" in command and "trainer.devices=2" in command
    result = Result(recipe.name, typed({}), processes=2, memory={"train": [3.0, 2.0, 0.1]})
    assert run_row(recipe, result)[3] == "3.0 each of 2"


def test_the_estimate_is_the_arithmetic_that_it_says() -> None:
    recipe = BY_NAME["gpt2-mle"]
    real = estimate(recipe, own_batch_size(recipe))
    assert real.flop == pytest.approx(6 * 124_439_808 * 640 * 18_357 * 10)
    assert real.gpus == 1 and real.hours["A100"] == pytest.approx(real.flop / (312e12 * 0.4) / 3600)
    llama = estimate(BY_NAME["llama-mle"], 32)
    assert llama.gpus == 4, "108 GB of weights, gradients and moments, and the activations"
    assert real_row(recipe)[1] == "32"


@pytest.mark.slow
def test_a_real_recipe_passes(tmp_path: Path) -> None:
    recipe: Recipe = BY_NAME["gpt2-loss_truncation"]
    result = run_recipe(recipe, Workshop(tmp_path))
    assert result.error is None and result.resumed_at == 1 and max(map(max, result.memory.values())) > 2
