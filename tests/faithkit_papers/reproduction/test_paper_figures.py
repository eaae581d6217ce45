"""Figures of papers are drawn from the results of steps; without results the reason is printed."""

from dataclasses import replace
from pathlib import Path

import pytest

from data_modules.build import read_block
from faithkit.files.jsonl import write_jsonl
from faithkit.settings.config_files import EMBEDDED
from faithkit.statistics.metric import Metric, write_results
from faithkit_papers.reproduction.paper_parts import Figure
from faithkit_papers.reproduction.paper_tables import all_results, all_steps
from faithkit_papers.reproduction.reproduction_report import write_report, write_result
from faithkit_papers.reproduction.table_steps import LOCAL, Place, step_arguments
from tests.faithkit_workflows.pipelines.serving import construct_here

pytest.importorskip("matplotlib")
PNG = b"\x89PNG"


def recall_figure() -> Figure:
    figure = all_results(LOCAL)["ragtruth_figure_4"]
    assert isinstance(figure, Figure)
    return figure


def write_recalls(folder: Path, **recalls: float) -> None:
    folder.mkdir(parents=True)
    metrics = {
        f"test/ragtruth/type/{kind}/char_recall": Metric(value=value, low=value - 0.1, high=value + 0.1, n=9)
        for kind, value in recalls.items()
    }
    write_results(folder / "metrics.json", metrics, {})


def test_a_figure_is_drawn_without_the_systems_that_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure, place = recall_figure(), Place(scale=LOCAL, out=tmp_path)
    first, second = figure.used
    write_recalls(place.folder(second), evident_conflict=0.8)
    made = write_result(figure, place, {first: f"step {first} failed"})
    printed = capsys.readouterr().out
    assert made.image is not None and made.image.read_bytes().startswith(PNG)
    assert f"left out: step {first} failed" in printed and "the embedded corpus in place of ragtruth" in printed
    write_report(tmp_path / "docs.md", [made], place)
    assert "](tables/ragtruth_figure_4.png)" in (tmp_path / "docs.md").read_text()


def test_faithdials_figures_are_drawn_from_its_description(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(scale=LOCAL, out=tmp_path)
    figures = [all_results(LOCAL)[f"faithdial_figure_{number}"] for number in (2, 3)]
    steps = all_steps(figures)
    construct_here(*step_arguments(steps[0], place))
    for figure in figures:
        made = write_result(figure, place, {})
        assert made.image is not None and made.image.read_bytes().startswith(PNG)
    assert "recipe differs: left are the responses before their edits" in capsys.readouterr().out


@pytest.mark.parametrize("reason", ["ragtruth is missing below data_dir", ""])
def test_a_figure_without_results_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: str) -> None:
    figure = recall_figure()
    made = write_result(figure, Place(scale=LOCAL, out=tmp_path), dict.fromkeys(figure.used, reason) if reason else {})
    assert made.image is None and "1 not run" in made.verdicts
    assert f"not run: {reason or 'our data or models have nothing to show'}" in capsys.readouterr().out


@pytest.mark.parametrize("drawing", ["missed_topics", "topics"])
def test_topics_are_drawn(tmp_path: Path, drawing: str) -> None:
    place, labels = Place(scale=LOCAL, out=tmp_path), ["hallucinated", "faithful"]
    examples = read_block({"dataset": "halludial", "path": EMBEDDED, "topics_path": EMBEDDED})
    groups = [one.group for one in examples if "topic" in one.meta][:2]
    rows = [
        {"id": f"{group}{label}", "label": label, "score": 0.5, "group": group, "gold": "hallucinated"}
        for group, label in zip(groups, labels, strict=True)
    ]
    for step, found in {"a": rows, "b": [], "c": [{**rows[0], "group": "unknown"}]}.items():
        write_jsonl(place.folder(step) / "predictions" / "a.jsonl", found)
    systems = {"$ [b]": "a", "none": "b", "other dialogues": "c"}
    figure = Figure(name="f_1", title="t", paper="p", steps=(), used=(), systems=systems, drawing=drawing)
    path = figure.draw(place, tmp_path / "topics.png")
    assert path is not None and path.read_bytes().startswith(PNG)
    without = replace(figure, systems={"none": "b"}).draw(place, tmp_path / "none.png")
    assert (without is None) == (drawing == "missed_topics")
