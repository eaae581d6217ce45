"""Tells the results of a run: a headline on the terminal, everything in report.md, the answers on one page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from faithkit.files.atomic import write_text
from faithkit.files.run_folder import RunFolder
from faithkit.pages.page import AnswerSet, write_page
from faithkit.pages.table_text import escaped, markdown
from faithkit.pages.tables import harmless, show
from faithkit.reports.report import Report

REPORT, PAGE = "report.md", "answers.html"
CORPUS_PAGE = "report.html"  # of a run that describes a corpus, and so has no answers
MAX_ALERTS = 6  # lines below a headline
Command = tuple[str, str]  # what can be done next, and what to type for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How the results of a run are told.

    Args:
        verbose: The terminal shows all that report.md has.
        texts: The page has the texts of the examples.
        page: The page's file; None for answers.html in the run's folder.
    """

    verbose: bool = False
    texts: bool = True
    page: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Telling":
        """Reads it from a script's configuration; runs of older versions have none of these keys."""
        training = config.get("callbacks") or {}
        return cls(
            verbose=bool(config.get("verbose")),
            texts=bool(config.get("save_texts", training.get("save_texts", True))),
            page=config.get("html"),
        )

    def page_of(self, run: RunFolder) -> Path:
        """Gives the place of the page of a run."""
        return Path(self.page).expanduser() if self.page else run.path / PAGE


def tell_reports(run: RunFolder, found: Mapping[str, Sequence[Report]], telling: Telling) -> None:
    """Writes report.md and the page of answers of all test sets, and shows the headline of each."""
    text, sets = [f"# {escaped(run.path.name)}\n"], []
    for name, reports in found.items():
        if not reports:
            continue
        parts = _Parts.of(reports)
        show(*parts.headline, *(parts.tables if telling.verbose else ()))
        for line in parts.lines if telling.verbose else _shortened(parts.alerts):
            print(harmless(line))
        text += [*map(markdown, parts.headline), *(f"{escaped(line)}\n" for line in parts.lines)]
        text += map(markdown, parts.tables)
        answers = next((report.answers for report in reports if report.answers), ())
        examples = [example for example, _ in answers]
        said = {prediction.id: prediction for _, prediction in answers}
        by = {column: values for report in reports for column, values in report.by.items()}
        figures, notes = [*parts.headline, *parts.figures], parts.lines
        sets.append(AnswerSet(name=name, examples=examples, predictions=said, tables=figures, notes=notes, by=by))
    if empty := [name for name, reports in found.items() if not reports]:
        print(f"nothing to score, for want of test examples with a label: {', '.join(empty)}")
    write_text(run.path / REPORT, "\n".join(text))
    if any(one.examples for one in sets):
        page, names = telling.page_of(run), [one.name for one in sets if one.tables]
        title = f"{', '.join(names)}: answers of {run.path.name}"
        write_page(page, sets, title=title, about=_about(run, found), texts=telling.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """All that is told of a test set, the most important first.

    Args:
        headline: The tables that are shown in any case.
        tables: The others.
        figures: These without those of examples.
        alerts: The lines that are shown in any case.
    """

    headline: Sequence[Table]
    tables: Sequence[Table]
    figures: Sequence[Table]
    lines: Sequence[str]
    alerts: Sequence[str]

    @classmethod
    def of(cls, reports: Sequence[Report]) -> "_Parts":
        main = reports[-1] if reports[-1].tables else reports[0]  # spans tell more than labels, where any is marked
        ordered = [main, *(report for report in reports if report is not main)]
        headline = main.headline or main.tables[:1]
        notes = [f"note: {note}" for report in ordered for note in report.notes]
        return cls(
            headline=headline,
            tables=[table for report in ordered for table in report.tables if table not in headline],
            figures=[table for report in ordered for table in _figures(report) if table not in headline],
            lines=_each_once([*(line for report in ordered for line in report.lines), *notes]),
            alerts=_each_once([*main.alerts, *notes]),
        )


def _figures(report: Report) -> Sequence[Table]:
    """The tables of a report without that of its samples, which stands last."""
    return report.tables[:-1] if report.samples else report.tables


def _shortened(lines: Sequence[str]) -> list[str]:
    """Keeps the first lines, and counts the others."""
    left = len(lines) - MAX_ALERTS
    return [*lines[:MAX_ALERTS], *([f"note: {left} more in {REPORT}"] if left > 0 else [])]


def _each_once(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _about(run: RunFolder, found: Mapping[str, Sequence[Report]]) -> list[str]:
    """Names the run and the models of its predictions."""
    models = [model for reports in found.values() for report in reports for model in report.facts.get("models", ())]
    lines = [f"Run: {run.path}"]
    for model in models:
        threshold = f", threshold {model['threshold']}" if model["threshold"] else ""
        lines.append(f"Model: {model['path']} ({model['kind'] or 'not ours'}{threshold})")
    return _each_once(lines)


def tell_end(run: RunFolder, telling: Telling, commands: Sequence[Command] = ()) -> None:
    """Prints what can be done next, and where the results are; a link to the page of the run comes last.

    Args:
        commands: What can be run next.
    """
    for told, command in commands:
        print(f"{told}: {command}")
    for what, path in {"run": run.path, "all figures": run.path / REPORT}.items():
        if path.exists():
            print(f"{what}: {harmless(str(path))}")
    pages = {"answers": telling.page_of(run), "page": run.path / CORPUS_PAGE}
    if found := next(((what, path) for what, path in pages.items() if path.exists()), None):
        what, path = found
        print(f"{what}: {path.absolute().as_uri()}")
