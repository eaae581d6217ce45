"""Reports a corpus: a table on the terminal, and its numbers, plots, page and datasheet in a folder.

`report_corpus` is RAGTruth's analysis (`evaluate.py benchmark=analysis`); `describe_corpus` reports any corpus
(`construct.py pipeline=describe`). The datasheet (Gebru et al. 2021) answers what the numbers show and leaves the other
questions open; the page is one file that needs neither network nor script.
"""

import base64
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_file, disk_errors, write_json, write_text
from faithkit.metrics.results import metric_name, write_results
from faithkit.pages.page_parts import fill_page
from faithkit.pages.page_tables import escape_terminal, print_tables
from faithkit.pages.plotting import DPI, require_plots
from faithkit.pages.table_text import (
    escape_markdown,
    scroll_box_attributes,
    table_caption,
    table_title,
    to_html,
    to_markdown,
)
from faithkit.records import Example
from faithkit.statistics.metric import Metric
from faithkit_workflows.corpus.corpus_columns import Columns
from faithkit_workflows.corpus.corpus_plots import write_plots
from faithkit_workflows.corpus.corpus_stats import ALL, CorpusStats, compute_corpus_stats
from faithkit_workflows.corpus.corpus_tables import PAPER, build_corpus_tables

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
        dataset: The dataset for published figures; empty for none.
        page: The page's file; None for report.html in the folder.
        verbose: Prints all tables instead of only the first.

    Raises:
        UserError: No example has marked spans; the folder cannot be written; plots need matplotlib.
    """
    if plots:
        require_plots()
    stats = compute_corpus_stats(Columns(overlap=False).add_all(examples))
    if not stats.has_spans:
        problem = f"none of {stats.counts.num_responses:,} examples has marked spans"
        raise UserError(problem, hint="choose a corpus or split with spans, or: construct.py pipeline=describe")
    write_json(Path(folder) / NUMBERS, stats.to_dict())
    pictures = write_plots(stats, folder) if plots else []
    tables = build_corpus_tables(stats, title=title, dataset=dataset)
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
        reading: The result of reading: path, counts by split, rejects, notes.
        known: Further answers for the datasheet, by the question's key.
        dataset: The dataset for published figures; empty for none.
        meta: The `meta` block of metrics.json.
        verbose: Prints all tables instead of only the first.

    Raises:
        UserError: There is no example; the folder cannot be written; plots need matplotlib.
    """
    if plots:
        require_plots()
    folder = Path(folder)
    stats = compute_corpus_stats(columns, num_resamples=num_resamples)
    write_json(folder / NUMBERS, stats.to_dict())
    write_results(folder / "metrics.json", _metrics(stats, title), meta)
    pictures = write_plots(stats, folder, full=True) if plots else []
    tables = build_corpus_tables(stats, title=title, dataset=dataset, full=True)
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
    return lines + list(reading.get("notes") or ())


def _metrics(stats: CorpusStats, title: str) -> dict[str, Metric]:
    """Lists the rates by full name: `all/NAME/rate`, `all/NAME/task/QA/rate`."""
    name = title.replace("/", "-")
    return {
        metric_name("all", name, f"{facet}/{value}/rate" if facet else "rate"): metric
        for facet, values in stats.rates.items()
        for value, metric in values.items()
    }


OPEN = "**TO ANSWER**"
QUESTIONS: Mapping[str, Mapping[str, str]] = {
    "Motivation": {
        "purpose": "What was it made for, and which gap does it close?",
        "makers": "Who made it, for whom, and who paid?",
    },
    "Composition": {
        "instance": "What is one instance?",
        "size": "How many are there, of each kind?",
        "sample": "Is it a sample, of what, and how was it drawn?",
        "labels": "Which labels does an instance have, and who gave them?",
        "missing": "What is missing in some instances?",
        "relations": "How do instances belong together?",
        "splits": "Which splits are recommended, and how were they divided?",
        "errors": "Which errors, noise and repetitions are known?",
        "external": "On what outside of itself does it rely, and will that last?",
        "private": "Does it hold anything private, or about people who can be recognised?",
        "harm": "Does it hold text that may offend or harm?",
    },
    "Collection": {
        "sources": "Where are the texts from?",
        "models": "Which models wrote responses, with which settings?",
        "annotation": "How were labels made: by people or a model, with which guidelines, prompts and checks?",
        "people": "Who took part, how were they found and paid, and did they consent?",
        "time": "When was it collected?",
    },
    "Preprocessing": {
        "cleaning": "What was cleaned, edited or left out, and is the raw data kept?",
        "software": "Which software made it, and can it be run again?",
    },
    "Uses": {
        "used": "What has it been used for?",
        "unfit": "What should it not be used for?",
    },
    "Distribution": {
        "licence": "Under which licence is it given, and which licences do its sources have?",
        "where": "Where is it found, under which name and version?",
    },
    "Maintenance": {
        "keeper": "Who keeps it, and how are errors reported?",
        "updates": "Will it be updated, and do older versions stay?",
    },
}


def datasheet(stats: CorpusStats, *, title: str, reading: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """Writes the datasheet; a question without an answer is marked `TO ANSWER`."""
    answers = dict(_measured(stats, reading)) | dict(known)
    num_open = sum(key not in answers for questions in QUESTIONS.values() for key in questions)
    lines = [f"# Datasheet: {escape_markdown(title)}", ""]
    lines += [f"{num_open} questions are left to the authors of the corpus: search for {OPEN}.", ""]
    for section, questions in QUESTIONS.items():
        lines += [f"## {section}", ""]
        for key, question in questions.items():
            lines += [f"**{question}**", "", answers.get(key, OPEN), ""]
    return "\n".join(lines)


def _measured(stats: CorpusStats, reading: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Answers the questions that the numbers answer."""
    counts, whole = stats.counts, stats.whole
    parts = ["a response"]
    parts += ["with the knowledge that it should be faithful to"] if whole.context.num_texts else []
    parts += ["and the dialogue before it"] if "turn before" in stats.lengths else []
    yield "instance", f"{' '.join(parts).capitalize()}."
    by_part = "".join(
        f"\n- {escape_markdown(name)}: {line.counts.num_responses:,} responses of {line.num_sources:,} "
        "dialogues or sources"
        for name, line in stats.basic.items()
    )
    yield "size", f"{counts.num_responses:,} responses of {stats.num_groups:,} dialogues or sources.{by_part}"
    if counts.num_judged:
        labels = f"{counts.num_hallucinated:,} of {counts.num_judged:,} ({counts.share:.1%}) are hallucinated."
        if counts.num_marked:
            kinds = sorted({label for types in stats.types.values() for label in types})
            labels += f" {counts.num_spans:,} spans are marked ({', '.join(map(escape_markdown, kinds))})."
        if stats.classes:
            labels += " BEGIN's classes and VRM's speech acts are known."
        yield "labels", f"{labels} Who gave them: {OPEN}"
    missing = {
        "no label": counts.num_responses - counts.num_judged,
        "no marked spans": counts.num_responses - counts.num_marked if counts.num_marked else 0,
        "no knowledge": counts.num_responses if not whole.context.num_texts else 0,
    }
    counted = [f"{number:,} responses have {what}" for what, number in missing.items() if number]
    yield "missing", f"{'; '.join(counted)}." if counted else "Nothing: every response has its knowledge and label."
    each = counts.num_responses / max(1, stats.num_groups)
    yield "relations", f"By dialogue or source: {each:.1f} responses each in the mean. Splits must not cut through one."
    splits = ", ".join(f"{escape_markdown(name)} ({one.num_responses:,})" for name, one in stats.dialogues.items())
    yield "splits", f"{splits}. How they were divided: {OPEN}"
    rejected = f"{reading['num_rejects']:,} rows could not be read; " if reading.get("num_rejects") else ""
    again = f"Responses that repeat one with the same knowledge and history: {stats.num_repeated:,}."
    yield "errors", f"{rejected}{again} Others: {OPEN}"
    if models := list(stats.models):
        yield "models", f"{', '.join(map(escape_markdown, models))}. Their settings: {OPEN}"
    edited = {name: one.edited for name, one in stats.dialogues.items() if one.edited is not None}
    if edited:
        shares = ", ".join(f"{share:.1%} in {escape_markdown(name)}" for name, share in edited.items())
        yield "cleaning", f"Responses were edited: {shares}; the originals are kept. Otherwise: {OPEN}"
    if reading.get("path"):
        yield "where", f"Described as read from `{escape_markdown(str(reading['path']))}`. Name and version: {OPEN}"


SCREEN_DPI = 100
# By the plot's name: its title in the page, and its alternative text.
PLOTS: Mapping[str, tuple[str, str]] = {
    "rates": ("Rates by part", "Hallucinated share of each part with its interval; the table by part has the numbers."),
    "types": ("Types", "Share of each type of hallucination by part; the table of types has the numbers."),
    "positions": (
        "Positions",
        "Heat map of the positions of hallucinated spans in the responses, a strip for each part.",
    ),
    "lengths": ("Length and hallucination", "Hallucination against the length of context and response, by part."),
    "models": ("Generators", "Hallucinated spans per hundred words by generator and task; see the table by generator."),
    "topics": ("Topics", "Bars of how many responses each topic has; the table by topic has the numbers."),
    "classes": ("BEGIN and VRM", "Shares of BEGIN's classes by system, and heat map of the speech acts in each class."),
    "copying": ("Copying", "How many responses have which coverage and density with their knowledge."),
}


def write_corpus_page(
    path: str | Path, tables: Sequence[Table], plots: Sequence[Path], *, title: str, summary: Sequence[str]
) -> None:
    """Writes the page, replacing the file in one step.

    Args:
        summary: Sentences for its head.
    """
    sections = [*_tables(tables, title), *_figures(plots)]
    links = "".join(f'<li><a href="#{name}">{html.escape(head)}</a></li>' for name, head, _ in sections)
    start, end = fill_page(
        "corpus.html",
        title=title,
        styles=("style.css", "sections.css"),
        summary="".join(f'<p class="summary">{html.escape(escape_terminal(line))}</p>' for line in summary),
        contents=links,
    )
    with atomic_file(path) as file, disk_errors(path):
        file.write(start.encode())
        for name, head, body in sections:
            file.write(f'<section id="{name}"><h2>{html.escape(head)}</h2>\n{body}</section>\n'.encode())
        file.write(end.encode())


def _tables(tables: Sequence[Table], title: str) -> Iterator[tuple[str, str, str]]:
    for place, table in enumerate(tables):
        head = escape_terminal(table_title(table).removeprefix(f"{title}: "))
        shown = head[:1].upper() + head[1:]
        notes = html.escape(table_caption(table))
        note = f'<p class="note">{notes}</p>\n' if notes else ""
        yield f"table-{place}", shown, f"<div {scroll_box_attributes(shown)}>{to_html(table, _kind)}</div>\n{note}"


def _kind(row: Sequence[str]) -> str:
    return "paper" if PAPER in row[:2] else "all" if row[0] == ALL else ""


def _figures(plots: Sequence[Path]) -> Iterator[tuple[str, str, str]]:
    for path in plots:
        head, text = PLOTS[path.stem]
        image = path.read_bytes()
        width = round(int.from_bytes(image[16:20], "big") * SCREEN_DPI / DPI)  # of the PNG's header
        data = base64.b64encode(image).decode()
        picture = f'<img width="{width}" alt="{html.escape(text)}" src="data:image/png;base64,{data}">'
        yield f"plot-{path.stem}", head, f"<figure><div {scroll_box_attributes(head)}>{picture}</div></figure>\n"
