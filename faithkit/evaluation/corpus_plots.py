"""Plots of a corpus of marked responses, as PNG files (figures 2 and 3 and tables 3 and 4 of Niu et al. 2024)."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.errors import UserError
from faithkit.evaluation.corpus_stats import ALL, Bucket, CorpusStats, in_order
from faithkit.evaluation.tables import harmless
from faithkit.files.atomic import atomic_file, disk_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind tell apart; conflict blue, baseless orange, evident the darker.
_TYPE_COLOURS = {
    "evident_conflict": "#0072b2",
    "subtle_conflict": "#8ec7e8",
    "evident_baseless": "#d55e00",
    "subtle_baseless": "#f0c05a",
    "hallucination": "#777777",
}
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_MARKERS = "osD^vPX"
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "legend.frameon": False,
}


def require_plots() -> None:
    """Raises a UserError where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError("plots need matplotlib, which is not installed", hint="pip install '.[plots]'") from error


def write_plots(stats: CorpusStats, folder: str | Path) -> list[Path]:
    """Writes types.png, positions.png, lengths.png and, where generators are told, models.png.

    Raises:
        UserError: matplotlib is not installed, or the folder cannot be written.
    """
    require_plots()
    from matplotlib import rc_context

    with rc_context(_STYLE):
        figures = {"types": plot_types(stats), "positions": plot_positions(stats), "lengths": plot_lengths(stats)}
        if stats.models:
            figures["models"] = plot_models(stats)
        paths = []
        for name, figure in figures.items():
            image = BytesIO()
            figure.savefig(image, format="png", dpi=150)
            path = Path(folder) / f"{name}.png"
            with atomic_file(path) as file, disk_errors(path):
                file.write(image.getvalue())
            paths.append(path)
    return paths


def plot_types(stats: CorpusStats) -> "Figure":
    """Plots the share of each type among the spans of a task."""
    rows = {name: counts for name, counts in stats.types.items() if counts}
    figure, axes = _figure(7, 1.3 + 0.42 * len(rows))
    names = [f"{_name(name)}  (n = {sum(counts.values()):,})" for name, counts in rows.items()]
    left = [0.0] * len(rows)
    for place, label in enumerate(in_order(label for counts in rows.values() for label in counts)):
        shares = [counts.get(label, 0) / sum(counts.values()) for counts in rows.values()]
        colour = _TYPE_COLOURS.get(label, _COLOURS[place % len(_COLOURS)])
        axes.barh(
            names, shares, left=left, height=0.7, color=colour, edgecolor="white", label=_name(label.replace("_", " "))
        )
        for row, share in enumerate(shares):
            if share >= 0.06:
                middle, ink = left[row] + share / 2, "white" if _dark(colour) else "black"
                axes.text(middle, row, f"{share:.0%}", ha="center", va="center", color=ink, fontsize=8)
        left = [before + share for before, share in zip(left, shares, strict=True)]
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(_percent())
    axes.invert_yaxis()
    axes.set_title("Types of hallucinated spans by task", pad=24)
    if rows:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5, handlelength=1, columnspacing=1.2, borderpad=0.2)
    return figure


def plot_positions(stats: CorpusStats) -> "Figure":
    """Plots where in the responses the spans lie, a strip for each task in shades of its own."""
    rows = {name: shares for name, shares in stats.positions.items() if any(shares)}
    figure, _ = _figure(7, 0.9 + 0.75 * max(1, len(rows)), rows=max(1, len(rows)))
    for axes, (name, shares) in zip(figure.axes[:], rows.items(), strict=False):
        image = axes.imshow([shares], aspect="auto", extent=(0, 1, 0, 1), cmap="cividis", vmin=0)
        axes.set_yticks([0.5], [_name(name)])
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([])
        figure.colorbar(image, ax=axes, pad=0.015, ticks=[0, max(shares)], format="%.3f", aspect=6)
    last = figure.axes[max(1, len(rows)) - 1]
    last.set_xticks([0, 0.25, 0.5, 0.75, 1])
    last.xaxis.set_major_formatter(_percent())
    last.set_xlabel(f"position in the response; colour: share of the task's spans in each {_step(rows)} of it")
    figure.axes[0].set_title("Where hallucinated spans lie in responses")
    return figure


def plot_lengths(stats: CorpusStats) -> "Figure":
    """Plots spans a response against the length of its context and of itself, a line for each task."""
    figure, _ = _figure(8, 3.4, columns=2)
    panels: Sequence[tuple[str, Mapping[str, list[Bucket]]]] = (
        ("context", stats.context_buckets),
        ("response", stats.response_buckets),
    )
    for axes, (what, by_task) in zip(figure.axes, panels, strict=True):
        for place, (task, found) in enumerate(by_task.items()):
            middles = [(bucket.low + bucket.high) / 2 for bucket in found]
            style: dict[str, Any] = {
                "color": _COLOURS[place % len(_COLOURS)],
                "marker": _MARKERS[place % len(_MARKERS)],
            }
            axes.plot(middles, [bucket.counts.spans_each for bucket in found], label=_name(task), **style)
        axes.set_title(f"Spans a response by length of the {what}")
        axes.set_xlabel(f"words of the {what} (middle of each fifth)")
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    figure.axes[0].legend()
    return figure


def plot_models(stats: CorpusStats) -> "Figure":
    """Plots spans per hundred words, by generator and task."""
    tasks = sorted({task for by_task in stats.models.values() for task in by_task if task != ALL or len(by_task) == 1})
    height = 0.8 / len(tasks)
    figure, axes = _figure(7, 1.2 + (0.25 + 0.16 * len(tasks)) * len(stats.models))
    for place, task in enumerate(tasks):
        rows = [row for row, by_task in enumerate(stats.models.values()) if task in by_task]
        densities = [by_task[task].density for by_task in stats.models.values() if task in by_task]
        middles = [row + (place - (len(tasks) - 1) / 2) * height for row in rows]
        bars = axes.barh(middles, densities, height * 0.92, color=_COLOURS[place % len(_COLOURS)], label=_name(task))
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=7, color="#444444")
    axes.set_yticks(range(len(stats.models)), [_name(model) for model in stats.models])
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.set_xlabel("hallucinated spans per hundred words")
    axes.set_title("Density of hallucination by generator and task")
    axes.legend(loc="best")
    return figure


def _figure(width: float, height: float, *, rows: int = 1, columns: int = 1) -> "tuple[Figure, Axes]":
    # Without pyplot: it would choose a window system and keep every figure.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.subplots(rows, columns)
    return figure, figure.axes[0]


def _name(text: str) -> str:
    """Shortens a name from the data for a plot, without a $ that would start a formula."""
    return harmless(text, 40).replace("$", r"\$")


def _percent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(xmax=1, decimals=0)


def _step(rows: Mapping[str, Sequence[float]]) -> str:
    return f"{1 / len(next(iter(rows.values()))):.0%}" if rows else "part"


def _dark(colour: str) -> bool:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return 0.3 * red + 0.59 * green + 0.11 * blue < 140
