"""Reports a corpus: a table on the terminal, and its numbers, plots, page and datasheet in a folder.

`evaluate.py benchmark=analysis` reports marked responses as RAGTruth does; `construct.py pipeline=describe` reports
any corpus. The page needs neither network nor script.
"""

import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import write_json, write_text
from faithkit.pages.page import fill_part, write_filled_page
from faithkit.pages.page_tables import escape_markdown, escape_terminal, print_tables, table_title, to_markdown
from faithkit.pages.plotting import DPI, STYLE, require_plots, save_figure
from faithkit_papers.corpus.corpus_plots import ONLY_FULL, PLOTS
from faithkit_papers.corpus.corpus_rows import CorpusRows
from faithkit_papers.corpus.corpus_stats import ALL, CorpusStats, compute_corpus_stats
from faithkit_papers.corpus.corpus_tables import PAPER, build_corpus_tables

OPEN = "**TO ANSWER**"
TEMPLATE = Template(Path(__file__).with_name("datasheet.md").read_text(encoding="utf-8"))


def datasheet(stats: CorpusStats, *, title: str, reading: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """Writes the datasheet of a corpus (Gebru et al. 2021): answers what its numbers show.

    The questions are in datasheet.md; its fields are named after them. One without an answer is marked `TO ANSWER`.

    Args:
        reading: The result of reading: path, number of rejected rows, notes.
        known: Further answers by field.
    """
    answers: dict[str, str] = {}
    counts, whole = stats.counts, stats.whole
    parts = ["a response"]
    parts += ["with the knowledge that it should be faithful to"] if whole.context.num_texts else []
    parts += ["and the dialogue before it"] if "turn before" in stats.lengths else []
    answers["instance"] = f"{' '.join(parts).capitalize()}."
    by_part = "".join(
        f"\n- {escape_markdown(name)}: {line.counts.num_responses:,} responses of {line.num_sources:,} "
        "dialogues or sources"
        for name, line in stats.basic.items()
    )
    answers["size"] = f"{counts.num_responses:,} responses of {stats.num_groups:,} dialogues or sources.{by_part}"
    if counts.num_judged:
        labels = f"{counts.num_hallucinated:,} of {counts.num_judged:,} ({counts.share:.1%}) are hallucinated."
        if counts.num_marked:
            kinds = sorted({label for types in stats.types.values() for label in types})
            labels += f" {counts.num_spans:,} spans are marked ({', '.join(map(escape_markdown, kinds))})."
        if stats.classes:
            labels += " BEGIN's classes and VRM's speech acts are known."
        answers["labels"] = f"{labels} Who gave them: {OPEN}"
    missing = {
        "no label": counts.num_responses - counts.num_judged,
        "no marked spans": counts.num_responses - counts.num_marked if counts.num_marked else 0,
        "no knowledge": counts.num_responses if not whole.context.num_texts else 0,
    }
    counted = [f"{number:,} responses have {what}" for what, number in missing.items() if number]
    complete = "Nothing: every response has its knowledge and label."
    answers["missing"] = f"{'; '.join(counted)}." if counted else complete
    each = counts.num_responses / max(1, stats.num_groups)
    answers["relations"] = (
        f"By dialogue or source: {each:.1f} responses each in the mean. Splits must not cut through one."
    )
    splits = ", ".join(f"{escape_markdown(name)} ({one.num_responses:,})" for name, one in stats.dialogues.items())
    answers["splits"] = f"{splits}. How they were divided: {OPEN}"
    rejected = f"{reading['num_rejects']:,} rows could not be read; " if reading.get("num_rejects") else ""
    again = f"Responses that repeat one with the same knowledge and history: {stats.num_repeated:,}."
    answers["errors"] = f"{rejected}{again} Others: {OPEN}"
    if models := list(stats.models):
        answers["models"] = f"{', '.join(map(escape_markdown, models))}. Their settings: {OPEN}"
    edited = {name: one.edited for name, one in stats.dialogues.items() if one.edited is not None}
    if edited:
        shares = ", ".join(f"{share:.1%} in {escape_markdown(name)}" for name, share in edited.items())
        answers["cleaning"] = f"Responses were edited: {shares}; the originals are kept. Otherwise: {OPEN}"
    if reading.get("path"):
        answers["where"] = f"Described as read from `{escape_markdown(str(reading['path']))}`. Name and version: {OPEN}"
    answers |= {**known, "title": escape_markdown(title)}
    num_open = len(set(TEMPLATE.get_identifiers()) - answers.keys() - {"open"})
    return TEMPLATE.substitute(defaultdict(lambda: OPEN, answers, open=str(num_open)))


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
    pictures = []
    if plots:
        from matplotlib import rc_context

        with rc_context(STYLE):
            drawn = {name: plot(stats) for name, (_, plot) in PLOTS.items() if full or name not in ONLY_FULL}
            pictures = [save_figure(figure, folder / f"{name}.png") for name, figure in drawn.items() if figure]
    tables = build_corpus_tables(stats, title=title, dataset=dataset, full=full)
    counts = stats.counts
    summary = [f"{counts.num_responses:,} responses of {stats.num_groups:,} dialogues or sources."]
    if counts.num_judged:
        some = "" if counts.num_judged == counts.num_responses else f" of the {counts.num_judged:,} with a label"
        summary.append(f"{counts.num_hallucinated:,} ({counts.share:.1%}){some} are hallucinated.")
    else:
        summary.append("None has a label.")
    if counts.num_marked:
        summary.append(f"{counts.num_spans:,} spans are marked: {counts.density:.2f} per hundred words.")
    if stats.num_repeated:
        summary.append(f"Repeated with the same knowledge and history: {stats.num_repeated:,}.")
    summary += notes
    head = [f"# {escape_markdown(title)}", "", *map(escape_markdown, summary), ""]
    images = "".join(f"\n![{path.stem}]({path.name})\n" for path in pictures)
    write_text(folder / "report.md", "\n".join([*head, *(to_markdown(table) for table in tables)]) + images)
    sections = []
    for place, table in enumerate(tables):
        name = escape_terminal(table_title(table).removeprefix(f"{title}: "))
        sections.append((f"table-{place}", name[:1].upper() + name[1:], fill_part("table", table, _kind)))
    for path in pictures:
        name, plot = PLOTS[path.stem]
        image = path.read_bytes()
        width = round(int.from_bytes(image[16:20], "big") * 100 / DPI)  # of the PNG's header
        data = f"data:image/png;base64,{base64.b64encode(image).decode()}"
        text = f"{(plot.__doc__ or '').partition('.')[0]}; the tables have the numbers."
        sections.append((f"plot-{path.stem}", name, fill_part("picture", data, name, text, width)))
    write_filled_page(
        page or folder / "report.html",
        "sections.html",
        title=title,
        styles=("style.css", "sections.css"),
        summary=fill_part("notes", summary, "summary"),
        sections=sections,
    )
    print_tables(*(tables if verbose else tables[:1]))
    return stats


def _kind(row: Sequence[str]) -> str:
    return "paper" if PAPER in row[:2] else "all" if row[0] == ALL else ""
