"""Plots hallucination rates by temperature: turns at the left, dialogues at the right (HalluDial's figure 3)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faithkit.metrics.dialogue_rates import DIALOGUE_RATE, TURN_RATE
from faithkit.pages.plotting import (
    COLOURS,
    MARKERS,
    STYLE,
    new_figure,
    percent_axis,
    plot_name,
    require_plots,
    save_figure,
)
from faithkit.reports.rates import SELF, Case
from faithkit.statistics.intervals import Metric

TITLES = {TURN_RATE: "hallucinated turns", DIALOGUE_RATE: "dialogues with any"}


def plot_temperatures(cases: Mapping[Case, Mapping[str, Metric]], path: Path) -> Path:
    """Writes one line for each system and history, with its interval as a band; cases without a temperature are none.

    Raises:
        UserError: matplotlib is not installed, or the file cannot be written.
    """
    require_plots()
    from matplotlib import rc_context

    lines: dict[tuple[str, str], list[tuple[float, Mapping[str, Metric]]]] = {}
    for case, metrics in cases.items():
        if case.temperature is not None:
            lines.setdefault((case.system, case.history), []).append((case.temperature, metrics))
    systems = list(dict.fromkeys(system for system, _ in lines))
    with rc_context(STYLE):
        figure, _ = new_figure(9, 3.4, columns=2)
        for axes, (rate, title) in zip(figure.axes, TITLES.items(), strict=True):
            for (system, history), points in lines.items():
                known = sorted((at, metrics[rate]) for at, metrics in points if rate in metrics)
                place = systems.index(system)
                colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
                at = [temperature for temperature, _ in known]
                style: dict[str, Any] = {
                    "color": colour,
                    "marker": marker,
                    "linestyle": "--" if history == SELF else "-",
                }
                label = f"{plot_name(system)}, {history} history"
                axes.plot(at, [metric.value for _, metric in known], label=label, **style)
                low, high = ([getattr(metric, side) for _, metric in known] for side in ("low", "high"))
                axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
            axes.set_title(title)
            axes.set_xlabel("temperature")
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(percent_axis())
        figure.axes[0].legend()
        return save_figure(figure, path)
