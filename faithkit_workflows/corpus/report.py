"""The report of a corpus: a table on the terminal, and its numbers, plots, page and datasheet in a folder.

`report_corpus(examples, "folder")` is RAGTruth's analysis, as `evaluate.py benchmark=analysis` gives it;
`describe_corpus(columns, "folder", ...)` is all of it, as `construct.py pipeline=describe` does.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from faithkit.errors import UserError
from faithkit.files.atomic import write_json, write_text
from faithkit.metrics.results import metric_name, write_results
from faithkit.pages.plotting import require_plots
from faithkit.pages.table_text import escape_markdown, to_markdown
from faithkit.pages.tables import print_tables
from faithkit.records import Example
from faithkit.statistics.metric import Metric
from faithkit_workflows.corpus.columns import Columns
from faithkit_workflows.corpus.datasheet import datasheet
from faithkit_workflows.corpus.page import write_corpus_page
from faithkit_workflows.corpus.plots import write_plots
from faithkit_workflows.corpus.stats import CorpusStats, corpus_stats
from faithkit_workflows.corpus.tables import corpus_tables

NUMBERS, REPORT, PAGE, SHEET = "corpus.json", "report.md", "report.html", "datasheet.md"


def report_corpus(
    examples: Iterable[Example],
    folder: str | Path,
    *,
    title: str = "",
    plots: bool = True,
    dataset: str = "",
    page: Path | None = None,
    verbose: bool = True,
) -> CorpusStats:
    """Shows a corpus of marked responses, and writes its numbers, report, page and plots to `folder`.

    Args:
        dataset: Whose published figures stand beside; empty for none.
        page: The page's file; None for report.html in the folder.
        verbose: Prints all tables, and not the first alone.

    Returns:
        The numbers, as `corpus.json` has them.

    Raises:
        UserError: No example has marked spans; the folder cannot be written; plots are wanted without matplotlib.
    """
    if plots:
        require_plots()
    stats = corpus_stats(Columns(overlap=False).add_all(examples))
    if not stats.has_spans:
        problem = f"none of {stats.counts.num_responses:,} examples has marked spans"
        raise UserError(problem, hint="choose a corpus or split with spans, or: construct.py pipeline=describe")
    write_json(Path(folder) / NUMBERS, stats.to_dict())
    pictures = write_plots(stats, folder) if plots else []
    tables = corpus_tables(stats, title=title, dataset=dataset)
    _write(Path(folder), page, tables, pictures, title=title, summary=summary_of(stats, {}))
    print_tables(*(tables if verbose else tables[:1]))
    return stats


def describe_corpus(
    columns: Columns,
    folder: str | Path,
    *,
    title: str,
    reading: Mapping[str, Any],
    known: Mapping[str, str],
    plots: bool = True,
    dataset: str = "",
    num_resamples: int = 1000,
    meta: Mapping[str, Any],
    verbose: bool = True,
) -> CorpusStats:
    """Shows any corpus, and writes its numbers, report, page, datasheet and plots.

    Args:
        reading: What reading did with the rows (see `datasheet`).
        known: Answers for the datasheet.
        dataset: Whose published figures stand beside; empty for none.
        meta: What metrics.json says of itself.
        verbose: Prints all tables, and not the first alone.

    Raises:
        UserError: There is no example; the folder cannot be written; plots are wanted without matplotlib.
    """
    if plots:
        require_plots()
    folder = Path(folder)
    stats = corpus_stats(columns, num_resamples=num_resamples)
    write_json(folder / NUMBERS, stats.to_dict())
    write_results(folder / "metrics.json", _metrics(stats, title), meta)
    pictures = write_plots(stats, folder, full=True) if plots else []
    tables = corpus_tables(stats, title=title, dataset=dataset, full=True)
    _write(folder, None, tables, pictures, title=title, summary=summary_of(stats, reading))
    write_text(folder / SHEET, datasheet(stats, title=title, reading=reading, known=known))
    print_tables(*(tables if verbose else tables[:1]))
    return stats


def _write(
    folder: Path,
    page: Path | None,
    tables: Sequence[Table],
    pictures: Sequence[Path],
    *,
    title: str,
    summary: Sequence[str],
) -> None:
    """Writes the report and the page."""
    text = "\n".join(
        [
            f"# {escape_markdown(title)}",
            "",
            *map(escape_markdown, summary),
            "",
            *(to_markdown(table) for table in tables),
        ]
    )
    write_text(folder / REPORT, text + "".join(f"\n![{path.stem}]({path.name})\n" for path in pictures))
    write_corpus_page(page or folder / PAGE, tables, pictures, title=title, summary=summary)


def summary_of(stats: CorpusStats, reading: Mapping[str, Any]) -> list[str]:
    """Sums the corpus up in a sentence or three."""
    counts = stats.counts
    lines = [f"{counts.num_responses:,} responses of {stats.num_groups:,} dialogues or sources."]
    if counts.num_judged:
        some = "" if counts.num_judged == counts.num_responses else f" of the {counts.num_judged:,} with a label"
        lines.append(f"{counts.num_hallucinated:,} ({counts.share:.1%}){some} are hallucinated.")
    else:
        lines.append("None has a label.")
    if counts.num_marked:
        lines.append(f"{counts.num_spans:,} spans are marked: {counts.density:.2f} per hundred words.")
    if stats.num_repeated:
        lines.append(f"Repeated with the same knowledge and history: {stats.num_repeated:,}.")
    return lines + list(reading.get("notes") or ())


def _metrics(stats: CorpusStats, title: str) -> dict[str, Metric]:
    """The rates by full name: `all/NAME/rate`, `all/NAME/task/QA/rate`."""
    name = title.replace("/", "-")
    return {
        metric_name("all", name, f"{facet}/{value}/rate" if facet else "rate"): metric
        for facet, values in stats.rates.items()
        for value, metric in values.items()
    }
