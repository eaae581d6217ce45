"""Draws the figures of papers from our data and models.

The papers print no numbers for them, so a figure has no verdict: it is compared by eye.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

from pydantic import ConfigDict

from faithkit.files.jsonl import read_jsonl
from faithkit.metrics.results import read_metrics
from faithkit.pages.plotting import COLOURS, STYLE, legend_above, new_figure, percent_axis, plot_name, save_figure
from faithkit.records import HALLUCINATED
from faithkit.settings.config_files import EMBEDDED
from faithkit.statistics.metric import Metric as Estimate
from faithkit_papers.reproduction.table_steps import Place, Step

Draw = Callable[["Figure", Place, Path], Path | None]
TYPES = ("evident_conflict", "subtle_conflict", "evident_baseless", "subtle_baseless")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a paper.

    Args:
        name: Its name on the command line, with its number in the paper at the end.
        paper: Authors and year.
        steps: Every step that it may need.
        used: The names of the steps with the results that it shows.
        systems: The steps of the systems that it shows, by the systems' names.
        plot: A plot that the last step writes, if it is one.
        drawing: What of DRAWINGS draws it, if it is no such plot.
        differs: What it shows otherwise than the paper's.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    title: str
    paper: str
    steps: tuple[Step, ...]
    used: tuple[str, ...]
    systems: Mapping[str, str] = field(default_factory=dict)
    plot: str = ""
    drawing: str = ""
    differs: tuple[str, ...] = ()

    @property
    def citation(self) -> str:
        """Cites paper and figure."""
        return f"{self.paper}, Figure {self.name.rpartition('_')[2]}"

    def draw(self, place: Place, path: Path) -> Path | None:
        """Draws it into a file; returns None if the results lack the data."""
        if self.drawing:
            return DRAWINGS[self.drawing](self, place, path)
        plot = place.folder(self.used[-1]) / self.plot
        return Path(shutil.copyfile(plot, path)) if plot.exists() else None


def draw_recalls(figure: Figure, place: Place, path: Path) -> Path | None:
    """Draws the recall of each type as bars with intervals, one colour for each system."""
    recalls: dict[str, dict[str, Estimate]] = {}  # of the detectors that ran and mark types
    for system, step in figure.systems.items():
        metrics = read_metrics(place.folder(step) / "metrics.json")
        names = {name.split("/")[-2]: name for name in metrics if name.endswith("/char_recall") and "/type/" in name}
        ordered = sorted(names, key=lambda name: (TYPES.index(name) if name in TYPES else len(TYPES), name))
        if ordered:
            recalls[system] = {kind: Estimate(**metrics[names[kind]]) for kind in ordered}
    if not recalls:
        return None
    from matplotlib import rc_context

    kinds = list(dict.fromkeys(kind for found in recalls.values() for kind in found))
    width = 0.8 / len(recalls)
    with rc_context(STYLE):
        shown, axes = new_figure(7, 3.6)
        for number, (system, found) in enumerate(recalls.items()):
            estimates = list(found.values())
            middles = [kinds.index(kind) + (number - (len(recalls) - 1) / 2) * width for kind in found]
            values = [one.value for one in estimates]
            below = [one.value - (one.value if one.low is None else one.low) for one in estimates]
            above = [(one.value if one.high is None else one.high) - one.value for one in estimates]
            colour = COLOURS[number % len(COLOURS)]
            axes.bar(middles, values, width * 0.92, color=colour, label=plot_name(system))
            axes.errorbar(middles, values, yerr=[below, above], fmt="none", ecolor="#444444", capsize=2.5)
        axes.set_xticks(range(len(kinds)), [plot_name(kind.replace("_", " ")) for kind in kinds])
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(percent_axis())
        legend_above(axes, "Recall of hallucinated characters by type")
        return save_figure(shown, path)


def draw_topics(figure: Figure, place: Place, path: Path) -> Path | None:
    """Draws the most frequent topics of a corpus, or of some predictions of each system; a panel for each.

    The topics of HalluDial's dialogues are those of Wizard of Wikipedia's, by joining both.
    """
    from data_modules.build import build_source
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport

    of_diahalu = figure.drawing == "topic_sources"
    dataset, name = ("diahalu", "topic_source") if of_diahalu else ("halludial", "topic")
    options: dict[str, Any] = {} if of_diahalu else {"topics_path": str(place.corpus("wow") or EMBEDDED)}
    source = build_source(dataset, str(place.corpus(dataset) or EMBEDDED), **options)
    examples = (one for split in source.split_names() for one in read_examples(source, split, ReadReport()))
    topics = {one.group: one.meta[name] for one in examples if name in one.meta}  # by dialogue
    panels: dict[str, Counter[str]] = {}
    if figure.drawing in ("topic_sources", "topics"):
        panels[f"{'DiaHalu' if of_diahalu else 'HalluDial'}'s dialogues"] = Counter(topics.values())
    for system, step in figure.systems.items() if not panels else ():
        files = sorted((place.folder(step) / "predictions").glob("*.jsonl"))
        rows = [row for file in files for row in read_jsonl(file) if row.get("group") in topics]
        if figure.drawing == "missed_topics":
            rows = [row for row in rows if row.get("gold") == HALLUCINATED and row.get("label") != HALLUCINATED]
        else:
            rows = [row for row in rows if row.get("label") == HALLUCINATED]
        panels[system] = Counter(topics[row["group"]] for row in rows)
    panels = {name: counts for name, counts in panels.items() if counts}
    if not panels:
        return None
    from matplotlib import rc_context

    columns = min(3, len(panels))
    num_rows = -(-len(panels) // columns)
    with rc_context(STYLE):
        shown, _ = new_figure(4 * columns, 3.6 * num_rows, rows=num_rows, columns=columns)
        for axes, (name, counts) in zip(shown.axes, panels.items(), strict=False):
            most = counts.most_common(15)
            axes.barh([plot_name(topic) for topic, _ in most], [count for _, count in most], color=COLOURS[0])
            axes.invert_yaxis()
            axes.set_title("\n".join(wrap(plot_name(name), 34)))
            axes.set_xlabel(f"of {counts.total():,} in all, {len(counts):,} kinds")
        for axes in shown.axes[len(panels) :]:
            axes.remove()
        return save_figure(shown, path)


DRAWINGS: Mapping[str, Draw] = {
    "recalls": draw_recalls,
    **dict.fromkeys(("topic_sources", "topics", "missed_topics", "hallucinated_topics"), draw_topics),
}
