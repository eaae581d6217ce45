"""Plots of a corpus, as PNG files.

Types, positions, lengths and generators are figures 2 and 3 and tables 3 and 4 of Niu et al. (2024), types also figure
5 of Chen et al. (2024). Topics are figure 2 of Luo et al. (2024), tags and copying figures 2 and 3 of Dziri et al.
(2022). A plot that a corpus has nothing for is not drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.pages.plotting import (
    COLOURS,
    MARKERS,
    STYLE,
    legend_above,
    new_figure,
    percent_axis,
    plot_name,
    require_plots,
    save_figure,
)
from faithkit_workflows.corpus.counts import Bucket, in_order
from faithkit_workflows.corpus.stats import ALL, CorpusStats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind tell apart; conflict blue, baseless orange, evident the darker.
_TYPE_COLOURS = {
    "evident_conflict": "#0072b2",
    "subtle_conflict": "#8ec7e8",
    "evident_baseless": "#d55e00",
    "subtle_baseless": "#f0c05a",
    "hallucination": "#777777",
}


def write_plots(stats: CorpusStats, folder: str | Path, *, full: bool = False) -> list[Path]:
    """Writes types.png, positions.png, lengths.png and models.png; and where `full` is asked for those of FULL_PLOTS.

    Raises:
        UserError: matplotlib is not installed, or the folder cannot be written.
    """
    require_plots()
    from matplotlib import rc_context

    from faithkit_workflows.corpus.dialogue_plots import FULL_PLOTS

    plots: dict[str, tuple[bool, Callable[[CorpusStats], Figure]]] = {
        "types": (bool(stats.types), plot_types),
        "positions": (stats.has_spans, plot_positions),
        "lengths": (bool(stats.response_buckets), plot_lengths),
        "models": (bool(stats.models) and stats.has_spans, plot_models),
    }
    if full:
        plots |= {name: (wanted(stats), plot) for name, (wanted, plot) in FULL_PLOTS.items()}
    with rc_context(STYLE):
        return [
            save_figure(plot(stats), Path(folder) / f"{name}.png") for name, (wanted, plot) in plots.items() if wanted
        ]


def plot_types(stats: CorpusStats) -> "Figure":
    """Plots the share of each type among the spans of a task."""
    rows = {name: counts for name, counts in stats.types.items() if counts}
    figure, axes = new_figure(7, 1.3 + 0.42 * len(rows))
    names = [f"{plot_name(name)}  (n = {sum(counts.values()):,})" for name, counts in rows.items()]
    left = [0.0] * len(rows)
    for place, label in enumerate(in_order(label for counts in rows.values() for label in counts)):
        shares = [counts.get(label, 0) / sum(counts.values()) for counts in rows.values()]
        colour = _TYPE_COLOURS.get(label, COLOURS[place % len(COLOURS)])
        axes.barh(
            names,
            shares,
            left=left,
            height=0.7,
            color=colour,
            edgecolor="white",
            label=plot_name(label.replace("_", " ")),
        )
        for row, share in enumerate(shares):
            if share >= 0.06:
                middle, ink = left[row] + share / 2, "white" if _dark(colour) else "black"
                axes.text(middle, row, f"{share:.0%}", ha="center", va="center", color=ink, fontsize=8)
        left = [before + share for before, share in zip(left, shares, strict=True)]
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(percent_axis())
    axes.invert_yaxis()
    what = "hallucinated spans by task" if stats.has_spans else "hallucination by part"
    legend_above(axes, f"Types of {what}")
    return figure


def plot_positions(stats: CorpusStats) -> "Figure":
    """Plots where in the responses the spans lie, a strip for each task in shades of its own."""
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
    last.set_xlabel(f"position in the response; colour: share of the task's spans in each {_step(rows)} of it")
    figure.axes[0].set_title("Where hallucinated spans lie in responses")
    return figure


def plot_lengths(stats: CorpusStats) -> "Figure":
    """Plots spans a response (or the hallucinated share) against the length of its context and of itself, by task."""
    both = {"context": stats.context_buckets, "response": stats.response_buckets}
    panels: Sequence[tuple[str, Mapping[str, list[Bucket]]]] = [(what, found) for what, found in both.items() if found]
    figure, _ = new_figure(4 * len(panels), 3.4, columns=len(panels))
    for axes, (what, by_task) in zip(figure.axes, panels, strict=True):
        top = 0.0
        for place, (task, found) in enumerate(by_task.items()):
            middles = [(bucket.low + bucket.high) / 2 for bucket in found]
            style: dict[str, Any] = {
                "color": COLOURS[place % len(COLOURS)],
                "marker": MARKERS[place % len(MARKERS)],
            }
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


def plot_models(stats: CorpusStats) -> "Figure":
    """Plots spans per hundred words, by generator and task."""
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


def _step(rows: Mapping[str, Sequence[float]]) -> str:
    return f"{1 / len(next(iter(rows.values()))):.0%}" if rows else "part"


def _dark(colour: str) -> bool:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return 0.3 * red + 0.59 * green + 0.11 * blue < 140
