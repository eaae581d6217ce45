"""Plots of the comparison as SVG: learning curves, precision by recall with the threshold marked, reliability."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from faithkit.calibration.thresholds import reliability
from faithkit.metrics.outcomes import Outcomes, join_outcomes
from faithkit.pages.plotting import COLOURS, MARKERS, STYLE, legend_above, new_figure, percent_axis, plot_name
from faithkit.runs.reading import Curve, read_curves
from faithkit.runs.run import Run
from faithkit_workflows.compare.report import ComparedSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES = len(COLOURS)  # that a reader can tell apart; further runs are thin and grey
MAX_PANELS = 6
MAX_POINTS = 400  # of a curve: more are not seen
NUM_BINS = 10
MIN_STEPS = 12  # of a curve that is seen without a mark at each step
GREY = "#999999"


def plot_curves(runs: Sequence[Run]) -> bytes | None:
    """Plots what was logged while runs trained, a panel a metric; None where nothing was."""
    curves = {}
    for place, run in enumerate(runs):
        if run.curves is not None and (found := _read(run)):
            curves[place] = found
    names = _panels(list(curves.values()))
    if not names:
        return None

    def draw() -> "Figure":
        columns = min(len(names), 2)
        rows = -(-len(names) // columns)
        figure, _ = new_figure(9, 2.6 * rows + 0.4, rows=rows, columns=columns)
        for axes, name in zip(figure.axes, names, strict=False):
            for shown, (place, found) in enumerate(curves.items()):
                if name not in found:
                    continue
                steps, values = _thinned(found[name])
                style = _style(shown) if shown < MAX_LINES else {"color": GREY, "linewidth": 0.6, "alpha": 0.5}
                if shown < MAX_LINES:
                    style |= {"label": plot_name(runs[place].name)}
                    style |= {"marker": MARKERS[shown], "markersize": 3} if len(steps) < MIN_STEPS else {}
                axes.plot(steps, values, **style)
            axes.set_title(plot_name(name))
            axes.set_xlabel("step")
        for axes in figure.axes[len(names) :]:
            axes.set_visible(False)
        handles = {
            label: handle
            for axes in figure.axes
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        if len(handles) > 1:
            figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=2)
        return figure

    return svg(draw)


def _read(run: Run) -> dict[str, Curve]:
    try:
        return read_curves(run.curves) if run.curves is not None else {}
    except OSError:
        return {}


def _panels(curves: Sequence[Mapping[str, Curve]]) -> list[str]:
    """Chooses what is plotted: what most runs have, losses and validation first; one point is no curve."""
    counted: dict[str, int] = {}
    for found in curves:
        for name, curve in found.items():
            if len(curve) > 1:
                counted[name] = counted.get(name, 0) + 1
    first = ("train/loss", "macro_f1", "char_f1", "f1", "loss", "perplexity", "lr")

    def rank(name: str) -> tuple[int, int, str]:
        last = name.rpartition("/")[2]
        place = first.index(name) if name in first else first.index(last) if last in first else len(first)
        return place, -counted[name], name

    return sorted(counted, key=rank)[:MAX_PANELS]


def plot_precision_recall(compared: ComparedSet) -> bytes | None:
    """Plots precision by recall of each system's scores, with a mark where its own threshold stands."""
    from sklearn.metrics import precision_recall_curve

    scored = _scored(compared)
    if not scored:
        return None

    def draw() -> "Figure":
        figure, axes = new_figure(6.4, 4.6)
        for place, (name, outcomes) in enumerate(scored.items()):
            rows = outcomes.scored
            precision, recall, _ = precision_recall_curve(outcomes.gold[rows], outcomes.scores[rows])
            kept = _kept(len(recall) - 1)  # its last point, recall 0, is none of the scores
            axes.plot(recall[kept], precision[kept], label=plot_name(name), drawstyle="steps-post", **_style(place))
            called = outcomes.called[rows] == 1
            if called.any():
                right = int((outcomes.gold[rows] * called).sum())
                at = right / max(int(outcomes.gold[rows].sum()), 1), right / int(called.sum())
                mark: dict[str, Any] = {"color": COLOURS[place], "markeredgecolor": "black", "zorder": 3}
                axes.plot(*at, MARKERS[place], markersize=8, **mark)
                lowest = f"{outcomes.scores[rows][called].min():.2f}"
                axes.annotate(lowest, at, xytext=(6, 6), textcoords="offset points", fontsize=8)
        base = float(np.mean(next(iter(scored.values())).gold))
        axes.axhline(base, color=GREY, linewidth=0.8, linestyle=":", label=f"share of hallucinated rows, {base:.0%}")
        _unit(axes, "recall of hallucinated rows", "precision")
        legend_above(axes, "Precision by recall; marks: what each calls, from the score beside on")
        return figure

    return svg(draw)


def plot_reliability(compared: ComparedSet) -> bytes | None:
    """Plots the share of hallucinated rows by score, in ten bins; points are as large as their bins."""
    scored = _scored(compared)
    if not scored:
        return None

    def draw() -> "Figure":
        figure, axes = new_figure(6.4, 4.6)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":", label="calibrated")
        for place, (name, outcomes) in enumerate(scored.items()):
            rows = outcomes.scored
            bins = reliability(outcomes.scores[rows], outcomes.gold[rows], NUM_BINS)
            x, y = [one.mean_score for one in bins], [one.hallucinated for one in bins]
            sizes = [8 + 200 * one.count / int(rows.sum()) for one in bins]
            axes.plot(x, y, label=plot_name(name), **_style(place))
            axes.scatter(x, y, s=sizes, color=COLOURS[place], marker=MARKERS[place])
        _unit(axes, "P(hallucinated), mean of a bin", "share of hallucinated rows")
        legend_above(axes, "Reliability")
        return figure

    return svg(draw)


def _scored(compared: ComparedSet) -> dict[str, Outcomes]:
    """Joins the systems that give scores with the rows that they have judged; as many as can be told apart."""
    found: dict[str, Outcomes] = {}
    for system in compared.systems:
        rows = compared.test_set.judged(system)
        if len(found) == MAX_LINES or not rows:
            continue
        outcomes = join_outcomes(rows, {example.id: system.predictions[example.id] for example in rows})
        gold = outcomes.gold[outcomes.scored]
        if 0 < gold.sum() < len(gold):
            found[system.name] = outcomes
    return found


def _style(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place], "linewidth": 1.4, "linestyle": ("-", "--", "-.", ":")[place % 4]}


def _unit(axes: "Axes", x: str, y: str) -> None:
    for axis, label in ((axes.xaxis, x), (axes.yaxis, y)):
        axis.set_major_formatter(percent_axis())
        axis.set_label_text(label)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.05)


def _thinned(curve: Curve) -> tuple[list[int], list[float]]:
    points = [curve[place] for place in _kept(len(curve))]
    return [step for step, _ in points], [value for _, value in points]


def _kept(count: int) -> NDArray[np.intp]:
    """Places of at most MAX_POINTS of so many points, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).astype(np.intp))


def svg(draw: Any) -> bytes:
    """Draws a figure as SVG, the same bytes for the same data."""
    from matplotlib import rc_context

    image = BytesIO()
    with rc_context({**STYLE, "svg.hashsalt": "faithkit"}):
        draw().savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    return image.getvalue()
