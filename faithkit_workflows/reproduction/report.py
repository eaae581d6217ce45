"""Writes the tables of a reproduction: to the terminal, as JSON and markdown, and all of them as REPRODUCTION.md."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faithkit.environment import environment
from faithkit.files.atomic import write_json, write_text
from faithkit.pages.table_text import escape_markdown, to_markdown
from faithkit.pages.tables import print_tables
from faithkit_workflows.reproduction.cells import Table
from faithkit_workflows.reproduction.comparing import compare, part_of, shown_table, summary
from faithkit_workflows.reproduction.registry import all_steps
from faithkit_workflows.reproduction.running import costs
from faithkit_workflows.reproduction.steps import LOCAL, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A table that was made: its text in markdown, and the verdicts counted."""

    table: Table
    text: str
    verdicts: str


def write_table(table: Table, place: Place, without: Mapping[str, str]) -> Made:
    """Prints a table, and writes it as JSON and markdown into the folder `tables`."""
    found, part = compare(table, place, without), part_of(table, place, without)
    shown = shown_table(table, found, part)
    print_tables(shown)
    folder = place.out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    cells = [one.to_dict() for one in found]
    write_json(folder / f"{table.name}.json", {"table": table.name, "paper": table.citation, "cells": cells})
    made = Made(table=table, text=to_markdown(shown), verdicts=summary(found))
    write_text(folder / f"{table.name}.md", made.text)
    return made


def write_report(path: Path, made: Sequence[Made], place: Place) -> None:
    """Writes all tables into one file, with the machine, the time, and what each step took."""
    write_text(path, "\n".join(_lines(made, place)) + "\n")


def _lines(made: Sequence[Made], place: Place) -> Iterator[str]:
    facts = environment()
    yield "# The papers' tables, reproduced"
    yield ""
    yield f"By `faithkit reproduce` at `scale={place.scale}` ({time.strftime('%Y-%m-%d')}; docs/reproducing.md)."
    versions = ", ".join(f"{name} {facts[name]}" for name in ("python", "torch", "transformers"))
    yield f"{facts['cpu']}, {os.cpu_count()} cores; {versions}; commit {facts['git_commit']}."
    if place.scale == LOCAL:
        yield "Small models, few rows and, where no corpus is given, the embedded one: it shows that every step works,"
        yield "and not how good the papers' methods are. Verdicts stand where the papers' own data were counted."
    yield ""
    yield "| table | what | verdicts |"
    yield "| --- | --- | --- |"
    yield from (f"| {one.table.name} | {escape_markdown(one.table.title)} | {one.verdicts} |" for one in made)
    yield ""
    yield from (one.text for one in made)
    spent = costs(list(all_steps([one.table for one in made])), place)
    yield "## What each step took"
    yield ""
    yield "| step | CPU seconds | seconds | ended |"
    yield "| --- | ---: | ---: | --- |"
    for name, record in spent.items():
        yield f"| {name} | {record.cpu_seconds:,.0f} | {record.seconds:,.0f} | {record.ended} |"
