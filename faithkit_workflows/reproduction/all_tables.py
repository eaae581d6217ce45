"""Lists every table and figure that can be reproduced, by its name."""

from collections.abc import Iterable, Iterator, Sequence

from faithkit_workflows.reproduction import diahalu_tables, faithdial_tables, halludial_tables, ragtruth_tables
from faithkit_workflows.reproduction.cells import Table
from faithkit_workflows.reproduction.faithdial_tables import TRANSFER
from faithkit_workflows.reproduction.paper_figures import Figure, build_figures
from faithkit_workflows.reproduction.table_steps import Step, sort_steps

NAMES = (
    *(f"faithdial_{number}" for number in (1, 2, 4, 5, 7, 8)),
    *("faithdial_edits", "faithdial_fallback", "faithdial_unanswerable", "faithdial_validation"),
    *(f"halludial_{number}" for number in range(1, 11)),
    *(f"ragtruth_{number}" for number in (2, 3, 4, 5, 6, 7)),
    *(f"diahalu_{number}" for number in (1, 2, 3, 4)),
    *(f"ragtruth_figure_{number}" for number in (2, 3, 4)),
    *(f"diahalu_figure_{number}" for number in (3, 5)),
    *(f"halludial_figure_{number}" for number in (2, 3, 4, 5)),
)
ALL, LIST = "all", "list"
PAPERS = (faithdial_tables, halludial_tables, ragtruth_tables, diahalu_tables)


def all_tables(scale: str) -> dict[str, Table]:
    """Builds all tables at a scale, those without training first."""
    found = [table for paper in PAPERS for table in paper.build_tables(scale)]
    return {table.name: table for table in sorted(found, key=_effort)}


def all_results(scale: str) -> dict[str, Table | Figure]:
    """Builds all tables, and then the figures, at a scale."""
    tables = all_tables(scale)
    return {**tables, **{figure.name: figure for figure in build_figures(tables, scale)}}


def _effort(table: Table) -> tuple[int, int]:
    trainings = sum(4 if step.name == TRANSFER else step.script == "train" for step in table.steps)
    return trainings, len(table.steps)


def select_results(names: Sequence[str], scale: str) -> list[Table | Figure]:
    """Selects the named tables and figures, or all."""
    results = all_results(scale)
    return list(results.values()) if ALL in names else [results[name] for name in dict.fromkeys(names)]


def steps_of(result: Table | Figure) -> list[Step]:
    """Lists the steps of a table or figure and those that they need, in order."""
    return sort_steps(result.used, {step.name: step for step in result.steps})


def all_steps(results: Iterable[Table | Figure]) -> Iterator[Step]:
    """Lists the steps of several tables and figures, each once."""
    yield from {step.name: step for result in results for step in steps_of(result)}.values()
