"""Lists every table that can be reproduced, by its name."""

from collections.abc import Iterator, Sequence

from faithkit_workflows.reproduction import diahalu_tables, faithdial_tables, halludial_tables, ragtruth_tables
from faithkit_workflows.reproduction.cells import Table
from faithkit_workflows.reproduction.faithdial_tables import TRANSFER
from faithkit_workflows.reproduction.table_steps import Step, sort_steps

NAMES = (
    *(f"faithdial_{number}" for number in (1, 2, 4, 5, 8)),
    *(f"halludial_{number}" for number in (2, 3, 4, 5, 6, 8, 10)),
    *(f"ragtruth_{number}" for number in (2, 3, 4, 5, 6, 7)),
    *(f"diahalu_{number}" for number in (2, 3, 4)),
)
ALL = "all"
PAPERS = (faithdial_tables, halludial_tables, ragtruth_tables, diahalu_tables)


def all_tables(scale: str) -> dict[str, Table]:
    """Builds all tables at a scale, those without training first."""
    found = [table for paper in PAPERS for table in paper.build_tables(scale)]
    return {table.name: table for table in sorted(found, key=_effort)}


def _effort(table: Table) -> tuple[int, int]:
    trainings = sum(4 if step.name == TRANSFER else step.script == "train" for step in table.steps)
    return trainings, len(table.steps)


def select_tables(names: Sequence[str], scale: str) -> list[Table]:
    """Selects the named tables, or all."""
    tables = all_tables(scale)
    return list(tables.values()) if ALL in names else [tables[name] for name in dict.fromkeys(names)]


def steps_of(table: Table) -> list[Step]:
    """Lists the steps of a table and those that they need, in order."""
    return sort_steps(table.used, {step.name: step for step in table.steps})


def all_steps(tables: Sequence[Table]) -> Iterator[Step]:
    """Lists the steps of several tables, each once."""
    yield from {step.name: step for table in tables for step in steps_of(table)}.values()
