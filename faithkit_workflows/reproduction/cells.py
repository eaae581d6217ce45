"""A table of a paper, cell by cell: the published figure, and the result of a step that stands for it."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from faithkit.metrics.results import read_metrics
from faithkit.published.tables import published_table
from faithkit_workflows.reproduction.steps import Step
from faithkit_workflows.reproduction.verdicts import Estimate, digits_of

NOT_MEASURED = "not measured here"
NOT_LOCAL = "a model that nothing stands for at the local scale"


class Result(Protocol):
    """A figure in what a step leaves; `exact` ones have no interval and stand for a whole corpus alone."""

    @property
    def step(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    def read(self, folder: Path) -> Estimate | None: ...


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of metrics.json with its interval; of the embedded corpus it has `embedded-` before the dataset's name.

    Args:
        otherwise: Another metric, where the data have none of this name.
        of_baseline: No model has a part in it, so it does not matter which one the step has.
    """

    step: str
    name: str
    factor: float = 100.0
    otherwise: str = ""
    of_baseline: bool = False
    exact: bool = False

    def read(self, folder: Path) -> Estimate | None:
        """Reads it; None where the run has no such metric."""
        metrics = read_metrics(folder / "metrics.json")
        names = [one for name in (self.name, self.otherwise) if name for one in (name, _of_embedded(name))]
        found = next((metrics[name] for name in names if name in metrics), None)
        if found is None:
            return None
        bounds = {key: found.get(key) for key in ("low", "high", "n")}
        return Estimate(value=found["value"], **bounds).times(self.factor)


def _of_embedded(name: str) -> str:
    split, dataset, rest = name.split("/", 2)
    return f"{split}/embedded-{dataset}/{rest}"


@dataclass(frozen=True, slots=True)
class Count:
    """A number of corpus.json."""

    step: str
    path: tuple[str | int, ...]
    factor: float = 1.0
    exact: bool = True

    def read(self, folder: Path) -> Estimate | None:
        """Reads it; None where the corpus has nothing for it."""
        value = _at(_corpus(folder), self.path)
        return None if value is None else Estimate(value=float(value)).times(self.factor)


@dataclass(frozen=True, slots=True)
class Share:
    """One of several counts of corpus.json as percent of their sum, with Wilson's interval.

    Args:
        path: To the counts by name.
        part: The name.
        of: The name of the count that it is a part of, in the place of their sum.
    """

    step: str
    path: tuple[str | int, ...]
    part: str
    of: str = ""
    exact: bool = False

    def read(self, folder: Path) -> Estimate | None:
        """Reads it; None where nothing was counted."""
        from scipy.stats import binomtest

        counts = _at(_corpus(folder), self.path)
        if not counts or not (total := counts[self.of] if self.of else sum(counts.values())):
            return None
        bounds = binomtest(counts[self.part], total).proportion_ci(method="wilson")
        return Estimate(value=counts[self.part] / total, low=bounds.low, high=bounds.high, n=total).times(100)


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric of one step less that of another, with the interval of independent ones (Zou & Donner 2008).

    Both are of the same examples, so it is rather too wide.

    Args:
        metric: That of the step that is measured.
        before: The step that it is compared with.
    """

    metric: Metric
    before: str
    exact: bool = False

    @property
    def step(self) -> str:
        """Names the step that is measured."""
        return self.metric.step

    def read(self, folder: Path) -> Estimate | None:
        """Reads both."""
        after = self.metric.read(folder)
        before = replace(self.metric, step=self.before).read(folder.parent / self.before)
        return None if after is None or before is None else less(after, before)


def less(after: Estimate, before: Estimate) -> Estimate:
    """Subtracts two independent estimates; the interval is that of the MOVER, by the distances to either's bounds."""
    value = after.value - before.value
    if after.low is None or after.high is None or before.low is None or before.high is None:
        return Estimate(value=value)
    low = value - math.hypot(after.value - after.low, before.high - before.value)
    high = value + math.hypot(after.high - after.value, before.value - before.low)
    return Estimate(value=value, low=low, high=high)


def _corpus(folder: Path) -> Any:
    return json.loads((folder / "corpus.json").read_text(encoding="utf-8"))


def _at(values: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        try:
            values = values[key]
        except (KeyError, IndexError, TypeError):
            return None
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One place of a table.

    Args:
        published: None where the paper's figure is not at hand.
        digits: Behind the point, of the paper's column.
        result: None where nothing of ours stands for it.
        why: Why nothing does, or what is to be known of the comparison.
    """

    row: str
    column: str
    published: float | None
    digits: int
    result: Result | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a paper.

    Args:
        name: What the user asks for.
        title: What it shows.
        published: The names of the files of its figures.
        steps: Every step that it may take.
        whole: Where a step counts our examples, how many the paper has, and what they are: exact figures of a part of
            them tell nothing.
        note: What the reader should know of the comparison.
    """

    name: str
    title: str
    published: tuple[str, ...]
    cells: tuple[Cell, ...]
    steps: tuple[Step, ...]
    whole: tuple[Count, int, str] | None = None
    note: str = ""

    @property
    def citation(self) -> str:
        """Names paper and table."""
        return "; ".join(published_table(name).citation for name in self.published)

    @property
    def used(self) -> list[str]:
        """Names the steps whose results stand in cells."""
        results = [cell.result for cell in self.cells if cell.result is not None]
        names = [name for r in results for name in (r.step, getattr(r, "before", None)) if name]
        return list(dict.fromkeys(names))


Find = Callable[[Mapping[str, Any], str], "Result | str | None"]


def cells_of(
    published: str,
    row: Callable[[Mapping[str, Any]], str],
    columns: Mapping[str, str],
    find: Find,
    keep: Callable[[Mapping[str, Any]], bool] = lambda row: True,
) -> Iterator[Cell]:
    """Makes the cells of a published table, row by row; a column that it does not have is our own mistake.

    Args:
        row: The row's name.
        columns: The columns that are shown, each with its head.
        find: The result for a row and a column; or, as a text, why there is none.
        keep: The rows that belong to this table.
    """
    rows = published_table(published).rows
    for values in filter(keep, rows):
        for column, head in columns.items():
            if values[column] is None:
                continue
            found = find(values, column)
            yield Cell(
                row=row(values),
                column=head,
                published=values[column],
                digits=digits_of(one[column] for one in rows),
                result=None if isinstance(found, str) else found,
                why=found if isinstance(found, str) else "" if found else NOT_MEASURED,
            )
