"""The cells of the papers' tables: for each the published figure and the result of ours to compare with it.

Ours is within, above or below the published figure, by our interval or by the digits printed.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from faithkit.files.jsonl import read_strict_json
from faithkit.metrics.results import read_metrics
from faithkit.statistics.metric import Metric as Estimate  # a figure of ours, with its interval if it has one
from faithkit_papers.published_figures import paper_table
from faithkit_papers.reproduction.table_steps import Step

WITHIN, ABOVE, BELOW, NOT_COMPARABLE = "within", "above", "below", "not comparable"


def compare_with_published(ours: Estimate, published: float, *, digits: int) -> str:
    """Compares our figure with a published one.

    A published figure may be any value that rounds to it. Ours is within if one of these lies in our interval, or,
    without an interval, if ours rounds to it too.

    Args:
        published: As printed.
        digits: The decimal digits of its column.
    """
    half = 0.5 * 10.0**-digits
    slack = half + 1e-9 * max(1.0, abs(published))
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    if low > published + slack:
        return ABOVE
    return BELOW if high < published - slack else WITHIN


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of metrics.json with its interval; with the embedded corpus the dataset's name begins with `embedded-`.

    Args:
        otherwise: Another metric, if there is none of this name.
        of_baseline: It does not depend on the step's model.
    """

    step: str
    name: str
    factor: float = 100.0
    otherwise: str = ""
    of_baseline: bool = False

    def read(self, folder: Path) -> Estimate | None:
        """Reads the metric; None if the run does not have it."""
        metrics = read_metrics(folder / "metrics.json")
        names = [one for name in (self.name, self.otherwise) if name for one in _name_embedded(name)]
        found = next((metrics[name] for name in names if name in metrics), None)
        if found is None:
            return None
        return Estimate(**{name: number if name == "n" else number * self.factor for name, number in found.items()})

    def read_unparsed(self, folder: Path) -> float:
        """Reads the share of replies without a verdict among the metric's rows; 0 if the run does not count them."""
        metrics = read_metrics(folder / "metrics.json")
        parts = self.name.split("/")
        for number in range(len(parts) - 1, 1, -1):  # of its part of the data, or of the whole test set
            for one in _name_embedded("/".join([*parts[:number], "unparsed_rate"])):
                if one in metrics and not self.of_baseline:
                    return float(metrics[one]["value"])
        return 0.0


@dataclass(frozen=True, slots=True)
class HumanScore(Metric):
    """The mean score of a system by people, `test/<title>/<column>/<system>/mean` of pipeline=agreement."""

    def read_stars(self, folder: Path) -> str:
        """Reads the stars of the difference from the best system of the column."""
        _, _, column, system, _ = self.name.split("/")
        for one in read_strict_json(folder / "metrics.json", hint=f"delete {folder}")["meta"]["compared"]:
            if (one["column"], one["system"]) == (column, system):
                return str(one.get("to_best", {}).get("stars", ""))
        return ""


def _name_embedded(name: str) -> tuple[str, str]:
    """Returns a metric's name, and its name with the embedded corpus."""
    split, _, rest = name.partition("/")
    return name, f"{split}/embedded-{rest}"


@dataclass(frozen=True, slots=True)
class Count:
    """A number of corpus.json; it has no interval, and needs the whole corpus."""

    step: str
    path: tuple[str | int, ...]

    def read(self, folder: Path) -> Estimate | None:
        """Reads the number; None if the corpus does not have it."""
        value = _read_corpus(folder, self.path)
        return None if value is None else Estimate(value=float(value))


@dataclass(frozen=True, slots=True)
class Share:
    """One of several counts of corpus.json as percent of their sum, with Wilson's interval.

    Args:
        path: To the counts by name.
        part: The name.
        of: The name of the total, if it is not the sum.
        exact: The paper's share is of the same rows, so ours has no interval.
    """

    step: str
    path: tuple[str | int, ...]
    part: str
    of: str = ""
    exact: bool = False

    def read(self, folder: Path) -> Estimate | None:
        """Reads the share; None if nothing was counted."""
        from scipy.stats import binomtest

        counts = _read_corpus(folder, self.path)
        if not counts or not (total := counts[self.of] if self.of else sum(counts.values())):
            return None
        if self.exact:
            return Estimate(value=100 * counts[self.part] / total, n=total)
        bounds = binomtest(counts[self.part], total).proportion_ci(method="wilson")
        share = 100 * (counts[self.part] / total)
        return Estimate(value=share, low=100 * bounds.low, high=100 * bounds.high, n=total)


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric of one step minus that of another, with the interval of independent metrics (Zou & Donner 2008).

    Both are measured on the same examples, so the interval is somewhat too wide.

    Args:
        metric: The metric of the first step.
        before: The other step.
    """

    metric: Metric
    before: str

    @property
    def step(self) -> str:
        """The first step."""
        return self.metric.step

    def read_unparsed(self, folder: Path) -> float:
        """Reads the larger share of replies without a verdict."""
        return max(self.metric.read_unparsed(one) for one in (folder, folder.parent / self.before))

    def read(self, folder: Path) -> Estimate | None:
        """Reads both metrics and subtracts them, with the MOVER interval from the distances to their bounds."""
        after = self.metric.read(folder)
        before = replace(self.metric, step=self.before).read(folder.parent / self.before)
        if after is None or before is None:
            return None
        value = after.value - before.value
        if after.low is None or after.high is None or before.low is None or before.high is None:
            return Estimate(value=value)
        low = value - math.hypot(after.value - after.low, before.high - before.value)
        high = value + math.hypot(after.high - after.value, before.value - before.low)
        return Estimate(value=value, low=low, high=high)


def _read_corpus(folder: Path, path: Sequence[str | int]) -> Any:
    """Reads a value of corpus.json; None if the corpus does not have it."""
    values = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    for key in path:
        try:
            values = values[key]
        except (KeyError, IndexError, TypeError):
            return None
    return values


Result = Metric | Count | Share | Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table.

    Args:
        published: None if the paper's figure is not available.
        digits: The decimal digits of the paper's column.
        result: None if there is no figure of ours.
        why: Why there is none, or a remark on the comparison.
        stars: The paper's mark of significance.
        differs: What its figure of ours has otherwise than the paper's, beyond the differences of its steps.
    """

    row: str
    column: str
    published: float | None
    digits: int
    result: Result | None
    why: str = ""
    stars: str = ""
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The size of a corpus.

    Args:
        count: The path to our number in corpus.json.
        number: The paper's number.
        unit: What is counted.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    step: str
    count: tuple[str | int, ...]
    number: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a paper.

    Args:
        name: Its name on the command line.
        title: Its title.
        published: The name of the file of its figures.
        steps: Every step that it may need.
        whole: The size of the paper's corpus; exact figures are compared only if ours has it too.
        note: A remark on the comparison.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    title: str
    published: str
    cells: tuple[Cell, ...]
    steps: tuple[Step, ...]
    whole: Whole | None = None
    note: str = ""

    @property
    def citation(self) -> str:
        """Cites paper and table."""
        return paper_table(self.published).citation

    @property
    def used(self) -> list[str]:
        """Lists the steps with results in cells."""
        results = [cell.result for cell in self.cells if cell.result is not None]
        return list(dict.fromkeys(name for one in results for name in (one.step, getattr(one, "before", "")) if name))
