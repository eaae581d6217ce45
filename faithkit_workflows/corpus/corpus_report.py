"""Reports a corpus: a table on the terminal, and its numbers, plots and page in a folder.

`evaluate.py benchmark=analysis` reports marked responses as RAGTruth does; `construct.py pipeline=describe` reports
any corpus. The page needs neither network nor script.
"""

import base64
import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from faithkit.errors import UserError
from faithkit.files.atomic import write_json, write_text
from faithkit.metrics.results import metric_name
from faithkit.pages.page_parts import fill_sections, write_filled_page
from faithkit.pages.page_tables import escape_terminal, print_tables
from faithkit.pages.plotting import DPI, require_plots
from faithkit.pages.table_text import (
    escape_markdown,
    scroll_box_attributes,
    table_section,
    table_title,
    to_markdown,
)
from faithkit.statistics.metric import Metric
from faithkit_workflows.corpus.corpus_plots import PLOTS, describe_plot, write_plots
from faithkit_workflows.corpus.corpus_rows import CorpusRows
from faithkit_workflows.corpus.corpus_stats import ALL, CorpusStats, compute_corpus_stats
from faithkit_workflows.corpus.corpus_tables import PAPER, build_corpus_tables

SCREEN_DPI = 100


def report_corpus(
    rows: CorpusRows,
    folder: Path,
    *,
    full: bool,
    title: str = "",
    dataset: str = "",
    notes: Sequence[str] = (),
    plots: bool = True,
    page: Path | None = None,
    num_resamples: int = 1000,
    verbose: bool = True,
) -> CorpusStats:
    """Shows a corpus, and writes corpus.json, report.md, the page and the plots.

    Args:
        full: Reports any corpus by all tables and plots; otherwise marked responses by those of RAGTruth's analysis.
        dataset: The dataset for published figures; empty for none.
        notes: Sentences for the summary.
        page: The page's file; None for report.html in the folder.
        verbose: Prints all tables instead of only the first.

    Raises:
        UserError: There is no example, or without `full` none with marked spans; the folder cannot be written; plots
            need matplotlib.
    """
    if plots:
        require_plots()
    stats = compute_corpus_stats(rows, num_resamples=num_resamples)
    if not full and not stats.has_spans:
        problem = f"none of {stats.counts.num_responses:,} examples has marked spans"
        raise UserError(problem, hint="choose a corpus or split with spans, or: construct.py pipeline=describe")
    write_json(folder / "corpus.json", stats.to_dict())
    pictures = write_plots(stats, folder, full=full) if plots else []
    tables = build_corpus_tables(stats, title=title, dataset=dataset, full=full)
    summary = [*summary_of(stats), *notes]
    head = [f"# {escape_markdown(title)}", "", *map(escape_markdown, summary), ""]
    images = "".join(f"\n![{path.stem}]({path.name})\n" for path in pictures)
    write_text(folder / "report.md", "\n".join([*head, *(to_markdown(table) for table in tables)]) + images)
    write_filled_page(
        page or folder / "report.html",
        "corpus.html",
        title=title,
        styles=("style.css", "sections.css"),
        blocks={},
        summary="".join(f'<p class="summary">{html.escape(escape_terminal(line))}</p>' for line in summary),
        **fill_sections([*_tables(tables, title), *_figures(pictures)]),
    )
    print_tables(*(tables if verbose else tables[:1]))
    return stats


def summary_of(stats: CorpusStats) -> list[str]:
    """Summarizes the corpus in a few sentences."""
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
    return lines


def rate_metrics(stats: CorpusStats, title: str) -> dict[str, Metric]:
    """Lists the rates by full name: `all/NAME/rate`, `all/NAME/task/QA/rate`."""
    name = title.replace("/", "-")
    return {
        metric_name("all", name, f"{facet}/{value}/rate" if facet else "rate"): metric
        for facet, values in stats.rates.items()
        for value, metric in values.items()
    }


def _tables(tables: Sequence[Table], title: str) -> Iterator[tuple[str, str, str]]:
    for place, table in enumerate(tables):
        head = escape_terminal(table_title(table).removeprefix(f"{title}: "))
        yield f"table-{place}", head[:1].upper() + head[1:], table_section(table, _kind)


def _kind(row: Sequence[str]) -> str:
    return "paper" if PAPER in row[:2] else "all" if row[0] == ALL else ""


def _figures(plots: Sequence[Path]) -> Iterator[tuple[str, str, str]]:
    for path in plots:
        head, text = PLOTS[path.stem][0], describe_plot(path.stem)
        image = path.read_bytes()
        width = round(int.from_bytes(image[16:20], "big") * SCREEN_DPI / DPI)  # of the PNG's header
        data = base64.b64encode(image).decode()
        picture = f'<img width="{width}" alt="{html.escape(text)}" src="data:image/png;base64,{data}">'
        yield f"plot-{path.stem}", head, f"<figure><div {scroll_box_attributes(head)}>{picture}</div></figure>\n"
