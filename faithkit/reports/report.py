"""The report of one test set: metrics to keep, tables to show, notes on both, and a sample of predictions.

A report function takes examples and predictions, and returns metrics, tables, notes and a sample; `add_provenance`
then adds where the predictions are from: fingerprints, leaks, and the metrics without the leaked rows. All are written
by `write_reports`. `score_table` shows figures: systems, parts or test sets below each other under metrics.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from faithkit.metrics.classification import Outcomes, classification_metrics
from faithkit.pages.page_tables import (
    bold,
    escape_terminal,
    format_metric,
    format_p,
    format_percent,
    new_number_table,
)
from faithkit.provenance.used_model import (
    CHECKPOINT,
    NUM_SHOWN_DIGITS,
    WITHOUT_LEAKED,
    Leaks,
    TestRows,
    UsedModel,
    find_leaks,
)
from faithkit.records import Example, Prediction
from faithkit.scores.measures import LANGUAGE_MODEL
from faithkit.statistics.bootstrap import Conclusion, Difference
from faithkit.statistics.metric import Metric

Systems = Mapping[str, Mapping[str, Metric]]  # metrics by system, or by another name of a row
Cell = Metric | Difference | float | int | str | Text | None
Row = tuple[str | Text | Sequence[str], Mapping[str, Cell]] | Text | None
NOT_IN_PERCENT = tuple(name for name, one in LANGUAGE_MODEL.items() if one.kind.high > 1)
Sample = Mapping[str, Any]  # a plain row, for loggers
Rows = NDArray[np.bool_]  # marks rows of a test set [N]


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

    The type of a cell decides how it is shown: metrics and differences in percent with their intervals, published
    figures (numbers with a fraction, in percent already) to a tenth, counts as whole numbers, what is missing as a
    dash.

    >>> from faithkit.pages.page_tables import render_text
    >>> macro_f1 = Metric(value=0.5, low=0.4, high=0.6)
    >>> rows = [("model", {"n": 1200, "macro_f1": macro_f1}), ("a paper's", {"macro_f1": 71.25})]
    >>> print(render_text(score_table("test", "system", {"n": "rows", "macro_f1": "macro-F1"}, rows)).strip())
    test
     system    |  rows |          macro-F1
    -----------+-------+-------------------
     model     | 1,200 | 50.0 [40.0, 60.0]
     a paper's |     - |              71.2

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Metrics by name without split and dataset, with tables and notes in the order in which they are shown.

    Args:
        conclusion: Whether the model is better than the strongest simple baseline, or than another system.
        headline: The tables that are always shown, usually one; empty for the first of `tables`.
        samples: The examples of the last table as plain rows of equal columns, for loggers.
        lines: Where the predictions are from; shown before the notes.
        alerts: Those of the lines that are always shown, such as rows that the model was trained on.
        facts: The same for metrics.json.
        answers: Examples with their predictions, for the run's page; a report may have nothing else.
        by: Columns that the page can filter by: the value of each example, by id.
        rescore: Computes the metrics of marked rows, for those that the model has not seen; None if it has no rows.
        shown: The metrics in the table of rescored rows; None for all.
    """

    metrics: dict[str, Metric]
    conclusion: Conclusion | None = None
    headline: tuple[Table, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    lines: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    answers: Sequence[tuple[Example, Prediction]] = ()
    by: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rescore: Callable[[Rows], Mapping[str, Metric]] | None = None
    shown: Collection[str] | None = None


def merge_reports(report: Report, other: Report) -> Report:
    """Adds another report of the same predictions: its notes come first, its tables before the sample."""
    place = len(report.tables) - bool(report.samples)
    return replace(
        report,
        metrics={**report.metrics, **other.metrics},
        headline=(*report.headline, *other.headline),
        tables=(*report.tables[:place], *other.tables, *report.tables[place:]),
        notes=(*other.notes, *report.notes),
        by={**report.by, **other.by},
    )


def build_sample(example: Example, **values: Any) -> Sample:
    """Builds a row of plain values from an example and what was predicted of it, each text on one safe line."""
    row = {
        "id": example.id,
        "knowledge": example.knowledge,
        "last_turn": example.history[-1].text if example.history else "",
        "response": example.response,
        **values,
    }
    return {name: escape_terminal(v, 2000) if isinstance(v, str) else v for name, v in row.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Provenance:
    """The origin of a test set's predictions, and what their models have seen of it.

    Args:
        models: The models behind the predictions.
        leaks: What each of these has seen; None if it is unknown.
        leaked: Marks the rows that any of the models has seen [N].
        lines: The rows and models in one line, then the notes, and what each model has seen.
        notes: Such as that the predictions were made on other rows.
    """

    rows: TestRows
    models: tuple[UsedModel, ...]
    leaks: tuple[Leaks | None, ...]
    leaked: Rows
    lines: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, dataset: str, examples: Sequence[Example], models: Sequence[UsedModel], notes: Sequence[str] = ()
    ) -> "Provenance":
        """Describes the rows, and searches for them among those that the models have seen."""
        rows = TestRows.of(dataset, examples)
        sources, lines = [f"from: {rows}"], list(notes)
        all_leaks, leaked = list[Leaks | None](), np.zeros(rows.num_rows, bool)
        for model in models:
            name = _display_model(model)
            known = f"{model.kind or 'not ours'} {(model.weights or '')[:NUM_SHOWN_DIGITS]}"
            threshold = f", threshold {escape_terminal(model.threshold)}" if model.threshold else ""
            sources.append(f"{name} ({escape_terminal(known)}){threshold}")
            all_leaks.append(leaks := None if model.seen is None else find_leaks(examples, model.seen))
            if leaks is None or model.seen is None:
                lines.append(f"leaks: unknown for {name}: {model.reason}")
                continue
            leaked |= leaks.rows
            bases = (escape_terminal(base) for base in model.seen.unknown_bases)
            lines += (f"leaks: unknown for {base}, which training began with" for base in bases)
            sizes, used = leaks.sizes, "trained on, chosen on or calibrated on"
            if number := int(leaks.rows.sum()):
                seen = f"they, their knowledge or their group were {used}"
                lines.append(f"leaks: {number:,} of {sizes.rows:,} rows are not new to {name}: {seen}")
            else:
                everything = f"{sizes.rows:,} rows, {sizes.knowledge:,} knowledge texts and {sizes.groups:,} groups"
                lines.append(f"leaks: none of {everything} was {used} by {name}")
        return cls(
            rows=rows,
            models=tuple(models),
            leaks=tuple(all_leaks),
            leaked=leaked,
            lines=("; ".join(sources), *lines),
            notes=tuple(notes),
        )

    @property
    def alerts(self) -> tuple[str, ...]:
        """Lists what each model has seen: `lines` without the first."""
        return self.lines[1:]

    def to_dict(self) -> dict[str, Any]:
        """Converts fingerprint and leaks to the form of metrics.json."""
        models = []
        for model, leaks in zip(self.models, self.leaks, strict=True):
            seen = {"untold": model.reason} if leaks is None else leaks.to_dict()
            began_with = list(model.seen.unknown_bases) if model.seen else []
            models.append({**model.to_dict(), "leaks": seen, "began_with_untold": began_with})
        return {"rows": asdict(self.rows), "models": models, "notes": list(self.notes)}


def metrics_without_leaked(outcomes: Outcomes, leaked: Rows, *, num_resamples: int) -> dict[str, Metric]:
    """Measures the rows that no model has seen, as `without_leaked/...`; nothing where all rows are such, or none."""
    if not leaked.any() or leaked.all():
        return {}
    found = classification_metrics(outcomes.select(~leaked), num_resamples=num_resamples).metrics
    return {f"{WITHOUT_LEAKED}{name}": metric for name, metric in found.items()}


def select_rows(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], rows: Rows
) -> tuple[list[Example], dict[str, Prediction]]:
    """Selects the marked examples with their predictions."""
    chosen = [example for example, marked in zip(examples, rows, strict=True) if marked]
    return chosen, {example.id: predictions[example.id] for example in chosen}


def _display_model(model: UsedModel) -> str:
    return escape_terminal(model.path if model.role == CHECKPOINT else f"{model.role} {model.path}")


def leaks_table(provenance: Provenance, title: str) -> Table:
    """Shows how much each model has seen, and in which use."""
    units, rows = ("rows", "knowledge", "groups"), list[Row]()
    for model, leaks in zip(provenance.models, provenance.leaks, strict=True):
        if leaks is None or not leaks.rows.any():
            continue
        rows.append(bold(_display_model(model)))
        rows += ((f"  {use} on", asdict(found)) for use, found in leaks.counts.items())
        rows += [("  of", asdict(leaks.sizes)), None]
    return score_table(title, "seen by", units, rows, no_wrap=units, show_edge=True)


def add_provenance(
    report: Report,
    provenance: Provenance | None,
    *,
    title: str,
    build_table: Callable[..., Table] = metrics_table,
) -> Report:
    """Adds fingerprints and leaks to a report; nothing without a provenance.

    If some rows leaked, the metrics of the others are added as `without_leaked/...`.

    Args:
        build_table: Builds the table of both; `build_table(systems, title=...)`.
    """
    if provenance is None:
        return report
    facts, metrics, leaked = {**report.facts, **provenance.to_dict()}, dict(report.metrics), provenance.leaked
    lines = list(provenance.lines)
    tables, alerts = [], lines[1:]  # what each model has seen
    if leaked.any():
        tables.append(leaks_table(provenance, f"{title}, leaks"))
    if leaked.all() and len(leaked):
        warning = "leaks: no row is new, so no metric here measures how the model does on new ones"
        lines.append(warning)
        alerts.append(warning)
    elif leaked.any():
        assert report.rescore is not None, "a report with provenance can be rescored"
        found = report.rescore(~leaked)
        systems = {f"all {len(leaked):,} rows": report.metrics, f"{int((~leaked).sum()):,} new rows": found}
        shown: Systems = {
            name: {n: m for n, m in each.items() if report.shown is None or n in report.shown}
            for name, each in systems.items()
        }
        tables.append(build_table(shown, title=f"{title}, without leaked rows"))
        metrics |= {f"{WITHOUT_LEAKED}{name}": metric for name, metric in found.items()}
    if leaked.all():  # of rows that the model knows nothing is concluded
        report = replace(report, conclusion=None)
    if not report.headline and not report.tables:  # the tables are those of another report of the same rows
        return replace(report, metrics=metrics, facts=facts)
    place = 0 if report.headline else 1
    return replace(
        report,
        metrics=metrics,
        facts=facts,
        tables=(*report.tables[:place], *tables, *report.tables[place:]),
        lines=tuple(lines),
        alerts=tuple(alerts),
    )
