"""The declared tables: their steps are valid commands, and their cells are the paper's."""

from collections import Counter
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from omegaconf import OmegaConf

from data_modules.build import build_source
from data_modules.reading.files import HUB
from data_modules.reading.saved_datasets import HubSplit
from faithkit.settings.command_line import CommandLine
from faithkit.settings.config_files import CONFIGS
from faithkit_workflows.reproduction.cells import Difference, Metric
from faithkit_workflows.reproduction.paper_tables import all_results, all_steps, all_tables, list_names, steps_of
from faithkit_workflows.reproduction.table_steps import LOCAL, ON_HUB, PAPER, Place, Step, step_arguments
from faithkit_workflows.sweep.launching import quote_override

SETTINGS = {
    "train": "faithkit_workflows.settings.training:TrainSettings",
    "evaluate": "faithkit_workflows.settings.evaluation:EvaluateSettings",
    "construct": "faithkit_workflows.settings.construction:ConstructSettings",
}
SCALES = (LOCAL, PAPER)


def every_step(scale: str) -> list[Step]:
    return list(all_steps(all_results(scale).values()))


def covering() -> list[tuple[str, Step]]:
    """Chooses steps, with their scale, among which is every key of every benchmark, model and pipeline."""
    seen: set[tuple[str, str]] = set()
    chosen = []
    for scale in SCALES:
        for step in every_step(scale):
            of = next(a for a in step.arguments if a.startswith(("benchmark=", "model=", "pipeline=")))
            keys = [a.partition("=")[0] if "." in a.partition("=")[0] else a for a in step.arguments]
            found = {(of, key) for key in (*keys, *step.corpora, *step.steps)}
            if found - seen:
                seen |= found
                chosen.append((scale, step))
    assert {scale for scale, _ in chosen} == set(SCALES)
    return chosen


def test_every_table_and_figure_has_a_name_on_the_command_line() -> None:
    for scale in SCALES:
        assert sorted(all_results(scale)) == sorted(list_names())


@pytest.mark.slow
def test_every_command_is_valid(tmp_path: Path) -> None:
    for scale, step in covering():
        place = Place(scale=scale, out=Path("out"), data_dir=tmp_path)
        for corpus in step.corpora.values():
            (tmp_path / corpus).mkdir(exist_ok=True)
        arguments = step_arguments(step, place)
        line = CommandLine(CONFIGS, step.script, arguments, SETTINGS[step.script])
        config: Any = OmegaConf.to_container(line.compose(), resolve=True, throw_on_missing=True)
        schema: Any = resolve_name(SETTINGS[step.script])
        schema.model_validate(config)
        assert config["run_dir"] == f"out/steps/{step.name}" and config["scale"]["name"] == scale


@pytest.mark.parametrize("scale", SCALES)
def test_steps_of_one_name_are_one_step(scale: str) -> None:
    found: dict[str, Step] = {}
    for result in all_results(scale).values():
        for step in result.steps:
            assert found.setdefault(step.name, step) == step


@pytest.mark.parametrize("scale", SCALES)
def test_every_result_belongs_to_a_step_after_those_that_it_needs(scale: str) -> None:
    for table in all_tables(scale).values():
        order = [step.name for step in steps_of(table)]
        assert set(table.used) <= set(order), table.name
        for step in steps_of(table):
            assert all(order.index(needed) < order.index(step.name) for needed in step.steps.values())
        places = Counter((cell.row, cell.column) for cell in table.cells)
        assert max(places.values()) == 1, table.name


@pytest.mark.parametrize("scale", SCALES)
def test_a_metric_is_named_by_what_its_step_measures(scale: str) -> None:
    steps = {step.name: step for step in every_step(scale)}
    for table in all_tables(scale).values():
        for cell in table.cells:
            metric = cell.result.metric if isinstance(cell.result, Difference) else cell.result
            if isinstance(metric, Metric) and metric.step != "critics_transfer":
                given = dict(a.split("=", 1) for a in steps[metric.step].arguments)
                measured = given.get("benchmark") or given.get("data") or given.get("pipeline.dataset")
                measured = measured or given.get("pipeline.title")
                assert metric.name.split("/")[1] == measured, (table.name, metric)


def test_scales_have_the_same_published_figures() -> None:
    local, paper = all_tables(LOCAL), all_tables(PAPER)
    for name, table in local.items():
        if name == "faithdial_5":
            continue  # its grid is smaller at the local scale
        figures = [(cell.row, cell.column, cell.published) for cell in table.cells]
        assert figures == [(cell.row, cell.column, cell.published) for cell in paper[name].cells]


def test_the_papers_grid_is_whole() -> None:
    trained = {step.name for step in all_tables(PAPER)["faithdial_5"].steps if step.script == "train"}
    backbones = ("gpt2", "dialogpt", "doha", "t5", "t5_ctrl", "t5_losstruncation")
    for data in ("wow", "faithdial", "wow_then_faithdial"):
        assert {f"generator_{model}_{data}" for model in backbones} <= trained
    assert {f"generator_t5_infonce_{data}" for data in ("faithdial", "wow_then_faithdial")} <= trained
    assert len(trained) == 20 + 1  # and the critic that judges


def test_corpora_on_the_hub_have_a_hub_split() -> None:
    for name in ON_HUB:
        files = build_source(name, HUB).files()
        assert all(isinstance(file, HubSplit) for split in files.values() for file in split)


def test_quoted_paths_are_not_interpreted_by_hydra() -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for text in ("runs/a", "/x y/it's", "a,b", "5", "null", "./5", "{a}"):
        parsed = OverridesParser.create().parse_override(f"key={quote_override(text)}")
        assert str(parsed.value()) == text and not parsed.is_sweep_override()
