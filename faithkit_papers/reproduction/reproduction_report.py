"""Compares tables with the papers', draws figures and writes both: to the terminal and to research/reproduction.md."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as Shown

from faithkit.files.atomic import write_json, write_text
from faithkit.files.jsonl import read_strict_json
from faithkit.metrics.classification import REPORTED_UNPARSED, TOO_MANY_UNPARSED
from faithkit.packages import environment
from faithkit.pages.page_tables import escape_markdown, format_metric, new_number_table, print_tables, to_markdown
from faithkit.pages.plotting import require_plots
from faithkit_papers.reproduction.paper_parts import (
    NOT_COMPARABLE,
    Cell,
    Count,
    Difference,
    Estimate,
    Figure,
    HumanScore,
    Metric,
    Table,
    compare_with_published,
)
from faithkit_papers.reproduction.paper_tables import all_steps, steps_of
from faithkit_papers.reproduction.table_steps import (
    GPU_GIGABYTES,
    LOCAL,
    OURS,
    PAPER,
    Place,
    Step,
    describe_prompts,
    find_blocked_steps,
    needed_prompts,
    read_record,
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
        why: The reason, if there is no verdict: the differences, or why there is no figure.
        differences: From the paper's protocol; a cell has a verdict only without one.
        prompts: The prompts of our figure: ours, or the user's files with their fingerprints; empty if it has none.
        unparsed: The share of replies without a verdict; our figure is not shown if it is larger than a half.
        stars: Our mark of significance.
    """

    cell: Cell
    ours: Estimate | None
    verdict: str
    why: str = ""
    differences: tuple[str, ...] = ()
    prompts: str = ""
    unparsed: float = 0.0
    stars: str = ""


def compare_table(table: Table, place: Place, without: Mapping[str, str]) -> list[Compared]:
    """Reads the results of the steps and compares every cell.

    Args:
        without: The steps without results, with the reason.
    """
    part, found = describe_missing_data(table, place, without), []
    for cell, (needed, prompts, differences) in zip(table.cells, trace_cells(table, place), strict=True):
        result = cell.result
        blocked = next((without[step.name] for step in needed if step.name in without), "")
        if result is None or blocked:
            found.append(Compared(cell=cell, ours=None, verdict=NOT_RUN, why=blocked or cell.why))
            continue
        folder = place.folder(result.step)
        ours = result.read(folder)
        if ours is None:
            reason = "our data or models have no such figure"
            found.append(Compared(cell=cell, ours=None, verdict=NOT_RUN, why=reason))
            continue
        unparsed = result.read_unparsed(folder) if isinstance(result, Metric | Difference) else 0.0
        if part and isinstance(result, Count):
            differences = (*differences, part)
        why = "; ".join(differences)
        if unparsed > TOO_MANY_UNPARSED:
            why = f"{unparsed:.0%} of the replies could not be read as a verdict"
        elif cell.published is None:
            why = cell.why
        verdict = NOT_COMPARABLE
        if not why and cell.published is not None:
            verdict = compare_with_published(ours, cell.published, digits=cell.digits)
        stars = result.read_stars(folder) if isinstance(result, HumanScore) else ""
        shown: dict[str, Any] = {"differences": differences, "prompts": prompts, "unparsed": unparsed, "stars": stars}
        found.append(Compared(cell=cell, ours=ours, verdict=verdict, why=why, **shown))
    return found


def describe_missing_data(table: Table, place: Place, without: Mapping[str, str]) -> str:
    """Describes how our data differ in size from the paper's; empty if they do not."""
    whole = table.whole
    if whole is None or whole.step in without:
        return ""
    found = Count(whole.step, whole.count).read(place.folder(whole.step))
    here = 0 if found is None else int(found.value)
    return "" if here == whole.number else f"here are {here:,} {whole.unit}, in the paper {whole.number:,}"


def trace_cells(table: Table, place: Place) -> Iterator[tuple[list[Step], str, tuple[str, ...]]]:
    """Yields for each cell the steps behind its result, their prompts, and how it differs from the paper's protocol."""
    steps = {step.name: step for step in table.steps}
    prompts_of = {name: describe_prompts(step.arguments, place.prompts) for name, step in steps.items()}
    for cell in table.cells:
        names = [name for name in (getattr(cell.result, "step", ""), getattr(cell.result, "before", "")) if name]
        needed = sort_steps(names, steps)
        differences, prompts, recipe = _embedded(needed, place), dict[str, None](), list(cell.differs)
        models = [] if getattr(cell.result, "of_baseline", False) else needed
        prompts = dict.fromkeys(prompts_of[step.name] for step in models if prompts_of[step.name])
        differences += [step.stand_in for step in models if step.stand_in]
        differences += [f"{OURS} in place of the paper's"] * (OURS in prompts)
        for step in models or [steps[name] for name in names]:
            given = (argument.partition("=") for argument in step.arguments)
            if limits := [int(value) for key, _, value in given if key.split(".")[-1] in ("num_rows", "limit")]:
                differences.append(f"at most {min(limits):,} rows")
        recipe += [line for step in models for line in step.differs]
        if recipe:
            differences.append(f"recipe differs: {', '.join(dict.fromkeys(recipe))}")
        yield needed, "; ".join(prompts), tuple(dict.fromkeys(differences))


def _embedded(steps: Iterable[Step], place: Place) -> list[str]:
    """Lists the corpora that the embedded one replaces in these steps."""
    corpora = dict.fromkeys(name for step in steps for name in place.embedded(step))
    return [f"the embedded corpus in place of {' and '.join(corpora)}"] if corpora else []


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
    measured = [one for one in found if one.ours is not None]
    reasons = list(dict.fromkeys(one.why for one in measured if one.why))
    rows, row = [], ""
    for one in measured:
        mark = f" ({reasons.index(one.why) + 1})" if one.why else ""
        named, row = "" if one.cell.row == row else one.cell.row, one.cell.row
        digits, published = one.cell.digits, one.cell.published
        paper = "-" if published is None else f"{published:,.{digits}f}{one.cell.stars}"
        has_interval = one.ours is not None and one.ours.low is not None
        ours = format_metric(one.ours, digits=max(digits, 1) if has_interval else digits) + one.stars
        ours = "-" if one.unparsed > TOO_MANY_UNPARSED else ours
        rows.append((named, one.cell.column, ours, paper, one.verdict + mark))
    lines = [f"paper: {table.citation}; [low, high]: our 95% interval", RULE]
    lines += [f"({number}) {reason}" for number, reason in enumerate(reasons, start=1)]
    if prompts := dict.fromkeys(one.prompts for one in measured if one.prompts):
        lines.append(f"prompts: {'; '.join(prompts)}")
    left = Counter(one.why for one in found if one.ours is None)
    lines += [f"{number} of the paper's figures without ours: {why}" for why, number in left.items()]
    if part and any(not one.why for one in measured):
        lines.append(f"{part}: only shares are compared")
    lines += [table.note] if table.note else []
    shares = {one.cell.row: one.unparsed for one in found if REPORTED_UNPARSED < one.unparsed <= TOO_MANY_UNPARSED}
    lines += [f"unparsed: {share:.0%} of the replies of {row}" for row, share in shares.items()]
    lines += [*dropped, f"in all: {count_verdicts(found)}"]
    title, heads = f"{table.name}: {table.title}", ("ours", "paper", "verdict")
    return new_number_table(title, ("", ""), heads, rows, caption=lines, show_edge=True)


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
    """Writes a table or figure into the folder `tables`, and prints the table or the figure's file.

    A figure is drawn as PNG; without its steps or data the reason is printed.
    """
    if isinstance(result, Table):
        return write_table(result, place, without)
    require_plots()
    folder = place.out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    missing = dict.fromkeys(without[name] for name in result.used if name in without)
    can_draw = any(name not in without for name in result.used)
    path = result.draw(place, folder / f"{result.name}.png") if can_draw else None
    reason = "; ".join(missing) or "our data or models have nothing to show"
    needed = steps_of(result)
    stand_ins = [step.stand_in for step in needed if step.stand_in]
    recipe = [*result.differs, *(line for step in needed for line in step.differs)]
    differs = [f"recipe differs: {line}" for line in recipe]
    notes = dict.fromkeys([*_embedded(needed, place), *stand_ins, *differs, *(f"left out: {why}" for why in missing)])
    print(f"{result.name}: {result.title} ({result.citation}; {COMPARED_BY_EYE})")
    print(f"  {path or f'{NOT_RUN}: {reason}'}", *(f"  {note}" for note in notes if path), sep="\n")
    text = "\n\n".join(
        [
            f"## {escape_markdown(f'{result.name}: {result.title}')}",
            escape_markdown("; ".join([result.citation, COMPARED_BY_EYE, *notes])),
            *(() if path else (escape_markdown(f"{NOT_RUN}: {reason}"),)),
        ]
    )
    return Made(result=result, text=text, verdicts="1 drawn" if path else f"1 {NOT_RUN}", image=path)


def write_table(table: Table, place: Place, without: Mapping[str, str]) -> Made:
    """Prints a table, and writes it as JSON and markdown into the folder `tables`."""
    found, part = compare_table(table, place, without), describe_missing_data(table, place, without)
    dropped = []
    for name in table.used:
        path = place.folder(name) / "metrics.json"
        if path.exists():
            counts = _dropped(read_strict_json(path, hint=f"delete {path.parent}").get("meta", {}).get("data"))
            if counts:
                numbers = ", ".join(f"{why} {number:,}" for why, number in counts.items())
                dropped.append(f"rows left out by {name}: {numbers}")
    shown = build_comparison_table(table, found, part, dropped)
    print_tables(shown)
    folder = place.out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    cells = [
        {
            "row": one.cell.row,
            "column": one.cell.column,
            "paper": one.cell.published,
            "ours": one.ours and {name: getattr(one.ours, name) for name in ("value", "low", "high", "n")},
            "verdict": one.verdict,
            "why": one.why or None,
            "differences": list(one.differences),
            "prompts": one.prompts or None,
            "unparsed": one.unparsed,
            "stars": one.stars,
            "paper_stars": one.cell.stars,
        }
        for one in found
    ]
    write_json(folder / f"{table.name}.json", {"table": table.name, "paper": table.citation, "cells": cells})
    made = Made(result=table, text=to_markdown(shown), verdicts=count_verdicts(found))
    write_text(folder / f"{table.name}.md", made.text)
    return made


def write_report(path: Path, made: Sequence[Made], place: Place) -> None:
    """Writes all tables into one file, with the machine, the date, and the time of each step."""
    facts = environment()
    versions = ", ".join(f"{name} {facts[name]}" for name in ("python", "torch", "transformers"))
    lines = [
        "# The papers' tables, reproduced",
        "",
        f"By `faithkit reproduce` at `scale={place.scale}` ({time.strftime('%Y-%m-%d')}; docs/papers/reproducing.md).",
        f"{facts['cpu']}, {os.cpu_count()} cores; {versions}; commit {facts['git_commit']}.",
    ]
    if place.scale == LOCAL:
        lines += [
            "Small models, few rows and, without given corpora, the embedded one: this shows that every step works,",
            "and not how good the papers' methods are. Verdicts are given only for counts of the papers' data.",
        ]
    lines += [f"Brackets are our 95% intervals. Verdicts: {RULE}.", ""]
    lines += ["| table | what | verdicts |", "| --- | --- | --- |"]
    lines += [f"| {one.result.name} | {escape_markdown(one.result.title)} | {one.verdicts} |" for one in made]
    lines.append("")
    for one in made:
        lines.append(one.text.replace(f"{RULE}\n\n", ""))
        if one.image:
            place_of = os.path.relpath(one.image, path.parent)
            lines.append(f"\n![{escape_markdown(one.result.title)}]({place_of})\n")
    lines += ["## Time of each step", "", "| step | CPU seconds | seconds | ended |", "| --- | ---: | ---: | --- |"]
    for step in all_steps([one.result for one in made]):
        record = read_record(step, place)
        if record and record.ended:
            lines.append(f"| {step.name} | {record.cpu_seconds:,.0f} | {record.seconds:,.0f} | {record.ended} |")
    write_text(path, "\n".join(lines) + "\n")


def describe_results(results: Sequence[Table | Figure], place: Place) -> Iterator[str]:
    """Yields the lines about each table and figure: its corpora, prompts and hardware, and what can be compared."""
    for result in results:
        steps = steps_of(result)
        yield f"{result.name}: {result.title}"
        corpora = []
        for name in dict.fromkeys(name for step in steps for name in step.corpora.values()):
            if place.corpus(name):
                corpora.append(f"{name}: given")
            elif any(name in place.given(step) for step in steps):
                corpora.append(f"{name}: from the hub")
            else:
                corpora.append(f"{name}: {'missing' if place.scale == PAPER else 'embedded'}")
        yield f"  data: {', '.join(corpora)}"
        prompts: dict[str, dict[str, str]] = {}  # with their origin, by folder
        for step in steps:
            folder, names = needed_prompts(step.arguments)
            origin = "ours" if describe_prompts(step.arguments, place.prompts) == OURS else "yours"
            for name in names:
                prompts.setdefault(folder, {})[name] = origin
        for folder, origins in prompts.items():
            yield f"  prompts: {folder}: " + ", ".join(f"{name} ({origin})" for name, origin in origins.items())
        most = max((step.num_gpus for step in steps), default=0)
        runs_models = any(step.script != "construct" for step in steps)
        hardware = ["CPU"]
        if place.scale == PAPER and runs_models:
            hardware = [f"{max(1, most)} GPU{'s' if most > 1 else ''} of {GPU_GIGABYTES} GB"]
        if trainings := sum(step.script == "train" for step in steps):
            hardware.append(f"{trainings} training{'s' if trainings > 1 else ''}")
        hardware += dict.fromkeys(step.server for step in steps if step.server)
        yield f"  hardware: {', '.join(hardware)}"
        if isinstance(result, Figure):
            yield "  comparable: by eye: the paper prints no numbers"
            continue
        blocked, reasons = find_blocked_steps(result.steps, place), Counter[str]()
        for cell, (needed, _, differences) in zip(result.cells, trace_cells(result, place), strict=True):
            missing = next((blocked[step.name] for step in needed if step.name in blocked), "")
            if cell.result is None or cell.published is None:
                reasons[cell.why or "the paper's figure is not available"] += 1
            elif missing or differences:
                reasons[missing or "; ".join(differences)] += 1
        shown = f"{len(result.cells) - reasons.total()} of {len(result.cells)} figures"
        others = (f"{number} not: {reason}" for reason, number in reasons.most_common())
        yield f"  comparable: {'; '.join([shown, *others])}"
