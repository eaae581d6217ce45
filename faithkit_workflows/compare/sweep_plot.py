"""The plot of a sweep: a panel for each setting, its runs by value, and their means."""

from typing import TYPE_CHECKING, Any

import numpy as np

from faithkit.pages.plotting import COLOURS, MARKERS, new_figure, plot_name
from faithkit.runs.run import parts_of
from faithkit_workflows.compare.plots import svg
from faithkit_workflows.compare.sweep import Ranking
from faithkit_workflows.compare.sweep_settings import (
    MOST_VALUES,
    Effects,
    SettingEffect,
    is_wide,
    numbers_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 6
MOST_NAMES = 8  # on an axis
BESIDE = 0.16  # of the way to the next value: where a mean stands


def plot_sweep(ranking: Ranking, effects: Effects) -> bytes | None:
    """Plots the figure that runs are ranked by against each setting; None where no setting varies."""
    shown = effects.settings[:MAX_PANELS]
    if not shown:
        return None

    def draw() -> "Figure":
        columns = min(len(shown), 2)
        rows = -(-len(shown) // columns)
        figure, _ = new_figure(4.6 * columns, 2.8 * rows + 0.4, rows=rows, columns=columns)
        for axes, effect in zip(figure.axes, shown, strict=False):
            _panel(axes, ranking, effect)
            axes.set_ylim(*_limits(ranking))
        for axes in figure.axes[len(shown) :]:
            axes.set_visible(False)
        handles: dict[Any, Any] = {}
        for axes in figure.axes:
            handles |= zip(*axes.get_legend_handles_labels()[::-1], strict=True)
        figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=3)
        return figure

    return svg(draw)


def _panel(axes: "Axes", ranking: Ranking, effect: SettingEffect) -> None:
    having = [one for one in ranking.runs if effect.key in one.settings]
    values = [one.settings[effect.key] for one in having]
    scores = [one.chosen.metric.value for one in having]
    numbers = numbers_of(values)
    is_scale = numbers is not None and len(set(values)) > MOST_VALUES
    names = list(effect.values)
    if is_scale:
        assert numbers is not None
        places = numbers
        if is_wide(numbers):
            axes.set_xscale("log")
    else:
        places = np.array([names.index(value) for value in values], dtype=float)
        axes.set_xticks(range(len(names)), [plot_name(name) for name in names])
        axes.set_xlim(-0.6, len(names) - 0.4)
        if len(names) > MOST_NAMES or max(map(len, names)) > 12:
            axes.tick_params(axis="x", labelrotation=30)
    axes.scatter(places, scores, s=26, color=COLOURS[0], marker=MARKERS[0], alpha=0.8, label="a run", zorder=3)
    if not is_scale:
        _means(axes, effect)
    best: dict[str, Any] = {"facecolors": "none", "edgecolors": COLOURS[1], "linewidths": 1.6, "zorder": 4}
    axes.scatter(places[:1], scores[:1], s=110, label="the best run", **best)
    share = "" if effect.importance is None else f", importance {effect.importance:.0%}"
    axes.set_title(f"{plot_name(effect.key)}{share}")
    axes.set_xlabel(plot_name(effect.key))
    axes.set_ylabel(f"validation {plot_name(parts_of(ranking.monitor)[2])}")


def _means(axes: "Axes", effect: SettingEffect) -> None:
    """Draws the mean of each value beside its runs; an interval that is wider than the panel ends at its edge."""
    for place, metric in enumerate(effect.values.values()):
        low, high = (metric.value if bound is None else bound for bound in (metric.low, metric.high))
        reach = [[metric.value - low], [high - metric.value]]
        style: dict[str, Any] = {"fmt": "D", "color": COLOURS[2], "markersize": 5, "capsize": 3, "linewidth": 1.2}
        axes.errorbar([place + BESIDE], [metric.value], yerr=reach, label="mean, 95% interval", **style)


def _limits(ranking: Ranking) -> tuple[float, float]:
    """Gives all panels one scale, that of the runs."""
    scores = [one.chosen.metric.value for one in ranking.runs]
    room = max(0.15 * (max(scores) - min(scores)), 1e-3)
    return min(scores) - room, max(scores) + room
