"""Plots of rates, topics, tags and copying: those beside RAGTruth's own (see `plots`)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from faithkit.metrics.begin_tags import ACTS, CLASSES
from faithkit.pages.plotting import COLOURS, legend_above, new_figure, percent_axis, plot_name, round_steps
from faithkit_workflows.corpus.stats import CorpusStats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOPICS = ("topic", "topic_source")
MAX_PANELS = 6
MAX_BARS = 12


def plot_rates(stats: CorpusStats) -> "Figure":
    """Plots the hallucinated share of each value of each facet with its interval; the line is the share of all."""
    facets = {name: found for name, found in stats.rates.items() if name and name not in TOPICS}
    shown = {name: dict(list(found.items())[:MAX_BARS]) for name, found in list(facets.items())[:MAX_PANELS]}
    heights = [1 + len(found) for found in shown.values()]
    figure, _ = new_figure(7, 0.5 + 0.26 * sum(heights), rows=len(shown), height_ratios=heights)
    whole = stats.rates[""]["all"].value
    top = max(metric.high or metric.value for found in shown.values() for metric in found.values())
    for axes, (name, found) in zip(figure.axes, shown.items(), strict=True):
        values = [metric.value for metric in found.values()]
        below = [value - (m.value if m.low is None else m.low) for value, m in zip(values, found.values(), strict=True)]
        above = [
            (m.value if m.high is None else m.high) - value for value, m in zip(values, found.values(), strict=True)
        ]
        places = range(len(values))
        axes.errorbar(values, places, xerr=[below, above], fmt="o", color=COLOURS[0], capsize=2.5, markersize=4.5)
        axes.axvline(whole, color="#888888", linewidth=0.8, linestyle="--")
        axes.set_yticks(places, [plot_name(value) for value in found])
        axes.set_ylim(len(values) - 0.4, -0.6)
        axes.set_xlim(0, min(1.02, 1.05 * top))
        axes.set_title(f"by {plot_name(name.replace('_', ' '))}")
        axes.xaxis.set_major_locator(round_steps())
        axes.xaxis.set_major_formatter(percent_axis())
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    figure.axes[-1].set_xlabel(f"hallucinated responses with 95% intervals; dashed: all of them, {whole:.1%}")
    return figure


def plot_topics(stats: CorpusStats) -> "Figure":
    """Plots how many responses each topic, or source of topics, has."""
    name = _topic_facet(stats)
    values = stats.facets[name]
    figure, axes = new_figure(7, 0.9 + 0.22 * len(values))
    total = sum(counts.num_responses for counts in values.values())
    shares = [counts.num_responses / total for counts in values.values()]
    bars = axes.barh([plot_name(value) for value in values], shares, color=COLOURS[0], height=0.75)
    axes.bar_label(bars, [f"{counts.num_responses:,}" for counts in values.values()], padding=3, fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.xaxis.set_major_locator(round_steps())
    axes.xaxis.set_major_formatter(percent_axis())
    axes.set_xlabel("share of the responses")
    axes.set_title("Topics" if name == "topic" else "Where the topics are from")
    return figure


def plot_classes(stats: CorpusStats) -> "Figure":
    """Plots BEGIN's classes of each system and, within each class, how often each speech act occurs."""
    acts = [act for act in ACTS if any(act in counts for counts in stats.acts.values())]
    systems = {system: counts for system, counts in stats.classes.items() if sum(counts.values())}
    rows = [0.9 + 0.32 * len(systems), 0.9 + 0.34 * len(stats.acts)]
    figure, _ = new_figure(
        7, 0.3 + sum(rows if acts else rows[:1]), rows=2 if acts else 1, height_ratios=rows[: 1 + bool(acts)]
    )
    axes, left = figure.axes[0], np.zeros(len(systems))
    colours = dict(zip(CLASSES, ("#009e73", "#cc79a7", "#777777", "#f0c05a", "#d55e00"), strict=True))
    names = [f"{plot_name(system or 'all')}  (n = {sum(counts.values()):,})" for system, counts in systems.items()]
    for name in CLASSES:
        shares = np.array([counts[name] / sum(counts.values()) for counts in systems.values()])
        axes.barh(names, shares, left=left, height=0.75, color=colours[name], edgecolor="white", label=name)
        for row, share in enumerate(shares):
            if share >= 0.06:
                axes.text(
                    left[row] + share / 2, row, f"{share:.0%}", ha="center", va="center", fontsize=8, color="black"
                )
        left += shares
    axes.set_xlim(0, 1)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(percent_axis())
    legend_above(axes, "BEGIN's classes")
    if acts:
        _heat_map(figure, stats, acts)
    return figure


def _heat_map(figure: "Figure", stats: CorpusStats, acts: list[str]) -> None:
    axes = figure.axes[1]
    sizes = {name: sum(counts[name] for counts in stats.classes.values()) for name in stats.acts}
    table = np.array([[counts.get(act, 0) / sizes[name] for act in acts] for name, counts in stats.acts.items()])
    axes.imshow(table, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (row, column), share in np.ndenumerate(table):
        ink = "white" if share < 0.5 else "black"
        axes.text(column, row, f"{share:.0%}", ha="center", va="center", fontsize=8, color=ink)
    axes.set_xticks(range(len(acts)), acts, rotation=20, ha="right")
    axes.set_yticks(range(len(sizes)), [f"{name}  (n = {size:,})" for name, size in sizes.items()])
    axes.tick_params(length=0)
    axes.set_title("Speech acts within each class: share of its responses")


def plot_extraction(stats: CorpusStats) -> "Figure":
    """Plots how many responses have which coverage and density; before the edits beside, where there were some."""
    from matplotlib.colors import LogNorm

    figure, _ = new_figure(4.2 * len(stats.extraction), 3.5, columns=len(stats.extraction))
    panels = list(figure.axes)
    most = max(max(map(max, one.cells)) for one in stats.extraction.values())
    for axes, (name, one) in zip(panels, reversed(stats.extraction.items()), strict=True):
        cells = np.ma.masked_equal(np.array(one.cells).T, 0)  # [density, coverage]
        norm = LogNorm(1, max(2, most))
        image = axes.imshow(
            cells, origin="lower", extent=(0, 1, 0, one.top), aspect="auto", cmap="cividis_r", norm=norm
        )
        axes.axvline(one.coverage, color=COLOURS[1], linewidth=0.9, linestyle="--")
        axes.axhline(one.density, color=COLOURS[1], linewidth=0.9, linestyle="--")
        axes.set_title(f"{name}  (n = {one.num_responses:,})")
        axes.set_xlabel("coverage: share of tokens that are copied")
        axes.xaxis.set_major_formatter(percent_axis())
    panels[0].set_ylabel("density: mean length of copied pieces")
    figure.colorbar(image, ax=panels, label="responses; dashed: the means", pad=0.02)
    return figure


def _topic_facet(stats: CorpusStats) -> str:
    return next((name for name in TOPICS if name in stats.facets), "")


# By file name: whether a corpus has what it takes, and the plot.
FULL_PLOTS: Mapping[str, tuple[Callable[[CorpusStats], bool], Callable[[CorpusStats], "Figure"]]] = {
    "rates": (lambda stats: any(name and name not in TOPICS for name in stats.rates), plot_rates),
    "topics": (lambda stats: bool(_topic_facet(stats)), plot_topics),
    "classes": (lambda stats: bool(stats.classes), plot_classes),
    "copying": (lambda stats: bool(stats.extraction), plot_extraction),
}
