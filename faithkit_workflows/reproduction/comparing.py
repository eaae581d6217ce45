"""Sets a table's cells beside the paper's: ours with its interval, the published figure, and a verdict."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table as Shown
from rich.text import Text

from faithkit.pages.tables import escape_terminal, format_metric, new_number_table
from faithkit.statistics.metric import Metric as Interval
from faithkit_workflows.reproduction.cells import Cell, Table
from faithkit_workflows.reproduction.steps import Place, Step, in_order
from faithkit_workflows.reproduction.verdicts import NOT_COMPARABLE, Estimate, verdict

NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A cell with what was found.

    Args:
        why: Of a verdict that is none: the reason.
    """

    cell: Cell
    ours: Estimate | None
    verdict: str
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        ours = self.ours and {name: getattr(self.ours, name) for name in ("value", "low", "high", "n")}
        shown = {"row": self.cell.row, "column": self.cell.column, "paper": self.cell.published, "ours": ours}
        return {**shown, "verdict": self.verdict, "why": self.why or None}


def compare(table: Table, place: Place, without: Mapping[str, str]) -> list[Compared]:
    """Reads what the steps left and compares every cell.

    Args:
        without: The steps that there are no results of, with the reason.
    """
    steps = {step.name: step for step in table.steps}
    part = part_of(table, place, without)
    return [_compare(cell, steps, place, without, part) for cell in table.cells]


def part_of(table: Table, place: Place, without: Mapping[str, str]) -> str:
    """Says that the data at hand are not all of the paper's; nothing where they are."""
    if table.whole is None:
        return ""
    counted, whole, unit = table.whole
    if counted.step in without:
        return ""
    found = counted.read(place.folder(counted.step))
    here = 0 if found is None else int(found.value)
    return "" if here == whole else f"here are {here:,} {unit}, in the paper {whole:,}"


def _compare(cell: Cell, steps: Mapping[str, Step], place: Place, without: Mapping[str, str], part: str) -> Compared:
    def no(verdict: str, why: str, ours: Estimate | None = None) -> Compared:
        return Compared(cell=cell, ours=ours, verdict=verdict, why=why)

    result = cell.result
    if result is None:
        return no(NOT_RUN, cell.why)
    needed = in_order([name for name in (result.step, getattr(result, "before", None)) if name], steps)
    if reason := next((without[step.name] for step in needed if step.name in without), ""):
        return no(NOT_RUN, reason)
    ours = result.read(place.folder(result.step))
    if ours is None:
        return no(NOT_RUN, "the data or the models at hand give no such figure")
    if cell.published is None:
        return no(NOT_COMPARABLE, cell.why, ours)
    others = _embedded(needed, place)
    if not getattr(result, "of_baseline", False):
        others += [step.stand_in for step in needed if step.stand_in]
    if others:
        return no(NOT_COMPARABLE, "; ".join(dict.fromkeys(others)), ours)
    if part and result.exact:
        return no(NOT_COMPARABLE, part, ours)
    return Compared(cell=cell, ours=ours, verdict=verdict(ours, cell.published, digits=cell.digits))


def _embedded(steps: Iterable[Step], place: Place) -> list[str]:
    """Says which corpora the embedded one stands in for, in these steps."""
    corpora = dict.fromkeys(name for step in steps for name in place.embedded(step))
    return [f"the embedded corpus in place of {' and '.join(corpora)}"] if corpora else []


def shown_table(table: Table, found: list[Compared], part: str) -> Shown:
    """Makes the table that is printed: a line for each cell that has a figure of ours; the others are counted below."""
    reasons = list(dict.fromkeys(one.why for one in found if one.ours is not None and one.why))
    shown = new_number_table(f"{table.name}: {table.title}", ("", ""), ("ours", "paper", "verdict"), show_edge=True)
    row = ""
    for one in found:
        if one.ours is None:
            continue
        mark = f" ({reasons.index(one.why) + 1})" if one.why else ""
        named, row = "" if one.cell.row == row else one.cell.row, one.cell.row
        names = [Text(escape_terminal(name)) for name in (named, one.cell.column)]
        shown.add_row(*names, _ours(one), _paper(one.cell), one.verdict + mark)
    shown.caption = Text("\n".join(_lines(table, found, reasons, part)))
    return shown


def _lines(table: Table, found: list[Compared], reasons: list[str], part: str) -> Iterator[str]:
    yield f"paper: {table.citation}; [low, high]: our 95% interval"
    yield "within: the paper's figure, as rounded, lies in our interval, or ours rounds to it; else above or below"
    yield from (f"({number}) {reason}" for number, reason in enumerate(reasons, start=1))
    left = Counter(one.why for one in found if one.ours is None)
    yield from (f"{number} of the paper's figures without ours: {why}" for why, number in left.items())
    if part and any(one.ours is not None and not one.why for one in found):
        yield f"{part}: verdicts are of shares alone"
    if table.note:
        yield table.note
    yield f"in all: {summary(found)}"


def summary(found: list[Compared]) -> str:
    """Counts the verdicts."""
    return ", ".join(f"{number} {name}" for name, number in Counter(one.verdict for one in found).items())


def _ours(one: Compared) -> str:
    ours, digits = one.ours, one.cell.digits
    assert ours is not None
    if ours.low is not None:
        digits = max(digits, 1)
    text = format_metric(Interval(value=ours.value, low=ours.low, high=ours.high), digits=digits)
    return text


def _paper(cell: Cell) -> str:
    return "-" if cell.published is None else f"{cell.published:,.{cell.digits}f}"
