"""The look of this project's plots, and writing them as PNG files; matplotlib is imported only when it is used."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.files.atomic import atomic_file, disk_errors
from faithkit.packages import needs_package
from faithkit.pages.page_tables import escape_terminal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct for colour-blind readers.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKERS = "osD^vPX"
DPI = 150
STYLE: dict[Any, Any] = {
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
    with needs_package("a plot"):
        import matplotlib  # noqa: F401


def save_figure(figure: "Figure", path: Path) -> Path:
    """Writes a figure, whole or not at all."""
    image = BytesIO()
    figure.savefig(image, format="png", dpi=DPI)
    with atomic_file(path) as file, disk_errors(path):
        file.write(image.getvalue())
    return path


def new_figure(
    width: float, height: float, *, rows: int = 1, columns: int = 1, height_ratios: Sequence[float] | None = None
) -> "tuple[Figure, Axes]":
    """Makes a figure of several axes, and gives the first of them.

    Without pyplot, which would choose a window system and keep every figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.subplots(rows, columns, height_ratios=height_ratios)
    return figure, figure.axes[0]


def plot_name(text: str) -> str:
    """Shortens a name from the data for a plot, without a $ that would start a formula."""
    return escape_terminal(text, 40).replace("$", r"\$")


def percent_axis() -> Any:
    """Formats shares on an axis as whole percent."""
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(xmax=1, decimals=0)


def legend_above(axes: "Axes", title: str) -> None:
    """Sets a title with the legend between it and the axes, in two rows where one would be too wide."""
    names = axes.get_legend_handles_labels()[1]
    columns = len(names) if sum(map(len, names)) + 4 * len(names) <= 78 else (len(names) + 1) // 2
    rows = -(-len(names) // max(columns, 1))
    axes.set_title(title, pad=8 + 16 * rows)
    if names:
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": columns}
        axes.legend(**place, handlelength=1, columnspacing=1.1, borderpad=0.2)
