"""Compares tables with the papers', draws figures and writes both: to the terminal and to research/reproduction.md."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as Shown

from faithkit.environment import environment
from faithkit.files.atomic import write_json, write_text
from faithkit.files.jsonl import read_strict_json
from faithkit.metrics.outcomes import REPORTED_UNPARSED, TOO_MANY_UNPARSED
from faithkit.pages.page_tables import (
    escape_markdown,
    format_metric,
    new_number_table,
    print_tables,
    to_markdown,
)
from faithkit.pages.plotting import require_plots
from faithkit_workflows.reproduction.cells import (
    NOT_COMPARABLE,
    Cell,
    Count,
    Difference,
    Estimate,
    HumanScore,
    Metric,
    Table,
    compare_with_published,
)
from faithkit_workflows.reproduction.paper_figures import Figure
from faithkit_workflows.reproduction.paper_tables import all_steps, steps_of
from faithkit_workflows.reproduction.table_steps import (
    GPU_GIGABYTES,
    LOCAL,
    OURS,
    PAPER,
    Place,
    Step,
    describe_prompts,
    find_blocked_steps,
    needed_prompts,
    read_costs,
    sort_steps,
)

NOT_RUN = "not run"
DROPPED = ("dropped", "rejected")  # how the outcomes of rows that are left out begin
COMPARED_BY_EYE = "the paper prints no numbers: compare by eye"
RULE = "within: the paper's figure, as rounded, lies in our interval, or ours rounds to it; else above or below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A compared cell.

    Args:
        why: The reason, if there is no verdict.
        prompts: The prompts of our figure: ours, or the user's files with their fingerprints; empty if it has none.
        unparsed: The share of replies without a verdict; our figure is not shown if it is larger than a half.
        stars: Our mark of significance.
    """

    cell: Cell
    ours: Estimate | None
    verdict: str
    why: str = ""
    prompts: str = ""
    unparsed: float = 0.0
    stars: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values, for JSON."""
        ours = self.ours and {name: getattr(self.ours, name) for name in ("value", "low", "high", "n")}
        shown = {"row": self.cell.row, "column": self.cell.column, "paper": self.cell.published, "ours": ours}
        why = {"verdict": self.verdict, "why": self.why or None, "prompts": self.prompts or None}
        return {**shown, **why, "unparsed": self.unparsed, "stars": self.stars, "paper_stars": self.cell.stars}


def compare_table(table: Table, place: Place, without: Mapping[str, str]) -> list[Compared]:
    """Reads the results of the steps and compares every cell.

    Args:
        without: The steps without results, with the reason.
    """
    part, origins = describe_missing_data(table, place, without), trace_cells(table, place)
    return [_compare(cell, origin, place, without, part) for cell, origin in zip(table.cells, origins, strict=True)]


def describe_missing_data(table: Table, place: Place, without: Mapping[str, str]) -> str:
    """Describes how our data differ in size from the paper's; empty if they do not."""
    whole = table.whole
    if whole is None or whole.step in without:
        return ""
    found = Count(whole.step, whole.count).read(place.folder(whole.step))
    here = 0 if found is None else int(found.value)
    return "" if here == whole.number else f"here are {here:,} {whole.unit}, in the paper {whole.number:,}"


def _compare(
    cell: Cell, origin: tuple[list[Step], str, str], place: Place, without: Mapping[str, str], part: str
) -> Compared:
    result, (needed, prompts, replaced) = cell.result, origin
    blocked = next((without[step.name] for step in needed if step.name in without), "")
    if result is None or blocked:
        return Compared(cell=cell, ours=None, verdict=NOT_RUN, why=blocked or cell.why)
    folder = place.folder(result.step)
    ours = result.read(folder)
    if ours is None:
        return Compared(cell=cell, ours=None, verdict=NOT_RUN, why="our data or models have no such figure")
    unparsed = result.read_unparsed(folder) if isinstance(result, Metric | Difference) else 0.0
    why = replaced or (part if isinstance(result, Count) else "")
    if unparsed > TOO_MANY_UNPARSED:
        why = f"{unparsed:.0%} of the replies could not be read as a verdict"
    elif cell.published is None:
        why = cell.why
    verdict = NOT_COMPARABLE
    if not why and cell.published is not None:
        verdict = compare_with_published(ours, cell.published, digits=cell.digits)
    stars = result.read_stars(folder) if isinstance(result, HumanScore) else ""
    return Compared(cell=cell, ours=ours, verdict=verdict, why=why, prompts=prompts, unparsed=unparsed, stars=stars)


def trace_cells(table: Table, place: Place) -> Iterator[tuple[list[Step], str, str]]:
    """Yields for each cell the steps behind its result, their prompts, and what replaces the paper's data and models.

    The last is empty if the result can be compared with the paper's.
    """
    steps = {step.name: step for step in table.steps}
    prompts_of = {name: describe_prompts(step.arguments, place.prompts) for name, step in steps.items()}
    for cell in table.cells:
        names = (getattr(cell.result, "step", ""), getattr(cell.result, "before", ""))
        needed = sort_steps(filter(None, names), steps)
        replaced, prompts = _embedded(needed, place), dict[str, None]()
        if not getattr(cell.result, "of_baseline", False):
            prompts = dict.fromkeys(prompts_of[step.name] for step in needed if prompts_of[step.name])
            replaced += [step.stand_in for step in needed if step.stand_in]
            replaced += [f"{OURS} in place of the paper's"] * (OURS in prompts)
        yield needed, "; ".join(prompts), "; ".join(dict.fromkeys(replaced))


def _embedded(steps: Iterable[Step], place: Place) -> list[str]:
    """Lists the corpora that the embedded one replaces in these steps."""
    corpora = dict.fromkeys(name for step in steps for name in place.embedded(step))
    return [f"the embedded corpus in place of {' and '.join(corpora)}"] if corpora else []


def list_dropped_rows(table: Table, place: Place) -> Iterator[str]:
    """Lists for each step how many rows of its data were left out, and why."""
    for name in table.used:
        path = place.folder(name) / "metrics.json"
        if path.exists():
            counts = _dropped(read_strict_json(path, hint=f"delete {path.parent}").get("meta", {}).get("data"))
            if counts:
                yield f"rows left out by {name}: {', '.join(f'{why} {number:,}' for why, number in counts.items())}"


def _dropped(data: Any) -> Counter[str]:
    """Sums the counts of dropped and rejected rows in the description of a step's data."""
    found: Counter[str] = Counter()
    for key, value in data.items() if isinstance(data, Mapping) else ():
        kind, _, why = key.partition(": ")
        if kind in DROPPED and isinstance(value, int):
            found[why] += value
        else:
            found += _dropped(value)
    return found


def build_comparison_table(table: Table, found: list[Compared], part: str, dropped: Iterable[str] = ()) -> Shown:
    """Builds the printed table: a row for each cell with a figure of ours; the others are counted below.

    Args:
        dropped: Lines about rows that were left out.
    """
    reasons = list(dict.fromkeys(one.why for one in found if one.ours is not None and one.why))

    def rows() -> Iterator[Sequence[str]]:
        row = ""
        for one in found:
            if one.ours is not None:
                mark = f" ({reasons.index(one.why) + 1})" if one.why else ""
                named, row = "" if one.cell.row == row else one.cell.row, one.cell.row
                digits, published = one.cell.digits, one.cell.published
                paper = "-" if published is None else f"{published:,.{digits}f}{one.cell.stars}"
                ours = format_metric(one.ours, digits=digits if one.ours.low is None else max(digits, 1)) + one.stars
                ours = "-" if one.unparsed > TOO_MANY_UNPARSED else ours
                yield named, one.cell.column, ours, paper, one.verdict + mark

    title, lines = f"{table.name}: {table.title}", (*_caption_lines(table, found, reasons, part), *dropped)
    lines = (*lines, f"in all: {count_verdicts(found)}")
    return new_number_table(title, ("", ""), ("ours", "paper", "verdict"), rows(), caption=lines, show_edge=True)


def _caption_lines(table: Table, found: list[Compared], reasons: list[str], part: str) -> Iterator[str]:
    yield f"paper: {table.citation}; [low, high]: our 95% interval"
    yield RULE
    yield from (f"({number}) {reason}" for number, reason in enumerate(reasons, start=1))
    if prompts := dict.fromkeys(one.prompts for one in found if one.ours is not None and one.prompts):
        yield f"prompts: {'; '.join(prompts)}"
    left = Counter(one.why for one in found if one.ours is None)
    yield from (f"{number} of the paper's figures without ours: {why}" for why, number in left.items())
    if part and any(one.ours is not None and not one.why for one in found):
        yield f"{part}: only shares are compared"
    if table.note:
        yield table.note
    shares = {one.cell.row: one.unparsed for one in found if REPORTED_UNPARSED < one.unparsed <= TOO_MANY_UNPARSED}
    yield from (f"unparsed: {share:.0%} of the replies of {row}" for row, share in shares.items())


def count_verdicts(found: list[Compared]) -> str:
    """Counts the verdicts."""
    return ", ".join(f"{number} {name}" for name, number in Counter(one.verdict for one in found).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A finished table or figure.

    Args:
        text: In markdown.
        verdicts: The number of each verdict.
        image: The file of a drawn figure.
    """

    result: Table | Figure
    text: str
    verdicts: str
    image: Path | None = None


def write_result(result: Table | Figure, place: Place, without: Mapping[str, str]) -> Made:
    """Writes a table or figure into the folder `tables`, and prints the table or the figure's file."""
    if isinstance(result, Table):
        return write_table(result, place, without)
    return write_figure(result, place, without)


def write_figure(figure: Figure, place: Place, without: Mapping[str, str]) -> Made:
    """Draws a figure as PNG; without its steps or data the reason is printed."""
    require_plots()
    folder = place.out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    missing = dict.fromkeys(without[name] for name in figure.used if name in without)
    can_draw = any(name not in without for name in figure.used)
    path = figure.draw(place, folder / f"{figure.name}.png") if can_draw else None
    reason = "; ".join(missing) or "our data or models have nothing to show"
    needed = steps_of(figure)
    stand_ins = [step.stand_in for step in needed if step.stand_in]
    notes = dict.fromkeys([*_embedded(needed, place), *stand_ins, *(f"left out: {why}" for why in missing)])
    print(f"{figure.name}: {figure.title} ({figure.citation}; {COMPARED_BY_EYE})")
    print(f"  {path or f'{NOT_RUN}: {reason}'}", *(f"  {note}" for note in notes if path), sep="\n")
    text = "\n\n".join(
        [
            f"## {escape_markdown(f'{figure.name}: {figure.title}')}",
            escape_markdown("; ".join([figure.citation, COMPARED_BY_EYE, *notes])),
            *(() if path else (escape_markdown(f"{NOT_RUN}: {reason}"),)),
        ]
    )
    return Made(result=figure, text=text, verdicts="1 drawn" if path else f"1 {NOT_RUN}", image=path)


def write_table(table: Table, place: Place, without: Mapping[str, str]) -> Made:
    """Prints a table, and writes it as JSON and markdown into the folder `tables`."""
    found, part = compare_table(table, place, without), describe_missing_data(table, place, without)
    shown = build_comparison_table(table, found, part, list_dropped_rows(table, place))
    print_tables(shown)
    folder = place.out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    cells = [one.to_dict() for one in found]
    write_json(folder / f"{table.name}.json", {"table": table.name, "paper": table.citation, "cells": cells})
    made = Made(result=table, text=to_markdown(shown), verdicts=count_verdicts(found))
    write_text(folder / f"{table.name}.md", made.text)
    return made


def write_report(path: Path, made: Sequence[Made], place: Place) -> None:
    """Writes all tables into one file, with the machine, the date, and the time of each step."""
    write_text(path, "\n".join(_report_lines(path, made, place)) + "\n")


def _report_lines(path: Path, made: Sequence[Made], place: Place) -> Iterator[str]:
    facts = environment()
    yield "# The papers' tables, reproduced"
    yield ""
    yield f"By `faithkit reproduce` at `scale={place.scale}` ({time.strftime('%Y-%m-%d')}; docs/papers/reproducing.md)."
    versions = ", ".join(f"{name} {facts[name]}" for name in ("python", "torch", "transformers"))
    yield f"{facts['cpu']}, {os.cpu_count()} cores; {versions}; commit {facts['git_commit']}."
    if place.scale == LOCAL:
        yield "Small models, few rows and, without given corpora, the embedded one: this shows that every step works,"
        yield "and not how good the papers' methods are. Verdicts are given only for counts of the papers' data."
    yield f"Brackets are our 95% intervals. Verdicts: {RULE}."
    yield ""
    yield "| table | what | verdicts |"
    yield "| --- | --- | --- |"
    yield from (f"| {one.result.name} | {escape_markdown(one.result.title)} | {one.verdicts} |" for one in made)
    yield ""
    for one in made:
        yield one.text.replace(f"{RULE}\n\n", "")
        if one.image:
            yield f"\n![{escape_markdown(one.result.title)}]({os.path.relpath(one.image, path.parent)})\n"
    spent = read_costs(all_steps([one.result for one in made]), place)
    yield "## Time of each step"
    yield ""
    yield "| step | CPU seconds | seconds | ended |"
    yield "| --- | ---: | ---: | --- |"
    for name, record in spent.items():
        yield f"| {name} | {record.cpu_seconds:,.0f} | {record.seconds:,.0f} | {record.ended} |"


MAX_REASONS = 4
NOT_PUBLISHED = "the paper's figure is not available"
BY_EYE = "by eye: the paper prints no numbers"


def describe_results(results: Sequence[Table | Figure], place: Place) -> Iterator[str]:
    """Yields the lines about each table and figure."""
    for result in results:
        steps = steps_of(result)
        comparable = BY_EYE if isinstance(result, Figure) else describe_comparability(result, place)
        yield f"{result.name}: {result.title}"
        yield f"  data: {', '.join(_describe_data(steps, place))}"
        yield from (f"  prompts: {prompts}" for prompts in _describe_prompts(steps, place))
        yield f"  hardware: {', '.join(_describe_hardware(steps, place))}"
        yield f"  comparable: {comparable}"


def _describe_data(steps: Sequence[Step], place: Place) -> Iterator[str]:
    """Names the corpora of the steps, and where each comes from."""
    for name in dict.fromkeys(name for step in steps for name in step.corpora.values()):
        if place.corpus(name):
            yield f"{name}: given"
        elif any(name in place.given(step) for step in steps):
            yield f"{name}: from the hub"
        else:
            yield f"{name}: {'missing' if place.scale == PAPER else 'embedded'}"


def _describe_prompts(steps: Sequence[Step], place: Place) -> Iterator[str]:
    """Names the prompts that language models are asked with: ours, or the user's."""
    found: dict[str, dict[str, str]] = {}
    for step in steps:
        folder, names = needed_prompts(step.arguments)
        origin = "ours" if describe_prompts(step.arguments, place.prompts) == OURS else "yours"
        for name in names:
            found.setdefault(folder, {})[name] = origin
    for folder, names_with_origin in found.items():
        yield f"{folder}: " + ", ".join(f"{name} ({origin})" for name, origin in names_with_origin.items())


def _describe_hardware(steps: Sequence[Step], place: Place) -> Iterator[str]:
    """Names the GPUs, trainings and paid servers that the steps need."""
    most = max((step.num_gpus for step in steps), default=0)
    trainings = sum(step.script == "train" for step in steps)
    runs_models = any(step.script != "construct" for step in steps)
    if place.scale == PAPER and runs_models:
        yield f"{max(1, most)} GPU{'s' if most > 1 else ''} of {GPU_GIGABYTES} GB"
    else:
        yield "CPU"
    if trainings:
        yield f"{trainings} training{'s' if trainings > 1 else ''}"
    yield from dict.fromkeys(step.server for step in steps if step.server)


def describe_comparability(table: Table, place: Place) -> str:
    """Counts the cells that could be compared with the paper, and names what prevents the others."""
    blocked = find_blocked_steps(table.steps, place)
    reasons: Counter[str] = Counter()
    for cell, (needed, _, replaced) in zip(table.cells, trace_cells(table, place), strict=True):
        missing = next((blocked[step.name] for step in needed if step.name in blocked), "")
        if cell.result is None or cell.published is None:
            reasons[cell.why or NOT_PUBLISHED] += 1
        elif missing or replaced:
            reasons[missing or replaced] += 1
    comparable = len(table.cells) - reasons.total()
    shown = f"{comparable} of {len(table.cells)} figures"
    return "; ".join([shown, *(f"{number} not: {reason}" for reason, number in reasons.most_common(MAX_REASONS))])
