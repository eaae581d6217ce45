"""Plots a corpus as PNG files.

Types, positions, lengths and generators are figures 2 and 3 and tables 3 and 4 of Niu et al. (2024), types also figure
5 of Chen et al. (2024). Topics are figure 2 of Luo et al. (2024), tags and copying figures 2 and 3 of Dziri et al.
(2022). A plot without data is left out.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from faithkit.pages.plotting import (
    COLOURS,
    MARKERS,
    legend_above,
    new_figure,
    percent_axis,
    plot_name,
)
from faithkit_papers.corpus.corpus_rows import CLASSES
from faithkit_papers.corpus.corpus_stats import ALL, Bucket, CorpusStats, sort_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which are safe for colour blindness; conflict blue, baseless orange, evident darker.
_TYPE_COLOURS = {
    "evident_conflict": "#0072b2",
    "subtle_conflict": "#8ec7e8",
    "evident_baseless": "#d55e00",
    "subtle_baseless": "#f0c05a",
    "hallucination": "#777777",
}


_CLASS_COLOURS = dict(zip(CLASSES, ("#009e73", "#cc79a7", "#777777", "#f0c05a", "#d55e00"), strict=True))


def plot_types(stats: CorpusStats) -> "Figure | None":
    """Plots the share of each type among the spans of a task."""
    if not stats.types:
        return None
    rows = {name: counts for name, counts in stats.types.items() if counts}
    figure, axes = new_figure(7, 1.3 + 0.42 * len(rows))
    labels = sort_labels(label for counts in rows.values() for label in counts)
    colours = {label: _TYPE_COLOURS.get(label, COLOURS[place % len(COLOURS)]) for place, label in enumerate(labels)}
    _stack_shares(axes, rows, colours)
    what = "hallucinated spans by task" if stats.has_spans else "hallucination by part"
    legend_above(axes, f"Types of {what}")
    return figure


def _stack_shares(axes: Any, rows: Mapping[str, Mapping[str, int]], colours: Mapping[str, str]) -> None:
    """Draws a bar for each row, divided by the shares of its labels, which are written where they fit."""
    names = [f"{plot_name(name)}  (n = {sum(counts.values()):,})" for name, counts in rows.items()]
    left = np.zeros(len(rows))
    for label, colour in colours.items():
        shares = np.array([counts.get(label, 0) / sum(counts.values()) for counts in rows.values()])
        shown = plot_name(label.replace("_", " "))
        bars = axes.barh(names, shares, left=left, height=0.72, color=colour, edgecolor="white", label=shown)
        texts = [f"{share:.0%}" if share >= 0.06 else "" for share in shares]
        red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
        is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 140
        axes.bar_label(bars, texts, label_type="center", color="white" if is_dark else "black", fontsize=8)
        left += shares
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(percent_axis())
    axes.invert_yaxis()


def plot_positions(stats: CorpusStats) -> "Figure | None":
    """Plots the positions of spans in the responses, a strip for each task."""
    if not stats.has_spans:
        return None
    rows = {name: shares for name, shares in stats.positions.items() if any(shares)}
    figure, _ = new_figure(7, 0.9 + 0.75 * max(1, len(rows)), rows=max(1, len(rows)))
    for axes, (name, shares) in zip(figure.axes[:], rows.items(), strict=False):
        image = axes.imshow([shares], aspect="auto", extent=(0, 1, 0, 1), cmap="cividis", vmin=0)
        axes.set_yticks([0.5], [plot_name(name)])
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([])
        figure.colorbar(image, ax=axes, pad=0.015, ticks=[0, max(shares)], format="%.3f", aspect=6)
    last = figure.axes[max(1, len(rows)) - 1]
    last.set_xticks([0, 0.25, 0.5, 0.75, 1])
    last.xaxis.set_major_formatter(percent_axis())
    step = f"{1 / len(next(iter(rows.values()))):.0%}" if rows else "part"
    last.set_xlabel(f"position in the response; colour: share of the task's spans in each {step} of it")
    figure.axes[0].set_title("Where hallucinated spans lie in responses")
    return figure


def plot_lengths(stats: CorpusStats) -> "Figure | None":
    """Plots spans a response (or the hallucinated share) against the length of its context and of itself, by task."""
    if not stats.response_buckets:
        return None
    both = {"context": stats.context_buckets, "response": stats.response_buckets}
    panels: Sequence[tuple[str, Mapping[str, list[Bucket]]]] = [(what, found) for what, found in both.items() if found]
    figure, _ = new_figure(4 * len(panels), 3.4, columns=len(panels))
    for axes, (what, by_task) in zip(figure.axes, panels, strict=True):
        top = 0.0
        for place, (task, found) in enumerate(by_task.items()):
            middles = [(bucket.low + bucket.high) / 2 for bucket in found]
            style: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
            counts = [bucket.counts for bucket in found]
            heights = [one.spans_each if stats.has_spans else one.share for one in counts]
            top = max(top, *heights)
            axes.plot(middles, heights, label=plot_name(task), **style)
        axes.set_title(f"{'Spans a response' if stats.has_spans else 'Hallucinated'} by length of the {what}")
        if not stats.has_spans:
            axes.yaxis.set_major_formatter(percent_axis())
        axes.set_xlabel(f"words of the {what} (middle of each fifth)")
        axes.set_ylim(0, 1.08 * top or 1)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    figure.axes[0].legend()
    return figure


def plot_models(stats: CorpusStats) -> "Figure | None":
    """Plots spans per hundred words, by generator and task."""
    if not (stats.models and stats.has_spans):
        return None
    tasks = sorted({task for by_task in stats.models.values() for task in by_task if task != ALL or len(by_task) == 1})
    height = 0.8 / len(tasks)
    figure, axes = new_figure(7, 1.2 + (0.25 + 0.16 * len(tasks)) * len(stats.models))
    for place, task in enumerate(tasks):
        rows = [row for row, by_task in enumerate(stats.models.values()) if task in by_task]
        densities = [by_task[task].density for by_task in stats.models.values() if task in by_task]
        middles = [row + (place - (len(tasks) - 1) / 2) * height for row in rows]
        bars = axes.barh(middles, densities, height * 0.92, color=COLOURS[place % len(COLOURS)], label=plot_name(task))
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=7, color="#444444")
    axes.set_yticks(range(len(stats.models)), [plot_name(model) for model in stats.models])
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.set_xlabel("hallucinated spans per hundred words")
    axes.set_title("Density of hallucination by generator and task")
    axes.legend(loc="best")
    return figure


TOPICS = ("topic", "topic_source")
MAX_PANELS = 6


def plot_rates(stats: CorpusStats) -> "Figure | None":
    """Plots the hallucinated share of each value of each facet with its interval; the line is the share of all."""
    facets = {name: found for name, found in stats.rates.items() if name and name not in TOPICS}
    if not facets:
        return None
    shown = {name: dict(list(found.items())[:12]) for name, found in list(facets.items())[:MAX_PANELS]}
    heights = [1 + len(found) for found in shown.values()]
    figure, _ = new_figure(7, 0.5 + 0.26 * sum(heights), rows=len(shown), height_ratios=heights)
    whole = stats.rates[""][ALL].value
    top = max(metric.high or metric.value for found in shown.values() for metric in found.values())
    for axes, (name, found) in zip(figure.axes, shown.items(), strict=True):
        values = [metric.value for metric in found.values()]
        below = [m.value - (m.value if m.low is None else m.low) for m in found.values()]
        above = [(m.value if m.high is None else m.high) - m.value for m in found.values()]
        places = range(len(values))
        axes.errorbar(values, places, xerr=[below, above], fmt="o", color=COLOURS[0], capsize=2.5, markersize=4.5)
        axes.axvline(whole, color="#888888", linewidth=0.8, linestyle="--")
        axes.set_yticks(places, [plot_name(value) for value in found])
        axes.set_ylim(len(values) - 0.4, -0.6)
        axes.set_xlim(0, min(1.02, 1.05 * top))
        axes.set_title(f"by {plot_name(name.replace('_', ' '))}")
        axes.xaxis.set_major_formatter(percent_axis())
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    figure.axes[-1].set_xlabel(f"hallucinated responses with 95% intervals; dashed: all of them, {whole:.1%}")
    return figure


def plot_classes(stats: CorpusStats) -> "Figure | None":
    """Plots BEGIN's classes of each system."""
    if not stats.classes:
        return None
    systems = {system or ALL: counts for system, counts in stats.classes.items() if sum(counts.values())}
    figure, axes = new_figure(7, 1.2 + 0.32 * len(systems))
    _stack_shares(axes, systems, _CLASS_COLOURS)
    legend_above(axes, "BEGIN's classes")
    return figure


def plot_acts(stats: CorpusStats) -> "Figure | None":
    """Plots BEGIN's classes of all responses, and VRM's speech acts of each class."""
    acts = {name: counts for name, counts in stats.acts.items() if sum(counts.values())}
    if not acts:
        return None
    figure, _ = new_figure(7, 3.2 + 0.36 * len(acts), rows=2, height_ratios=[1, len(acts) + 0.5])
    above, below = figure.axes
    counted = {name: sum(counts[name] for counts in stats.classes.values()) for name in CLASSES}
    _stack_shares(above, {"responses": counted}, _CLASS_COLOURS)
    legend_above(above, "BEGIN's classes")
    names = [name for name, _ in sum(map(Counter, acts.values()), Counter[str]()).most_common()]
    _stack_shares(below, acts, dict(zip(names, COLOURS * len(names), strict=False)))
    legend_above(below, "Speech acts of each class, as shares of its acts")
    return figure


def plot_extraction(stats: CorpusStats) -> "Figure | None":
    """Plots how many responses have which coverage and density; and before the edits, where there were some."""
    if not stats.extraction:
        return None
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


PLOTS: "Mapping[str, tuple[str, Callable[[CorpusStats], Figure | None]]]" = {  # title and plot, by file name
    "types": ("Types", plot_types),
    "positions": ("Positions", plot_positions),
    "lengths": ("Length and hallucination", plot_lengths),
    "models": ("Generators", plot_models),
    "rates": ("Rates by part", plot_rates),
    "classes": ("BEGIN's classes", plot_classes),
    "acts": ("Speech acts", plot_acts),
    "copying": ("Copying", plot_extraction),
}
ONLY_FULL = ("rates", "classes", "acts", "copying")  # RAGTruth's analysis leaves them out
