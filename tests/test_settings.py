"""The types of keys: every configuration is accepted, every accepted key is read, and lists agree with the code."""

import re
from dataclasses import fields
from pkgutil import resolve_name
from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import ValidationError

from data_modules.data_options import USER_TABLE
from faithkit.errors import UserError
from faithkit.settings.check import read_settings
from faithkit.settings.command_line import CommandLine
from faithkit.settings.config_files import CONFIGS
from faithkit.settings.types import Block
from faithkit_workflows.settings import blocks, engines, training
from tests.running import ROOT, compose
from tests.test_configs import choices, experiment_line


def schema_of(script: str) -> str:
    """Names the schema of a script's configuration, as the script itself does."""
    module = {"train": "training", "evaluate": "evaluation", "construct": "construction"}.get(script, "prediction")
    return f"faithkit_workflows.settings.{module}:{script.title()}Settings"


def problems(script: str, *overrides: str) -> list[UserError]:
    """Finds what is wrong with the values themselves; files that are not here do not count."""
    config: Any = OmegaConf.to_container(compose(script, *overrides), resolve=True, throw_on_missing=True)
    schema: Any = resolve_name(schema_of(script))
    schema.model_validate(config)
    return [problem for problem in read_settings(config, schema)[1] if "no such" not in problem.problem]


MODEL = ["engine=transformers", "engine.model=smollm2-135m"]
SYSTEMS = ["benchmark.systems={small: {name: transformers, model: smollm2-135m}}"]
JUDGED = ["checkpoint=owner/model"]
# What a choice of a group needs to be complete.
NEEDED: dict[str, list[str]] = {
    f"data={USER_TABLE}": ["data.path=embedded"],
    f"benchmark={USER_TABLE}": ["benchmark.path=embedded", *JUDGED],
    "benchmark=_detection": ["benchmark.name=begin", *JUDGED],
    "benchmark=halludial_comparative": MODEL,
    "benchmark=halueval_comparative": MODEL,
    "benchmark=meta_judging": [*MODEL, f"benchmark.judgements={__file__}"],
    "benchmark=hallucination_rates": [*SYSTEMS, *JUDGED],
    "benchmark=temperature_sweep": [*SYSTEMS, *JUDGED],
    "pipeline=estimate": [f"pipeline.predictions={__file__}", f"pipeline.labels={__file__}"],
    "pipeline=agreement": [f"pipeline.annotations={__file__}"],
}
# The script, a group of its, and options; each with all choices of the group.
GROUPS = [
    *(("train", "model", [f"scale={scale}"]) for scale in choices("scale")),
    ("train", "trainer", []),
    ("train", "data", []),
    ("train", "objective", ["model=t5", "control=ctrl"]),
    ("generate", "data", JUDGED),
    ("generate", "decoding", JUDGED),
    ("chat", "decoding", JUDGED),
    ("evaluate", "benchmark", []),
    ("construct", "pipeline", MODEL),
    ("construct", "pipeline", [*MODEL, "models=[smollm2-135m]", "dry_run=true"]),
]
ACCEPTED = [
    *((script, [f"{group}={name}", *options]) for script, group, options in GROUPS for name in choices(group)),
    ("evaluate", ["benchmark=_detection"]),
    *(("train", experiment_line(experiment)) for experiment in choices("experiment")),
]


@pytest.mark.parametrize(("script", "line"), ACCEPTED, ids=str)
def test_every_choice_of_every_group_is_accepted(script: str, line: list[str]) -> None:
    needed = NEEDED.get(line[0], JUDGED if script == "evaluate" else [])
    found = [problem.problem for problem in problems(script, *line, *needed)]
    expected = ("no CUDA device", "matplotlib", "is not read from the hub")  # by what this machine and the hub have
    assert not [problem for problem in found if not any(text in problem for text in expected)]


@pytest.mark.parametrize("name", choices("objective"))
def test_the_keys_of_an_objective_are_the_options_of_its_class(name: str) -> None:
    block = compose("train", "model=t5", f"objective={name}").objective
    kept = fields(resolve_name(block._target_).options_class())
    assert set(block) == {"_target_", *(field.name for field in kept)}
    with pytest.raises(ValidationError, match=r"objective\.invented"):
        problems("train", "model=t5", f"objective={name}", "+objective.invented=1")


def test_lists_kept_here_to_avoid_importing_torch_are_those_of_the_code() -> None:
    from faithkit.inference import text
    from faithkit.training.loggers import CSV, TENSORBOARD, WANDB
    from generation.weights import AUTO, ENGINES
    from judge import options as judge_options
    from judge.reply import ASKINGS

    generator_engines = (AUTO, *ENGINES, engines.RAY)
    assert generator_engines == engines.GENERATOR_ENGINES and {AUTO, *ENGINES} < set(text.ENGINES)
    assert tuple(ASKINGS) == judge_options.ASKS
    assert set(blocks.LoggerBlocks.model_fields) == {CSV, TENSORBOARD, WANDB}


def test_a_monitor_may_be_any_metric_that_its_model_logs() -> None:
    import numpy as np

    from critic.sequence.module import validation_metrics as of_a_critic
    from critic.tagger.module import validation_metrics as of_a_tagger
    from faithkit.reports.perplexity_report import language_model_statistic
    from faithkit.statistics.bootstrap import Groups
    from judge.task import _compute_metrics as of_a_judge

    critic = of_a_critic(np.arange(3), np.array([[0.1, 0.9, 1], [0.8, 0.2, 0], [0.3, 0.4, 1]]))
    tagger = of_a_tagger(np.array([[0, 0], [0, 1], [1, 0]]), np.array([[0.5, 1, 2], [-1.0, 0, 3], [0.2, 0, 4]]))
    groups = Groups.of("ab")
    generator = language_model_statistic(groups, np.ones((2, 3)))(np.ones((1, 2)))
    constant = {"gold_rate", "majority_accuracy", "majority_macro_f1", "predicted_rate"}  # nothing to choose by
    # Of a judge: the sum of losses, tokens and right ones of each row, the verdict's log-odds, and the label.
    judge = of_a_judge(np.arange(3), np.array([[1.0, 2, 1, 0.3, 1], [1, 2, 1, -1, 0], [1, 2, 1, 2, 1]]))
    found = {"critic": critic.keys() - constant, "tagger": tagger, "generator": generator}
    found["judge"] = judge.keys() - constant
    allowed = {kind.name: kind.metrics for kind in training.MODEL_KINDS.values()}
    assert {kind: set(metrics) for kind, metrics in found.items()} == {k: set(names) for k, names in allowed.items()}


@pytest.mark.parametrize("block", [blocks.Data, blocks.Trainer, blocks.Callbacks])
def test_every_accepted_key_of_training_is_read_somewhere(block: type[Block]) -> None:
    folders = ("data_modules", "faithkit/training", "faithkit_workflows/train.py", "faithkit/reports")
    paths = [path for folder in folders for path in [ROOT / folder, *(ROOT / folder).rglob("*.py")] if path.is_file()]
    source = "\n".join(path.read_text() for path in paths)
    assert not {key for key in block.model_fields if not re.search(rf"\b{key}\b", source)} - {"corpus_seed"}  # in YAML


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("train", ["seed=1", "seed=2"], "seed is given 2 times: seed=2 counts"),
        ("train", ["data.embedded_rows={train: 5}"], "data.embedded_rows has no effect on files"),
        ("train", ["data=embedded", "data.embedded_rows={train: 5}"], "data.embedded_rows has no effect on data=emb"),
        ("train", ["data.num_folds=3"], "without data.fold"),
        ("train", ["optimizer.schedule=constant", "optimizer.floor=0.1"], "optimizer.floor has no effect"),
        ("train", ["scale.t5.lr=1e-3"], "scale.t5.lr has no effect"),
        ("generate", ["checkpoint=owner/model", "data.fold=1"], "data.fold has no effect in generate"),
        ("generate", ["checkpoint=owner/model", "entailment=owner/nli"], "entailment has no effect without resample"),
        ("evaluate", ["checkpoint=owner/model", "decoding.top_p=0.5"], "decoding.top_p has no effect"),
        ("evaluate", ["benchmark=faithdial", "predictions=README.md", "decoding.top_p=0.5"], "effect with predictions"),
    ],
)
def test_a_key_without_effect_is_noted(script: str, arguments: list[str], words: str) -> None:
    line = CommandLine(CONFIGS, script, arguments, schema_of(script))
    notes = list(line.check(line.compose()))
    assert any(words in note for note in notes), notes


@pytest.mark.parametrize("typed", ["pipeline.options={labelled_by: model}", "pipeline.options.labelled_by=model"])
def test_options_of_a_dataset_are_typed_without_a_plus(typed: str) -> None:
    typed_line = ["pipeline=describe", "pipeline.dataset=diahalu", typed, "pipeline.options.level=turn"]
    line = CommandLine(CONFIGS, "construct", typed_line, schema_of("construct"))
    assert line.compose().pipeline.options == {"labelled_by": "model", "level": "turn"}
