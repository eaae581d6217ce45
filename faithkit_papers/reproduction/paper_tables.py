"""Reads the papers' tables and figures from YAML: the steps that each needs, and which result is which cell.

The files lie here, and published figures in published/; docs/project/extending.md shows an example.

Their sections:

    shared     values that are used by their YAML anchors
    models     by name, the fields that an element of `each` with this name has too
    steps      keys of Step or Forms; `system`, the row of tables that it is; `each`, elements that each give one step
    tables     keys of Table and Part; `parts`, if not all cells are built alike
    figures    keys of Figure; `table`, if it shows the systems of a table

A value that depends on the scale is written as `{local: ..., paper: ...}`, and a list within a list is joined to it.
Texts with `{field}` are filled with the fields of an element of `each`, or of a row: `{field!k}` as in metrics' names,
`{field!l}` in lower case.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from faithkit.errors import UserError, choice_hint, shorten
from faithkit_papers.published_figures import paper_table
from faithkit_papers.reproduction.paper_parts import (
    DRAWINGS,
    Cell,
    Count,
    Difference,
    Figure,
    HumanScore,
    Metric,
    Result,
    Share,
    Table,
    Whole,
)
from faithkit_papers.reproduction.table_files import (
    FILES,
    FOLDER,
    Fields,
    Row,
    check_names,
    read_file,
    select_scale,
)
from faithkit_papers.reproduction.table_steps import PAPER, Step, sort_steps

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Which result some cells have: one of metric, human, count and share, or why there is none.

    Args:
        where: Fields with the value or the list of values for which the rule holds; `column` is a field too.
        step: The step of the result; without one here or in the table, the step that has the row as its `system`.
        metric: A name in metrics.json.
        human: A name in metrics.json that has stars of significance too.
        count: The path to a number in corpus.json.
        share: The path to counts in corpus.json, of which `part` is given as percent of `of`, or of their sum.
        otherwise: Another metric, if there is none of the first name.
        factor: From our unit to the paper's, for a metric; None for percent.
        of_baseline: The metric does not depend on the step's model.
        exact: The share is of the same rows as the paper's, and is compared by its digits.
        differs: What our figure has otherwise than the paper's; with a difference there is no verdict.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    where: dict[str, Any] = field(default_factory=dict)
    step: str = ""
    metric: str = ""
    human: str = ""
    count: tuple[str | int, ...] = ()
    share: tuple[str | int, ...] = ()
    part: str = ""
    of: str = ""
    otherwise: str = ""
    factor: float | None = None
    of_baseline: bool = False
    exact: bool = False
    differs: tuple[str, ...] = ()
    why: str = ""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.metric, self.human, self.count, self.share, self.why))) != 1:
            raise ValueError("give one of metric, human, count, share and why")
        of_metrics = {"factor": self.factor is not None, "otherwise": self.otherwise, "of_baseline": self.of_baseline}
        if (self.count or self.share) and (wrong := next((key for key, given in of_metrics.items() if given), "")):
            raise ValueError(f"{wrong} has no effect beside {'count' if self.count else 'share'}")
        if self.exact and not self.share:
            raise ValueError("exact is for a share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Cells of a table that are built alike: a row for each published row, and a column for each of `columns`.

    A table with several has their differences in `parts`, and what they share as keys of its own.

    Args:
        published: The file of the paper's figures.
        row: The name of a row.
        columns: The columns with their heads.
        results: The rules; the first that holds for a cell gives its result.
        where: Selects rows.
        fields: Further fields of a row: a text, or the column and the texts for its values; other values have the text
            of `else`, or stay as they are.
        step: The step of all results.
        before: Another step; each cell is the result of `step` minus the result of this one.
        rows: Other rows than the published ones: those of the steps of this name, or a list.
        compute: A computation of `compute_rows`, which changes the rows.
        digits: The decimal digits; by default those of the published column.
        unpublished: Keeps cells without a published figure, with this remark.
        differs: What all these figures have otherwise than the paper's.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    published: str
    row: str
    columns: dict[str, str]
    results: tuple[Rule, ...]
    where: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    step: str = ""
    before: str = ""
    rows: str | tuple[dict[str, Any], ...] | None = None
    compute: str = ""
    digits: Any = None
    unpublished: str = ""
    differs: tuple[str, ...] = ()


# What lists and maps in an entry are read as.
NESTED: Mapping[int | str, Any] = {"results": Rule, "whole": Whole}


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """Forms for people as they are written in a file; `forms` names their scheme."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    forms: str
    dataset: str
    arguments: tuple[str, ...] = ()
    steps: dict[str, str] = field(default_factory=dict)
    stand_in: str = ""
    differs: tuple[str, ...] = ()

    def build_steps(self) -> tuple[Step, Step, Step]:
        """Builds the steps that write the forms, read people's answers from an export, and measure them."""
        common = ("pipeline=annotate", f"pipeline.scheme={self.forms}", f"pipeline.dataset={self.dataset}")
        forms = Step(
            name=f"{self.name}_forms",
            script="construct",
            arguments=(*common, *self.arguments),
            corpora={"pipeline.path": self.dataset},
            steps=self.steps,
            stand_in=self.stand_in,
            differs=self.differs,
        )
        export = f"human_evaluation/{self.name}.json"  # people's answers, below data_dir
        answers = replace(forms, name=f"{self.name}_answers", answers=export, after=(forms.name,))
        arguments = ("pipeline=agreement", f"pipeline.title={self.name}")
        needed = {"pipeline.annotations": answers.name}
        agreement = Step(name=f"{self.name}_agreement", script="construct", arguments=arguments, steps=needed)
        return forms, answers, agreement


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)  # one a class, as they take milliseconds to build


def read_as(kind: type[Kind], values: Any, place: str) -> Kind:
    """Reads plain values as a dataclass.

    Raises:
        UserError: A key is unknown, missing or has a wrong value.
    """
    try:
        return cast(Kind, _adapter(kind).validate_python(values))
    except ValidationError as error:
        unknown = "unexpected_keyword_argument"
        found = min(error.errors(include_url=False), key=lambda one: one["type"] != unknown)
        key, hint = ".".join(map(str, found["loc"])), None
        problem = f"{key} is {shorten(found['input'])}: {found['msg']}"
        if found["type"] == "missing":
            problem = f"there is no {key}"
        elif found["type"] == unknown:
            names = [one.name for one in fields(NESTED.get(found["loc"][0], kind))]
            problem, hint = f"{key}: there is no such key", choice_hint(found["loc"][-1], names)
        raise UserError(problem, place=place, hint=hint) from error


@dataclass(frozen=True, slots=True)
class Steps:
    """All steps at a scale.

    Args:
        by_name: The steps.
        groups: The steps of each entry in a file: one, three of forms, or those of `each`.
        systems: The rows that steps are in tables.
        elements: The elements of `each`, by entry.
    """

    scale: str
    by_name: dict[str, Step] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    systems: dict[str, str] = field(default_factory=dict)
    elements: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, name: str, entry: Row, models: Mapping[str, Row], place: str) -> None:
        """Adds the steps of an entry."""
        values = {"name": name, **{key: value for key, value in entry.items() if key != "each"}}
        given: list[Any] = [{"system": one} if isinstance(one, str) else one for one in entry.get("each", ())]
        elements = [{**models.get(one.get("system"), {}), **one} for one in given]
        self.elements[name], self.groups[name] = elements, []
        filled = [Fields(one, {}, place).fill(values) for one in elements] if "each" in entry else [values]
        for one in filled:
            system = one.pop("system", "")
            found = read_as(Forms, one, place).build_steps() if "forms" in one else (read_as(Step, one, place),)
            for step in found:
                if step.name in self.by_name:
                    raise UserError(f"there are two steps {step.name}", place=place)
                self.by_name[step.name] = step
                check_names("step", step.steps.values(), self.by_name, place)
                self.groups[name].append(step.name)
            if system:
                self.systems[found[-1].name] = system

    def find(self, names: Sequence[str], place: str) -> list[str]:
        """Lists the steps of entries."""
        check_names("step", names, self.groups, place)
        return [step for name in names for step in self.groups[name]]


@cache
def all_results(scale: str, folder: Path = FOLDER) -> Mapping[str, Table | Figure]:
    """Reads all tables at a scale, those without training first, and then the figures.

    Raises:
        UserError: A file has an unknown key, a wrong value, or the name of a step or field that there is not.
    """
    paths = [folder / f"{name}.yaml" for name in FILES]
    documents = {path: select_scale(read_file(path), scale) for path in paths}
    steps, tables, figures = Steps(scale), list[Table](), list[Figure]()
    for path, document in documents.items():
        for name, entry in document.get("steps", {}).items():
            steps.add(name, entry, document.get("models", {}), f"{path}: steps.{name}")
        for name, entry in document.get("tables", {}).items():
            tables.append(_read_table(name, entry, steps, f"{path}: tables.{name}"))
        for name, entry in document.get("figures", {}).items():
            figures.append(_read_figure(name, entry, steps, tables, f"{path}: figures.{name}"))

    def effort(table: Table) -> tuple[int, int]:
        trainings = sum(4 if "benchmark=transfer" in step.arguments else step.script == "train" for step in table.steps)
        return trainings, len(table.steps)

    results: list[Table | Figure] = [*sorted(tables, key=effort), *figures]
    return {result.name: result for result in results}


def _read_table(name: str, entry: Row, steps: Steps, place: str) -> Table:
    of_parts, of_table = ({one.name for one in fields(kind)} for kind in (Part, Table))
    check_names("key", entry, [*of_table, *of_parts, "parts"], place)
    common = {key: value for key, value in entry.items() if key in of_parts}
    parts = [read_as(Part, {**common, **part}, place) for part in entry.get("parts", [{}])]
    own = steps.find(entry.get("steps", ()), place)
    cells = tuple(cell for part in parts for cell in _build_cells(part, own, steps, place))
    needed = tuple(sort_steps(own, steps.by_name))
    given = {key: value for key, value in entry.items() if key in of_table}
    table = read_as(Table, {**given, "name": name, "cells": cells, "steps": needed}, place)
    check_names("step", [table.whole.step] if table.whole else [], [step.name for step in needed], place)
    return table


def _build_cells(part: Part, own: Sequence[str], steps: Steps, place: str) -> Iterator[Cell]:
    """Builds the cells of a part, row by row.

    Args:
        own: The steps of the table.
    """
    by_system = {steps.systems[name]: name for name in own if name in steps.systems}
    published = paper_table(part.published).rows
    rows: Sequence[Row] = published
    if isinstance(part.rows, str):
        check_names("step", [part.rows], steps.elements, place)
        rows = steps.elements[part.rows]
    elif part.rows is not None:
        rows = part.rows
    if part.compute:
        rows = compute_rows(part.compute, published, rows, place)
    for row in rows:
        if not Fields(row, part.fields, place).match(part.where):
            continue
        for column, head in part.columns.items():
            found = Fields({**row, "column": column}, part.fields, place)
            figure = found.get(column) if part.unpublished else found[column]
            if figure is None and not part.unpublished:
                continue
            rule = next((rule for rule in part.results if found.match(rule.where)), None)
            if rule is None:
                raise UserError(f"no rule of results holds for column {column}, row {dict(row)}", place=place)
            result = None if rule.why else _build_result(rule, part, found, own, by_system)
            unmeasured = (
                "not measured here" if steps.scale == PAPER else "a model without a replacement at the local scale"
            )
            why = found.fill(rule.why) or unmeasured
            if result is not None:
                why = part.unpublished if figure is None else ""
            if part.digits is None:  # those of the column; JSON drops zeros at the end
                printed = [repr(value) for one in rows if isinstance(value := one[column], float)]
                digits = max((len(one.partition(".")[2]) for one in printed), default=0)
            else:
                digits = found.look_up(part.digits)
            yield Cell(
                row=found.fill(part.row),
                column=head,
                published=figure,
                digits=digits,
                result=result,
                why=why,
                stars=row.get("stars", {}).get(column, ""),
                differs=tuple(found.fill([*part.differs, *rule.differs])),
            )


def _build_result(
    rule: Rule, part: Part, row: Fields, steps: Sequence[str], by_system: Mapping[str, str]
) -> Result | None:
    """Builds the result of a cell; None if the scale has none.

    Args:
        row: The fields of the cell.
        steps: The steps of the table.
        by_system: Their names by the rows that they are.
    """
    pattern = rule.step or part.step
    step = row.fill(pattern) if pattern else by_system.get(row["system"], "")
    before = row.fill(part.before)
    check_names("step", [name for name in (pattern, part.before) if name and "{" not in name], steps, row.place)
    if step not in steps or (before and before not in steps):
        return None
    if rule.count:
        return Count(step, tuple(row.fill(rule.count)))
    if rule.share:
        return Share(step, tuple(row.fill(rule.share)), row.fill(rule.part), of=rule.of, exact=rule.exact)
    kind, name = (HumanScore, rule.human) if rule.human else (Metric, rule.metric)
    factor = 100.0 if rule.factor is None else rule.factor
    metric = kind(step, row.fill(name), factor, row.fill(rule.otherwise), rule.of_baseline)
    return Difference(metric, before) if before else metric


def _read_figure(name: str, entry: Row, steps: Steps, tables: Sequence[Table], place: str) -> Figure:
    by_name = {table.name: table for table in tables}
    shown, systems, needed = steps.find(entry.get("steps", ()), place), dict[str, str](), list[str]()
    if "table" in entry:
        check_names("table", [entry["table"]], by_name, place)
        table = by_name[entry["table"]]
        stand_ins = {step.name: step.stand_in for step in table.steps}
        results = [(cell.row, cell.result) for cell in table.cells if isinstance(cell.result, Metric)]
        systems = {stand_ins[one.step] or row.partition(";")[0]: one.step for row, one in results}
        needed = list(stand_ins)
    built = {
        "name": name,
        "steps": tuple(sort_steps([*needed, *shown], steps.by_name)),
        "used": tuple(dict.fromkeys([*systems.values(), *shown])),
        "systems": systems,
    }
    figure = read_as(Figure, {**{key: value for key, value in entry.items() if key != "table"}, **built}, place)
    check_names("drawing", [figure.drawing] if figure.drawing else [], DRAWINGS, place)
    return figure


def steps_of(result: Table | Figure) -> list[Step]:
    """Lists the steps of a table or figure and those that they need, in order."""
    return sort_steps(result.used, {step.name: step for step in result.steps})


def all_steps(results: Iterable[Table | Figure]) -> list[Step]:
    """Lists the steps of several tables and figures, each once."""
    return list({step.name: step for result in results for step in steps_of(result)}.values())


def compute_rows(computation: str, published: Sequence[Row], rows: Sequence[Row], place: str) -> list[Row]:
    """Changes the rows of a table by a named computation."""
    rates, by_model = "ragtruth_rates", "ragtruth_detectors_by_model"
    check_names("computation", [computation], (rates, by_model, "faithdial_grid"), place)
    if computation == rates:  # they follow from RAGTruth's counts, and can be compared for a part of the corpus too
        sources = {row["task"]: row["sources"] for row in paper_table("ragtruth_basic").rows}
        sources["Summary"] = sum(number for task, number in sources.items() if task.startswith("Summary"))
        # Each model answers every source once.
        return [{**row, "rate": round(100 * row["hallucinated"] / sources[row["task"]], 1)} for row in rows]
    if computation == by_model:  # a row for each detector of RAGTruth's Table 5 and each model that wrote responses
        models = dict.fromkeys(row["model"] for row in paper_table("ragtruth_models").rows)
        detectors = dict.fromkeys(row["system"] for row in published)
        return [{"system": detector, "model": model} for detector in detectors for model in models]
    # FaithDial's text gives the figures of T5-InfoNCE without training data; they belong to its row in the grid.
    printed = {row["metric"]: row["value"] for row in published if row["trained_on"] is None}
    of = ("FaithDial", "T5-InfoNCE")
    return [{**row, **(printed if (row["trained_on"], row["system"]) == of else {})} for row in rows]
