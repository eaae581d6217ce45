"""The tables in YAML: their steps are valid commands, their cells are the paper's, and a wrong key is an error."""

import re
from collections import Counter
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from data_modules.build import build_source
from data_modules.reading.files import HUB, HubSplit
from faithkit.errors import UserError
from faithkit.settings.command_line import CommandLine
from faithkit.settings.config_files import CONFIGS
from faithkit_papers.reproduction.paper_parts import Difference, Metric, Table
from faithkit_papers.reproduction.paper_tables import all_results, all_steps, steps_of
from faithkit_papers.reproduction.table_files import FILES, FOLDER
from faithkit_papers.reproduction.table_steps import LOCAL, ON_HUB, PAPER, Place, Step, step_arguments
from faithkit_workflows.sweep import quote_override
from tests.pages.reading import blocks

SETTINGS = {
    "train": "faithkit_workflows.settings.training:TrainSettings",
    "evaluate": "faithkit_workflows.settings.evaluation:EvaluateSettings",
    "construct": "faithkit_workflows.settings.construction:ConstructSettings",
}
SCALES = (LOCAL, PAPER)
CHAR = "metric: test/ragtruth/{part}char"


def all_tables(scale: str) -> dict[str, Table]:
    return {name: result for name, result in all_results(scale).items() if isinstance(result, Table)}


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
def test_every_result_belongs_to_a_step_that_measures_it_after_those_that_it_needs(scale: str) -> None:
    steps: dict[str, Step] = {}
    for result in all_results(scale).values():
        for step in result.steps:
            assert steps.setdefault(step.name, step) == step, "steps of one name are one step"
    for table in all_tables(scale).values():
        order = [step.name for step in steps_of(table)]
        assert set(table.used) <= set(order), table.name
        for step in steps_of(table):
            assert all(order.index(needed) < order.index(step.name) for needed in step.steps.values())
        places = Counter((cell.row, cell.column) for cell in table.cells)
        assert max(places.values()) == 1, table.name
        for cell in table.cells:
            metric = cell.result.metric if isinstance(cell.result, Difference) else cell.result
            if isinstance(metric, Metric) and metric.step != "critics_transfer":
                given = dict(a.split("=", 1) for a in steps[metric.step].arguments)
                measured = given.get("benchmark") or given.get("data") or given.get("pipeline.dataset")
                measured = measured or given.get("pipeline.title")
                assert metric.name.split("/")[1] == measured, (table.name, metric)


def test_scales_have_the_same_published_figures() -> None:
    local, paper = (
        {name: [(cell.row, cell.column, cell.published) for cell in table.cells] for name, table in found.items()}
        for found in map(all_tables, SCALES)
    )
    assert [name for name in local if local[name] != paper[name]] == ["faithdial_5"]  # its grid is smaller here


def test_the_papers_grid_is_whole() -> None:
    trained = {step.name for step in all_tables(PAPER)["faithdial_5"].steps if step.script == "train"}
    backbones = ("gpt2", "dialogpt", "doha", "t5", "t5_ctrl", "t5_losstruncation")
    for data in ("wow", "faithdial", "wow_then_faithdial"):
        assert {f"generator_{model}_{data}" for model in backbones} <= trained
    assert {f"generator_t5_infonce_{data}" for data in ("faithdial", "wow_then_faithdial")} <= trained
    assert len(trained) == 20 + 1  # and the critic that judges


def test_detectors_are_shown_by_the_model_that_wrote_the_responses() -> None:
    table = all_tables(PAPER)["ragtruth_5_models"]
    assert len(table.cells) == 6 * 6 * 3 and all(cell.published is None and cell.why for cell in table.cells)
    names = {cell.result.name for cell in table.cells if isinstance(cell.result, Metric)}
    assert "test/ragtruth/model/mistral-7B-instruct/response_f1" in names, "as the corpus spells it"


def test_corpora_on_the_hub_have_a_hub_split() -> None:
    for name in ON_HUB:
        files = build_source(name, HUB).files()
        assert all(isinstance(file, HubSplit) for split in files.values() for file in split)


def test_quoted_paths_are_not_interpreted_by_hydra() -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for text in ("runs/a", "/x y/it's", "a,b", "5", "null", "./5", "{a}"):
        parsed = OverridesParser.create().parse_override(f"key={quote_override(text)}")
        assert str(parsed.value()) == text and not parsed.is_sweep_override()


@pytest.mark.parametrize(
    ("file", "old", "new", "place", "problem", "hint"),
    [
        ("ragtruth", "tables:", "table:", ".yaml", "no key table", "tables"),
        ("ragtruth", "    published: ragtruth_basic", "    publshed: x", "ragtruth_2", "publshed", "published"),
        ("ragtruth", '    row: "{task}"\n', "", "ragtruth_2", "there is no row", ""),
        ("ragtruth", CHAR, "metrik: x", "ragtruth_6", "results.1.metrik", "metric"),
        ("ragtruth", f"- {CHAR}", "- why: x\n        metric: x{part}", "ragtruth_6", "give one of metric", ""),
        ("ragtruth", "sources]}", "sources], factor: 100}", "ragtruth_2", "factor has no effect beside count", ""),
        ("ragtruth", "/{part}response_", "/{prt}response_", "ragtruth_5", "no field prt", "part"),
        ("ragtruth", "spans_each: spans a", "spans_eech: spans a", "ragtruth_4", "no field spans_eech", "spans_each"),
        ("ragtruth", "steps: [ragtruth_sup", "steps: [ragtruth_sop", "ragtruth_7", "no step ragtruth_sop", "_supp"),
        ("ragtruth", "    step: ragtruth_suppressed", "    step: x", "ragtruth_7", "no step x", "ragtruth_suppressed"),
        ("ragtruth", "compute: ragtruth_rates", "compute: rates", "ragtruth_3", "no computation rates", "ragtruth"),
        ("diahalu", "{column: dialogues}, count", "{column: x}, count", "diahalu_2", "no rule of results holds", ""),
        ("ragtruth", "    script: train", "    script: trian", "steps.ragtruth_detector", "script is 'trian'", ""),
        ("ragtruth", "{checkpoint: ragtruth_detector}", "{checkpoint: x}", "steps.ragtruth_scored", "no step x", ""),
        ("halludial", "    dataset: halludial", "    datset: halludial", "steps.halludial_3", "datset", "dataset"),
        ("plots", "drawing: recalls", "drawing: recall", "ragtruth_figure_4", "no drawing recall", "recalls"),
        ("plots", "table: ragtruth_6", "table: ragtruth_16", "ragtruth_figure_4", "no table ragtruth_16", "ragtruth_6"),
        ("plots", "    plot: types.png\n", "    plot: a\n    plot: b\n", ".yaml", "key plot is repeated", ""),
    ],
)
def test_a_wrong_key_is_an_error_that_names_file_and_key(
    tmp_path: Path, file: str, old: str, new: str, place: str, problem: str, hint: str
) -> None:
    for name in FILES:
        text = (FOLDER / f"{name}.yaml").read_text("utf-8")
        if name == file:
            assert old in text
            text = text.replace(old, new, 1)
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
    with pytest.raises(UserError, match=re.escape(problem)) as refused:
        all_results(PAPER, tmp_path)
    assert refused.value.place and f"{file}.yaml" in refused.value.place and place in refused.value.place
    assert hint in (refused.value.hint or "")


def test_the_table_of_extending_is_read(tmp_path: Path) -> None:
    (example,) = map(yaml.safe_load, blocks("docs/project/extending.md", "yaml"))
    for name in FILES:
        written = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
        if name == "plots":
            written = {**written, "steps": written["steps"] | example["steps"], "tables": example["tables"]}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(written, sort_keys=False), "utf-8")
    for scale in SCALES:
        table = all_results(scale, tmp_path)["lettuce_1"]
        assert isinstance(table, Table) and [step.name for step in steps_of(table)] == ["lettuce", "lettuce_scored"]
        cells = [(cell.row, cell.column, cell.published, cell.digits, cell.result) for cell in table.cells]
        assert cells[:2] == [
            ("LettuceDetect base", "responses, F1", 76.07, 2, Metric("lettuce_scored", "test/ragtruth/response_f1")),
            ("LettuceDetect base", "characters, F1", 55.44, 2, Metric("lettuce_scored", "test/ragtruth/char_f1")),
        ]
        assert [cell.result for cell in table.cells[2:]] == [None, None]


def test_models_have_the_gpus_that_their_size_needs() -> None:
    for step in every_step(PAPER):
        model = next((one for one in step.arguments if one.startswith("engine.model=")), "")
        if size := re.search(r"-(\d+)b\b", model, re.IGNORECASE):
            gigabytes = 2.7 * int(size[1])  # 2 for each weight in BF16, others for keys and values
            assert step.num_gpus == next(number for number in (1, 2, 4) if gigabytes <= 80 * number), step.name
