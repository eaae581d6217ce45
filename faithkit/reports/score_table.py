"""Tables of figures: systems, parts or test sets below each other under metrics, or metrics under systems.

The type of a cell decides how it is shown: metrics and differences in percent with their intervals, published figures
(numbers with a fraction, in percent already) to a tenth, counts as whole numbers, what is missing as a dash.

>>> from faithkit.pages.page_tables import render_text
>>> macro_f1 = Metric(value=0.5, low=0.4, high=0.6)
>>> rows = [("model", {"n": 1200, "macro_f1": macro_f1}), ("a paper's", {"macro_f1": 71.25})]
>>> print(render_text(score_table("test", "system", {"n": "rows", "macro_f1": "macro-F1"}, rows)).strip())
test
 system    |  rows |          macro-F1
-----------+-------+-------------------
 model     | 1,200 | 50.0 [40.0, 60.0]
 a paper's |     - |              71.2
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from faithkit.pages.page_tables import (
    escape_terminal,
    format_metric,
    format_p,
    format_percent,
    new_number_table,
)
from faithkit.scores.measures import LANGUAGE_MODEL
from faithkit.statistics.bootstrap import Difference
from faithkit.statistics.metric import Metric

Systems = Mapping[str, Mapping[str, Metric]]  # metrics by system, or by another name of a row
Cell = Metric | Difference | float | int | str | Text | None
Row = tuple[str | Text | Sequence[str], Mapping[str, Cell]] | Text | None
NOT_IN_PERCENT = tuple(name for name, one in LANGUAGE_MODEL.items() if one.kind.high > 1)


def score_table(
    title: str,
    names: str | Sequence[str],
    columns: Mapping[str, str] | Iterable[str],
    rows: Iterable[Row],
    *,
    bounds: Collection[str] | None = None,
    caption: Iterable[str | None] = (),
    min_width: int | None = None,
    no_wrap: Collection[str] = (),
    show_edge: bool = False,
) -> Table:
    """Shows rows of figures; the other arguments are those of `new_number_table`.

    Args:
        columns: The heads of the columns by the names of their cells, or names that are heads too.
        rows: The names of a row with its cells; a heading alone; None at the end of a section.
        bounds: The columns with intervals; None for all.
    """
    heads = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    lines: list[Sequence[str | Text] | None] = []
    for row in rows:
        if row is None or isinstance(row, Text):
            lines.append(row if row is None else [row])
            continue
        first, cells = row
        line: list[str | Text] = [first] if isinstance(first, str | Text) else list(first)
        for name in heads:
            cell = cells.get(name)
            if isinstance(cell, Difference):
                cell = cell.metric
            if cell is None or isinstance(cell, Metric):
                line.append(format_percent(cell, bounds=bounds is None or name in bounds))
            elif isinstance(cell, int):
                line.append(f"{cell:,}")
            else:
                line.append(f"{cell:.1f}" if isinstance(cell, float) else cell)
        lines.append(line)
    return new_number_table(
        title,
        names,
        heads.values(),
        lines,
        caption=caption,
        min_width=min_width,
        no_wrap=no_wrap,
        show_edge=show_edge,
    )


def difference_cells(difference: Difference | None, name: str = "difference", p_value: str = "p") -> dict[str, Cell]:
    """Makes the two cells of a difference and its p-value."""
    return {name: difference, p_value: format_p(difference.p_value) if difference else None}


def published_cells(figures: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Cell]:
    """Makes the cells of a paper's figures, which are in percent.

    Args:
        names: The paper's names of the columns by ours.
    """
    found = {ours: figures.get(name) for ours, name in names.items()}
    return {name: None if value is None else float(value) for name, value in found.items()}


def part_rows(
    parts: Mapping[str, Systems], size: str, published: Mapping[str, Iterable[tuple[str, Mapping[str, Cell]]]]
) -> Iterator[Row]:
    """Makes the rows of a section for each part of the data: its name and size, systems, then published figures.

    Args:
        size: The metric of the first system that counts the rows of a part.
    """
    for part, systems in parts.items():
        n = next(iter(systems.values()))[size].n
        yield Text.assemble((escape_terminal(part), "bold"), "" if n is None else f", n = {n:,}")
        yield from ((f"  {name}", found) for name, found in systems.items())
        yield from ((f"  {name}", found) for name, found in published.get(part, ()))
        yield None


def metrics_table(systems: Systems, *, title: str = "") -> Table:
    """Shows one column per system (`{"critic": metrics, "majority": metrics}`) and one row per metric, in percent."""
    names = dict.fromkeys(name for metrics in systems.values() for name in metrics)
    formats = {name: format_metric if name in NOT_IN_PERCENT else format_percent for name in names}
    rows = ((name, *(formats[name](metrics.get(name)) for metrics in systems.values())) for name in names)
    plain = [name for name in names if name in NOT_IN_PERCENT]
    unit = f"percent but for {' and '.join(plain)}" if plain else "percent"
    sizes = list_sizes(systems.values())
    caption = f"{unit}; 95% intervals over groups; n = {sizes}" if sizes else None
    return new_number_table(title, "metric", systems, rows, caption=[caption])


def list_sizes(systems: Iterable[Mapping[str, Metric]]) -> str:
    """Lists the different numbers of rows behind metrics."""
    return ", ".join(f"{n:,}" for n in sorted({m.n for metrics in systems for m in metrics.values() if m.n}))
