"""The recipes of the configurations, and what they name. That every choice is accepted is tested in test_settings."""

import re
from dataclasses import fields

import pytest
from omegaconf import OmegaConf

from critic.options import CriticOptions
from data_modules.build import datasets_of, find_dataset
from faithkit.targets import DATASETS, TARGETS, build
from faithkit_workflows.train import describe_training
from tests.running import ROOT, compose, plain_config


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / "configs" / group).glob("[!_]*.yaml"))


def experiment_line(name: str) -> list[str]:
    """Lists what a user types for an experiment: with `data_dir`, where it reads corpora below that folder."""
    wants_folder = "data_dir" in (ROOT / "configs" / "experiment" / f"{name}.yaml").read_text()
    return [f"experiment={name}", *(["data_dir=/somewhere"] if wants_folder else [])]


@pytest.mark.parametrize("objective", choices("objective"))
@pytest.mark.parametrize("scale", choices("scale"))
def test_every_objective_is_built_at_every_scale(objective: str, scale: str) -> None:
    from generation.objectives.objective import Objective

    cfg = compose("train", "model=t5", f"objective={objective}", f"scale={scale}")
    assert isinstance(build(OmegaConf.to_container(cfg.model.task.objective, resolve=True)), Objective)


def test_the_zero_shot_experiment_uses_begin_to_exclude_and_to_test_alone() -> None:
    data = compose("train", "experiment=critic_local_real", "data_dir=/somewhere").data
    begin = {name: part for name, part in data.parts.items() if part.dataset == "begin"}
    assert {name: part.only for name, part in begin.items()} == {"begin_dev": "test"}
    # And all turns that it judges as a critic of generators are left out of what it learns.
    excluded = {test.dataset: test.path for test in data.exclude}
    judged = {name: f"/somewhere/{name}" for name in ("wow", "topical_chat", "cmu_dog")}
    assert excluded == {"begin": "/somewhere/begin/wow/begin_test_wow.tsv", **judged}
    assert data.parts.natural.validation_fraction == data.validation_fraction > 0


def test_the_in_domain_experiment_differs_in_begin_alone() -> None:
    first, second = (compose("train", f"experiment=critic_local_{name}", "data_dir=/x") for name in ("real", "begin"))
    assert second.data.parts.begin_dev.only is None and "begin_dev_cmu" in second.data.parts
    for cfg in (first, second):
        cfg.data.parts = {name: part for name, part in cfg.data.parts.items() if part.dataset != "begin"}
    assert first == second


@pytest.mark.parametrize("benchmark", ["faithdial", "wow", "cmu_dog", "topical_chat", "transfer_responses"])
def test_benchmarks_of_responses_take_files_and_models_from_the_command_line(benchmark: str) -> None:
    cfg = compose("evaluate", f"benchmark={benchmark}", "against=a.jsonl", "scale=paper", "benchmark.q2.answers=null")
    blocks = datasets_of(OmegaConf.to_container(cfg.benchmark, resolve=True))  # type: ignore[arg-type]
    assert all(block["task"] == "responses" and block["against"] == "a.jsonl" for block in blocks.values())
    assert cfg.benchmark.bert_score.num_layers == 17 and cfg.benchmark.q2.answers is None and cfg.benchmark.q2.questions


# Of each model at the paper's scale: weights, batch size, learning rate, epochs, warmup, and others.
RECIPES = {
    "critic": "FacebookAI/roberta-large 16 1e-05 10 0.08 | callbacks.patience=5 optimizer.weight_decay=0.1 "
    "model.max_length=512 model.gradient_clip_val=1.0",
    "tagger": "- 8 1e-05 6 - | optimizer.weight_decay=0.01",
    "t5": "google-t5/t5-base 16 - - 0.04 | callbacks.patience=5 model.max_length=512",
    "gpt2": "openai-community/gpt2 32 6.25e-05 10 0.04 | callbacks.patience=5",
    "dialogpt": "microsoft/DialoGPT-medium 32 6.25e-05 10 0.04 | callbacks.monitor=validation/faithdial/perplexity",
    "judge": "meta-llama/Llama-2-7b-hf 8 3e-05 2 0.03 | optimizer.schedule=cosine model.max_length=1280 "
    "model.lora_rank=None",
    "judge_lora": "meta-llama/Llama-2-13b-hf - 0.0003 3 0.1 | model.lora_rank=8 model.lora_modules=all-linear",
}
KEYS = ("model.weights", "model.batch_size", "optimizer.lr", "model.num_epochs", "optimizer.warmup")


@pytest.mark.parametrize("name", RECIPES)
def test_paper_scale_is_the_papers_recipe(name: str) -> None:
    values, _, others = RECIPES[name].partition(" | ")
    wanted = dict(zip(KEYS, values.split(), strict=True)) | dict(one.split("=") for one in others.split())
    cfg = compose("train", f"model={name}", "scale=paper")
    found = {key: str(OmegaConf.select(cfg, key)) for key, value in wanted.items() if value != "-"}
    assert found == {key: value for key, value in wanted.items() if value != "-"}


@pytest.mark.parametrize(
    ("model", "data", "rows_a_step", "validations"),
    [
        ("critic", "faithcritic", 64, 2),
        ("t5", "faithdial", 64, 2),
        ("gpt2", "faithdial", 128, 2),
        ("dialogpt", "faithdial", 128, 2),
        ("doha", "faithdial", 128, 2),
        ("tagger", "ragtruth", 8, 2),
        ("judge", "halludial", 8, 1),
        ("judge_lora", "halludial", 32, 1),
    ],
)
def test_a_model_learns_its_papers_data_in_its_steps(model: str, data: str, rows_a_step: int, validations: int) -> None:
    cfg = compose("train", f"model={model}", "scale=paper")
    assert (cfg.data.name, cfg.data.parts[0].path) == (data, "hub")
    assert cfg.model.batch_size * cfg.model.accumulate_grad_batches == rows_a_step
    assert cfg.model.validations_per_epoch == validations
    assert compose("train", f"model={model}", "scale=paper", "data=embedded").data.name == "embedded"


def test_infonce_compares_the_first_token_as_the_release_does() -> None:
    t5, gpt2 = (compose("train", f"model={name}", "objective=infonce", "scale=paper") for name in ("t5", "gpt2"))
    assert (t5.objective.query, gpt2.objective.query) == ("first_token", None)


def test_the_command_line_wins_over_model_and_scale() -> None:
    cfg = compose("train", "scale=paper", "optimizer.lr=3e-5", "model.batch_size=4")
    assert cfg.optimizer.lr == 3e-5 and cfg.data.batch_size == 4


def test_every_dataset_has_a_config_and_a_benchmark() -> None:
    assert set(choices("data")) == set(DATASETS) | {"mix", "wow_then_faithdial"}
    tested = {name for name in DATASETS if not find_dataset(name).train_only}
    protocols = {"halludial_comparative", "halueval_comparative", "meta_judging", "hallucination_rates"}
    others = {"transfer", "domains", "transfer_responses", "suppression", "analysis", "temperature_sweep", *protocols}
    assert set(choices("benchmark")) == tested | others


def test_what_the_configurations_name_is_what_may_be_built_and_nothing_else() -> None:
    named = set()
    for path in (ROOT / "configs").rglob("*.yaml"):
        named |= set(re.findall(r"^\s*_target_: (\S+)", path.read_text(), re.MULTILINE))
    assert named == set(TARGETS)
    for name, target in DATASETS.items():
        found = find_dataset(name)
        assert f"{found.__module__}.{found.__qualname__}" == target


@pytest.mark.parametrize("weights", ["FacebookAI/roberta-large", "answerdotai/ModernBERT-large"])
@pytest.mark.parametrize("scale", choices("scale"))
def test_the_recipe_for_unseen_domains_fits_every_scale_and_encoder(scale: str, weights: str) -> None:
    line = [*experiment_line("critic_general"), f"scale={scale}", f"model.weights={weights}"]
    model = plain_config("train", *line)["model"]
    options = CriticOptions(**{field.name: model[field.name] for field in fields(CriticOptions)})
    assert options.reads_tokens and options.freeze_encoder
    assert options.evidence_alone is (scale == "local"), "a head on an encoder of NLI learns"


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("data=embedded", "data=embedded from the embedded corpus"),
        ("data=everyday", "data=everyday from the package"),
        ("scale=paper", "data=faithcritic from the hub"),
        ("data.path=/corpora/wow data=wow", "data=wow from /corpora/wow"),
        ("experiment=critic_general data_dir=/corpora", "from /corpora/"),
    ],
)
def test_the_first_line_of_a_training_names_where_its_data_is(typed: str, place: str) -> None:
    assert place in describe_training(plain_config("train", *typed.split()))
