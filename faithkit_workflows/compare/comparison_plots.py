"""Plots the comparison as SVG: learning curves, precision-recall curves, and reliability diagrams."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from faithkit.calibration import reliability
from faithkit.metrics.outcomes import Outcomes
from faithkit.pages.plotting import COLOURS, MARKERS, STYLE, legend_above, new_figure, percent_axis, plot_name
from faithkit.runs.reading import Curve, Run, read_curves
from faithkit_workflows.compare.comparison import ComparedSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES = len(COLOURS)  # further runs are thin and grey
MAX_PANELS = 6
MAX_POINTS = 400  # of a curve
NUM_BINS = 10
GREY = "#999999"
FIRST_CURVES = ("train/loss", "macro_f1", "char_f1", "f1", "loss", "perplexity", "lr")


def plot_curves(runs: Sequence[Run]) -> bytes | None:
    """Plots the learning curves, a panel for each metric; None if nothing was logged."""
    curves: dict[int, dict[str, Curve]] = {}
    for place, run in enumerate(runs):
        with suppress(OSError):
            if run.curves is not None and (found := read_curves(run.curves)):
                curves[place] = found
    # Losses and validation come first, then the metrics of most runs; one point is not a curve.
    counts = Counter(name for found in curves.values() for name, curve in found.items() if len(curve) > 1)

    def rank(name: str) -> tuple[int, int, str]:
        short = name if name in FIRST_CURVES else name.rpartition("/")[2]
        place = FIRST_CURVES.index(short) if short in FIRST_CURVES else len(FIRST_CURVES)
        return place, -counts[name], name

    names = sorted(counts, key=rank)[:MAX_PANELS]
    if not names:
        return None

    def draw() -> "Figure":
        columns = min(len(names), 2)
        rows = -(-len(names) // columns)
        figure, _ = new_figure(9, 2.6 * rows + 0.4, rows=rows, columns=columns)
        for axes in figure.axes[len(names) :]:
            axes.set_visible(False)
        handles: dict[Any, Any] = {}
        for axes, name in zip(figure.axes, names, strict=False):
            for line, (place, found) in enumerate(curves.items()):
                if name not in found:
                    continue
                points = [found[name][n] for n in _thin(len(found[name]))]
                style: dict[str, Any] = {"color": GREY, "linewidth": 0.6, "alpha": 0.5}
                if line < MAX_LINES:
                    style = _line_style(line) | {"label": plot_name(runs[place].name)}
                    style |= {"marker": MARKERS[line], "markersize": 3} if len(points) < 12 else {}
                axes.plot(*zip(*points, strict=True), **style)
            axes.set_title(plot_name(name))
            axes.set_xlabel("step")
            handles |= zip(*axes.get_legend_handles_labels()[::-1], strict=True)
        if len(handles) > 1:
            figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=2)
        return figure

    return render_svg(draw)


def plot_precision_recall(compared: ComparedSet) -> bytes | None:
    """Plots precision by recall of each system's scores, and marks the system's threshold."""
    from sklearn.metrics import precision_recall_curve

    def draw(axes: "Axes", line: int, name: str, outcomes: Outcomes) -> None:
        rows = outcomes.scored
        precision, recall, _ = precision_recall_curve(outcomes.gold[rows], outcomes.scores[rows])
        kept = _thin(len(recall) - 1)  # the last point, recall 0, belongs to no score
        axes.plot(recall[kept], precision[kept], label=plot_name(name), drawstyle="steps-post", **_line_style(line))
        called = outcomes.called[rows] == 1
        if called.any():
            correct = int((outcomes.gold[rows] * called).sum())
            point = correct / max(int(outcomes.gold[rows].sum()), 1), correct / int(called.sum())
            mark: dict[str, Any] = {"color": COLOURS[line], "markeredgecolor": "black", "zorder": 3}
            axes.plot(*point, MARKERS[line], markersize=8, **mark)
            lowest = f"{outcomes.scores[rows][called].min():.2f}"
            axes.annotate(lowest, point, xytext=(6, 6), textcoords="offset points", fontsize=8)
        if line == 0:
            share = float(np.mean(outcomes.gold))
            head = f"share of hallucinated rows, {share:.0%}"
            axes.axhline(share, color=GREY, linewidth=0.8, linestyle=":", label=head)

    title = "Precision by recall; marks: the threshold of each, with its lowest score"
    return _plot_systems(compared, draw, title, "recall of hallucinated rows", "precision")


def plot_reliability(compared: ComparedSet) -> bytes | None:
    """Plots the share of hallucinated rows by score, in ten bins; the size of points is that of the bins."""

    def draw(axes: "Axes", line: int, name: str, outcomes: Outcomes) -> None:
        if line == 0:
            axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":", label="calibrated")
        rows = outcomes.scored
        bins = reliability(outcomes.scores[rows], outcomes.gold[rows], NUM_BINS)
        x, y = [one.mean_score for one in bins], [one.hallucinated for one in bins]
        sizes = [8 + 200 * one.count / int(rows.sum()) for one in bins]
        axes.plot(x, y, label=plot_name(name), **_line_style(line))
        axes.scatter(x, y, s=sizes, color=COLOURS[line], marker=MARKERS[line])

    axis_names = "P(hallucinated), mean of a bin", "share of hallucinated rows"
    return _plot_systems(compared, draw, "Reliability", *axis_names)


def _plot_systems(
    compared: ComparedSet, draw_system: Callable[["Axes", int, str, Outcomes], None], title: str, x: str, y: str
) -> bytes | None:
    """Plots shares of the first systems with scores for rows of both classes; None if there are none."""
    has_both = {name: 0 < one.gold[one.scored].sum() < one.scored.sum() for name, one in compared.outcomes.items()}
    scored = [(name, one) for name, one in compared.outcomes.items() if has_both[name]][:MAX_LINES]
    if not scored:
        return None

    def draw() -> "Figure":
        figure, axes = new_figure(6.4, 4.6)
        for line, (name, outcomes) in enumerate(scored):
            draw_system(axes, line, name, outcomes)
        for axis, label in ((axes.xaxis, x), (axes.yaxis, y)):
            axis.set_major_formatter(percent_axis())
            axis.set_label_text(label)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.05)
        legend_above(axes, title)
        return figure

    return render_svg(draw)


def _line_style(line: int) -> dict[str, Any]:
    return {"color": COLOURS[line], "linewidth": 1.4, "linestyle": ("-", "--", "-.", ":")[line % 4]}


def _thin(count: int) -> NDArray[np.intp]:
    """Chooses at most MAX_POINTS places, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).astype(np.intp))


def render_svg(draw: Any) -> bytes:
    """Renders a figure as SVG; the same data give the same bytes."""
    from matplotlib import rc_context

    image = BytesIO()
    with rc_context({**STYLE, "svg.hashsalt": "faithkit"}):
        draw().savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    return image.getvalue()
