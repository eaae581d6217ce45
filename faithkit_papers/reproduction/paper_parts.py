"""The parts of papers that are reproduced: cells of tables, each with the published figure and ours, and drawings.

Ours is within, above or below the published figure, by our interval or by the digits printed. The papers print no
numbers for their drawings (`Figure`), so these have no verdict: they are compared by eye.
"""

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import wrap
from typing import Any

from pydantic import ConfigDict

from faithkit.files.jsonl import read_jsonl, read_strict_json
from faithkit.pages.plotting import COLOURS, STYLE, legend_above, new_figure, percent_axis, plot_name, save_figure
from faithkit.records import HALLUCINATED
from faithkit.settings.config_files import EMBEDDED
from faithkit.statistics.metric import Metric as Estimate  # a figure of ours, with its interval if it has one
from faithkit.statistics.metric import read_metrics
from faithkit_papers.published_figures import paper_table
from faithkit_papers.reproduction.table_steps import Place, Step

WITHIN, ABOVE, BELOW, NOT_COMPARABLE = "within", "above", "below", "not comparable"
Draw = Callable[["Figure", Place, Path], Path | None]
TYPES = ("evident_conflict", "subtle_conflict", "evident_baseless", "subtle_baseless")


def compare_with_published(ours: Estimate, published: float, *, digits: int) -> str:
    """Compares our figure with a published one.

    A published figure may be any value that rounds to it. Ours is within if one of these lies in our interval, or,
    without an interval, if ours rounds to it too.

    Args:
        published: As printed.
        digits: The decimal digits of its column.
    """
    half = 0.5 * 10.0**-digits
    slack = half + 1e-9 * max(1.0, abs(published))
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    if low > published + slack:
        return ABOVE
    return BELOW if high < published - slack else WITHIN


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of metrics.json with its interval; with the embedded corpus the dataset's name begins with `embedded-`.

    Args:
        otherwise: Another metric, if there is none of this name.
        of_baseline: It does not depend on the step's model.
    """

    step: str
    name: str
    factor: float = 100.0
    otherwise: str = ""
    of_baseline: bool = False

    def read(self, folder: Path) -> Estimate | None:
        """Reads the metric; None if the run does not have it."""
        metrics = read_metrics(folder / "metrics.json")
        names = [one for name in (self.name, self.otherwise) if name for one in _name_embedded(name)]
        found = next((metrics[name] for name in names if name in metrics), None)
        if found is None:
            return None
        return Estimate(**{name: number if name == "n" else number * self.factor for name, number in found.items()})

    def read_unparsed(self, folder: Path) -> float:
        """Reads the share of replies without a verdict among the metric's rows; 0 if the run does not count them."""
        metrics = read_metrics(folder / "metrics.json")
        parts = self.name.split("/")
        for number in range(len(parts) - 1, 1, -1):  # of its part of the data, or of the whole test set
            for one in _name_embedded("/".join([*parts[:number], "unparsed_rate"])):
                if one in metrics and not self.of_baseline:
                    return float(metrics[one]["value"])
        return 0.0


@dataclass(frozen=True, slots=True)
class HumanScore(Metric):
    """The mean score of a system by people, `test/<title>/<column>/<system>/mean` of pipeline=agreement."""

    def read_stars(self, folder: Path) -> str:
        """Reads the stars of the difference from the best system of the column."""
        _, _, column, system, _ = self.name.split("/")
        for one in read_strict_json(folder / "metrics.json", hint=f"delete {folder}")["meta"]["compared"]:
            if (one["column"], one["system"]) == (column, system):
                return str(one.get("to_best", {}).get("stars", ""))
        return ""


def _name_embedded(name: str) -> tuple[str, str]:
    """Returns a metric's name, and its name with the embedded corpus."""
    split, _, rest = name.partition("/")
    return name, f"{split}/embedded-{rest}"


@dataclass(frozen=True, slots=True)
class Count:
    """A number of corpus.json; it has no interval, and needs the whole corpus."""

    step: str
    path: tuple[str | int, ...]

    def read(self, folder: Path) -> Estimate | None:
        """Reads the number; None if the corpus does not have it."""
        value = _read_corpus(folder, self.path)
        return None if value is None else Estimate(value=float(value))


@dataclass(frozen=True, slots=True)
class Share:
    """One of several counts of corpus.json as percent of their sum, with Wilson's interval.

    Args:
        path: To the counts by name.
        part: The name.
        of: The name of the total, if it is not the sum.
        exact: The paper's share is of the same rows, so ours has no interval.
    """

    step: str
    path: tuple[str | int, ...]
    part: str
    of: str = ""
    exact: bool = False

    def read(self, folder: Path) -> Estimate | None:
        """Reads the share; None if nothing was counted."""
        from scipy.stats import binomtest

        counts = _read_corpus(folder, self.path)
        if not counts or not (total := counts[self.of] if self.of else sum(counts.values())):
            return None
        if self.exact:
            return Estimate(value=100 * counts[self.part] / total, n=total)
        bounds = binomtest(counts[self.part], total).proportion_ci(method="wilson")
        share = 100 * (counts[self.part] / total)
        return Estimate(value=share, low=100 * bounds.low, high=100 * bounds.high, n=total)


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric of one step minus that of another, with the interval of independent metrics (Zou & Donner 2008).

    Both are measured on the same examples, so the interval is somewhat too wide.

    Args:
        metric: The metric of the first step.
        before: The other step.
    """

    metric: Metric
    before: str

    @property
    def step(self) -> str:
        """The first step."""
        return self.metric.step

    def read_unparsed(self, folder: Path) -> float:
        """Reads the larger share of replies without a verdict."""
        return max(self.metric.read_unparsed(one) for one in (folder, folder.parent / self.before))

    def read(self, folder: Path) -> Estimate | None:
        """Reads both metrics and subtracts them, with the MOVER interval from the distances to their bounds."""
        after = self.metric.read(folder)
        before = replace(self.metric, step=self.before).read(folder.parent / self.before)
        if after is None or before is None:
            return None
        value = after.value - before.value
        if after.low is None or after.high is None or before.low is None or before.high is None:
            return Estimate(value=value)
        low = value - math.hypot(after.value - after.low, before.high - before.value)
        high = value + math.hypot(after.high - after.value, before.value - before.low)
        return Estimate(value=value, low=low, high=high)


def _read_corpus(folder: Path, path: Sequence[str | int]) -> Any:
    """Reads a value of corpus.json; None if the corpus does not have it."""
    values = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    for key in path:
        try:
            values = values[key]
        except (KeyError, IndexError, TypeError):
            return None
    return values


Result = Metric | Count | Share | Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table.

    Args:
        published: None if the paper's figure is not available.
        digits: The decimal digits of the paper's column.
        result: None if there is no figure of ours.
        why: Why there is none, or a remark on the comparison.
        stars: The paper's mark of significance.
        differs: What its figure of ours has otherwise than the paper's, beyond the differences of its steps.
    """

    row: str
    column: str
    published: float | None
    digits: int
    result: Result | None
    why: str = ""
    stars: str = ""
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The size of a corpus.

    Args:
        count: The path to our number in corpus.json.
        number: The paper's number.
        unit: What is counted.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    step: str
    count: tuple[str | int, ...]
    number: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a paper.

    Args:
        name: Its name on the command line.
        title: Its title.
        published: The name of the file of its figures.
        steps: Every step that it may need.
        whole: The size of the paper's corpus; exact figures are compared only if ours has it too.
        note: A remark on the comparison.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    title: str
    published: str
    cells: tuple[Cell, ...]
    steps: tuple[Step, ...]
    whole: Whole | None = None
    note: str = ""

    @property
    def citation(self) -> str:
        """Cites paper and table."""
        return paper_table(self.published).citation

    @property
    def used(self) -> list[str]:
        """Lists the steps with results in cells."""
        results = [cell.result for cell in self.cells if cell.result is not None]
        return list(dict.fromkeys(name for one in results for name in (one.step, getattr(one, "before", "")) if name))


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
