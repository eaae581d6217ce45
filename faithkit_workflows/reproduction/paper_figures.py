"""Declares the figures of papers that `faithkit reproduce` draws from our data and models.

The papers print no numbers for them, so a figure has no verdict: it is compared by eye.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any

from faithkit.embedded_name import EMBEDDED
from faithkit.files.jsonl import read_jsonl
from faithkit.metrics.results import read_metrics
from faithkit.pages.plotting import COLOURS, STYLE, legend_above, new_figure, percent_axis, plot_name, save_figure
from faithkit.records import HALLUCINATED
from faithkit.statistics.metric import Metric as Estimate
from faithkit_workflows.reproduction.cells import Metric, Table
from faithkit_workflows.reproduction.halludial_tables import temperature_step
from faithkit_workflows.reproduction.table_steps import Place, Step, describe_step

Draw = Callable[[Place, Path], Path | None]
PAPERS = {"ragtruth": "Niu et al. 2024", "halludial": "Luo et al. 2024", "diahalu": "Chen et al. 2024"}
MAX_TOPICS = 15
TOPICS_KEY = "pipeline.options.topics_path"
PLOT = "temperature.png"  # of benchmark=temperature_sweep
TYPES = ("evident_conflict", "subtle_conflict", "evident_baseless", "subtle_baseless")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a paper.

    Args:
        dataset: The paper's dataset.
        number: In the paper.
        title: Its title.
        steps: Every step that it may need.
        used: The names of the steps with the results that it shows.
        draw: Draws it into a file; returns None if the results lack the data.
    """

    dataset: str
    number: int
    title: str
    steps: tuple[Step, ...]
    used: tuple[str, ...]
    draw: Draw

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return f"{self.dataset}_figure_{self.number}"

    @property
    def citation(self) -> str:
        """Cites paper and figure."""
        return f"{PAPERS[self.dataset]}, Figure {self.number}"


def build_figures(tables: Mapping[str, Table], scale: str) -> Iterator[Figure]:
    """Builds the figures; those about detectors share the steps of the tables."""
    for dataset, number, plot, title in (
        ("ragtruth", 2, "types", "Types of hallucination by task"),
        ("ragtruth", 3, "positions", "Positions of hallucinated spans in responses"),
        ("diahalu", 5, "types", "Types of hallucination by domain"),
    ):
        step = describe_step(dataset, dataset, part="plots", plots=True)
        yield Figure(
            dataset=dataset,
            number=number,
            title=title,
            steps=(step,),
            used=(step.name,),
            draw=_copy_plot(step, f"{plot}.png"),
        )
    described = describe_step("diahalu", "diahalu")
    yield Figure(
        dataset="diahalu",
        number=3,
        title="Sources of the dialogues' topics",
        steps=(described,),
        used=(described.name,),
        draw=_draw_sources,
    )
    yield _recall_figure(tables["ragtruth_6"])
    judge = next(step for step in tables["halludial_6"].steps if step.script == "train")
    sweep = temperature_step(scale, judge)
    yield Figure(
        dataset="halludial",
        number=3,
        title="Hallucination rates by temperature",
        steps=(judge, sweep),
        used=(sweep.name,),
        draw=_copy_plot(sweep, PLOT),
    )
    yield from _topic_figures(tables)


def _draw_sources(place: Place, path: Path) -> Path | None:
    return plot_topics({"DiaHalu's dialogues": Counter(_read_facts(place, "diahalu", "topic_source").values())}, path)


def _copy_plot(step: Step, name: str) -> Draw:
    def draw(place: Place, path: Path) -> Path | None:
        plot = place.folder(step.name) / name
        return Path(shutil.copyfile(plot, path)) if plot.exists() else None

    return draw


def _recall_figure(table: Table) -> Figure:
    """Builds RAGTruth's Figure 4 from the detectors of its Table 6."""
    systems = _systems(table)

    def draw(place: Place, path: Path) -> Path | None:
        recalls = {system: read_recalls(place.folder(step)) for system, step in systems.items()}
        return plot_recalls({system: found for system, found in recalls.items() if found}, path)

    return Figure(
        dataset="ragtruth",
        number=4,
        title="Recall of hallucinated characters by type",
        steps=table.steps,
        used=tuple(dict.fromkeys(systems.values())),
        draw=draw,
    )


def read_recalls(folder: Path) -> dict[str, Estimate]:
    """Reads the recall of each type from the metrics of a detector; empty if it did not run or marks no types."""
    path = folder / "metrics.json"
    metrics = read_metrics(path) if path.exists() else {}
    names = {name.split("/")[-2]: name for name in metrics if name.endswith("/char_recall") and "/type/" in name}
    return {kind: Estimate(**metrics[names[kind]]) for kind in sorted(names, key=_order_of_type)}


def _order_of_type(name: str) -> tuple[int, str]:
    return (TYPES.index(name) if name in TYPES else len(TYPES), name)


def plot_recalls(recalls: Mapping[str, Mapping[str, Estimate]], path: Path) -> Path | None:
    """Plots the recall of each type as bars with intervals, one colour for each system."""
    if not recalls:
        return None
    from matplotlib import rc_context

    kinds = list(dict.fromkeys(kind for found in recalls.values() for kind in found))
    width = 0.8 / len(recalls)
    with rc_context(STYLE):
        figure, axes = new_figure(7, 3.6)
        for place, (system, found) in enumerate(recalls.items()):
            shown = [(kinds.index(kind), estimate) for kind, estimate in found.items()]
            middles = [at + (place - (len(recalls) - 1) / 2) * width for at, _ in shown]
            values = [estimate.value for _, estimate in shown]
            below = [one.value - (one.value if one.low is None else one.low) for _, one in shown]
            above = [(one.value if one.high is None else one.high) - one.value for _, one in shown]
            colour = COLOURS[place % len(COLOURS)]
            axes.bar(middles, values, width * 0.92, color=colour, label=plot_name(system))
            axes.errorbar(middles, values, yerr=[below, above], fmt="none", ecolor="#444444", capsize=2.5)
        axes.set_xticks(range(len(kinds)), [plot_name(kind.replace("_", " ")) for kind in kinds])
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(percent_axis())
        legend_above(axes, "Recall of hallucinated characters by type")
        return save_figure(figure, path)


def _topic_figures(tables: Mapping[str, Table]) -> Iterator[Figure]:
    """Builds HalluDial's figures of topics, which come from Wizard of Wikipedia's files."""
    described = describe_step("halludial", "halludial", f"{TOPICS_KEY}={EMBEDDED}", part="topics")
    described = replace(described, corpora={**described.corpora, f"{TOPICS_KEY}": "wow"})

    def draw_corpus(place: Place, path: Path) -> Path | None:
        return plot_topics({"HalluDial's dialogues": Counter(read_topics(place).values())}, path)

    yield Figure(
        dataset="halludial",
        number=2,
        title="Topics of the dialogues",
        steps=(described,),
        used=(described.name,),
        draw=draw_corpus,
    )
    for number, table, title, keep in (
        (4, tables["halludial_2"], "Topics of the hallucinations that systems do not detect", _is_missed),
        (5, tables["halludial_6"], "Topics of the hallucinations of language models", _is_hallucinated),
    ):
        systems = _systems(table)

        def draw(
            place: Place,
            path: Path,
            systems: Mapping[str, str] = systems,
            keep: Callable[[Mapping[str, Any]], bool] = keep,
        ) -> Path | None:
            topics = read_topics(place)
            found = {name: count_topics(place.folder(step), topics, keep) for name, step in systems.items()}
            return plot_topics(found, path)

        yield Figure(
            dataset="halludial",
            number=number,
            title=title,
            steps=(*table.steps, described),
            used=(*dict.fromkeys(systems.values()), described.name),
            draw=draw,
        )


def _is_missed(row: Mapping[str, Any]) -> bool:
    return row.get("gold") == HALLUCINATED and row.get("label") != HALLUCINATED


def _is_hallucinated(row: Mapping[str, Any]) -> bool:
    return row.get("label") == HALLUCINATED


def _systems(table: Table) -> dict[str, str]:
    """Lists the steps of the systems of a table, by the name of the system or of its replacement."""
    stand_ins = {step.name: step.stand_in for step in table.steps}
    results = [(cell.row, cell.result) for cell in table.cells if isinstance(cell.result, Metric)]
    return {stand_ins[one.step] or row.partition(";")[0]: one.step for row, one in results}


def read_topics(place: Place) -> dict[str, str]:
    """Reads the topics of HalluDial's dialogues by joining them with Wizard of Wikipedia's."""
    return _read_facts(place, "halludial", "topic", topics_path=str(place.corpus("wow") or EMBEDDED))


def _read_facts(place: Place, dataset: str, name: str, **options: Any) -> dict[str, str]:
    """Reads a field of the rows' meta by dialogue; dialogues without it are left out."""
    from data_modules.build import build_source
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport

    source = build_source(dataset, str(place.corpus(dataset) or EMBEDDED), **options)
    examples = (one for split in source.split_names() for one in read_examples(source, split, ReadReport()))
    return {one.group: one.meta[name] for one in examples if name in one.meta}


def count_topics(folder: Path, topics: Mapping[str, str], keep: Callable[[Mapping[str, Any]], bool]) -> Counter[str]:
    """Counts the topics of the predictions of a run that `keep` selects.

    Args:
        topics: By dialogue.
    """
    files = sorted((folder / "predictions").glob("*.jsonl"))
    rows = (row for path in files for row in read_jsonl(path))
    return Counter(topics[row["group"]] for row in rows if row.get("group") in topics and keep(row))


def plot_topics(panels: Mapping[str, Mapping[str, int]], path: Path) -> Path | None:
    """Plots the counts of the most frequent topics, a panel for each system or corpus."""
    panels = {name: counts for name, counts in panels.items() if counts}
    if not panels:
        return None
    from matplotlib import rc_context

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with rc_context(STYLE):
        figure, _ = new_figure(4 * columns, 3.6 * rows, rows=rows, columns=columns)
        for axes, (name, counts) in zip(figure.axes, panels.items(), strict=False):
            total = sum(counts.values())
            shown = Counter(counts).most_common(MAX_TOPICS)
            axes.barh([plot_name(topic) for topic, _ in shown], [count for _, count in shown], color=COLOURS[0])
            axes.invert_yaxis()
            axes.set_title("\n".join(wrap(plot_name(name), 34)))
            axes.set_xlabel(f"of {total:,} in all, {len(counts):,} kinds")
        for axes in figure.axes[len(panels) :]:
            axes.remove()
        return save_figure(figure, path)
