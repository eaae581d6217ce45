"""One HTML page of a run: its figures, and each answer with its marks, gold against predicted.

The page is self-contained: its Content-Security-Policy forbids the network and every script except those that it
names by hash. Answers are data in a JSON block, and the script puts them in as text, never as markup, fifty at a time,
so twenty thousand answers open. The report of several runs shows answers by the same parts
(faithkit_workflows/compare/page.py).
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_file, disk_errors
from faithkit.metrics.outcomes import align_predictions
from faithkit.metrics.span_outcomes import check_spans
from faithkit.pages.page_parts import Fact, build_row, fill_page, fill_part, gold_label, render_data_blocks
from faithkit.pages.page_tables import escape_terminal
from faithkit.pages.table_text import scroll_box_attributes, table_caption, table_title, to_html
from faithkit.records import Example, Prediction

FACTS = {"task": "Task", "model": "Generator"}
MAX_ROWS = 20_000  # of a test set: a browser opens as many at once


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSet:
    """A test set of a page: one system's predictions of its examples, and the tables above them; either may be empty.

    Args:
        tables: The first is shown, the others are folded away.
        notes: Lines behind the tables, such as where the predictions are from.
        by: Columns that rows can be filtered by: the value of each row, by id.
    """

    name: str
    examples: Sequence[Example]
    predictions: Mapping[str, Prediction]
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    by: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def write_page(
    path: str | Path,
    sets: Sequence[AnswerSet],
    *,
    title: str,
    about: Sequence[str] = (),
    texts: bool = True,
    max_rows: int = MAX_ROWS,
) -> None:
    """Writes the page, replacing the file in one step; the same input gives the same bytes.

    Args:
        about: Lines under the title, such as the model and the run.
        texts: With knowledge, history and response of each example.
        max_rows: Rows of a test set that are shown; of more, mistakes come first.

    Raises:
        UserError: Examples and predictions do not belong together.
    """
    blocks: dict[str, Iterable[Any]] = {}
    notes, described = [], []
    answered = [one for one in sets if one.examples]
    for place, one in enumerate(answered):
        pairs = list(zip(one.examples, align_predictions(one.examples, one.predictions, judged=False), strict=True))
        if misfits := sum(not _fits(prediction, example) for example, prediction in pairs):
            notes.append(f"Of {one.name} the marks of {misfits:,} predictions reach beyond their answers: not shown.")
        if len(pairs) > max_rows:
            pairs = _mistakes_first(pairs, max_rows)
            notes.append(f"Of {one.name} {max_rows:,} of {len(one.examples):,} answers are here, mistakes first.")
        facts = _facts(one)
        blocks |= _answer_blocks(place, pairs, facts, texts=texts)
        described.append(describe_set(one.name, [one.name], facts))
    has_spans = any(p.spans for one in sets for p in one.predictions.values()) or any(
        example.spans for one in sets for example in one.examples
    )
    start, end = fill_page(
        "page.html",
        title=title,
        styles=("style.css", "page.css"),
        scripts=("answer.js", "tips.js", "filters.js"),
        about="".join(f"<p>{html.escape(escape_terminal(line))}</p>\n" for line in about),
        figures="".join(_figures_html(one) for one in sets),
        legend=fill_part("legend.html") if has_spans and texts else "",
        browser=fill_part(
            "browser.html", chosen="".join(f'<p class="note">{html.escape(note)}</p>\n' for note in notes)
        ),
    )
    with atomic_file(path) as file, disk_errors(path):
        file.write(start.encode())
        for line in render_data_blocks({"sets": described, **blocks}):
            file.write(line.encode())
        file.write(end.encode())


def _fits(prediction: Prediction, example: Example) -> bool:
    try:
        check_spans(prediction, len(example.response))
    except UserError:
        return False
    return True


def _answer_blocks(
    place: int, pairs: Sequence[tuple[Example, Prediction]], facts: Sequence[Fact], *, texts: bool
) -> dict[str, Iterable[Any]]:
    """The rows of a test set and their knowledge, which rows share."""
    contexts = {text: number for number, text in enumerate(dict.fromkeys(e.knowledge for e, _ in pairs))}

    def rows() -> Iterator[dict[str, Any]]:
        for example, prediction in pairs:
            if texts:
                yield build_row(example, [prediction], contexts[example.knowledge], facts)
            else:  # what was predicted of it stays, and nothing that can be read
                bare = replace(example, response="", history=(), spans=None, label=gold_label(example))
                yield build_row(bare, [replace(prediction, text="", spans=())], None, facts)

    return {f"contexts-{place}": contexts if texts else (), f"rows-{place}": rows()}


def _mistakes_first(pairs: Sequence[tuple[Example, Prediction]], limit: int) -> list[tuple[Example, Prediction]]:
    """Chooses mistakes before right answers, and keeps the file's order."""
    right = [prediction.label == gold_label(example) for example, prediction in pairs]
    chosen = sorted(sorted(range(len(pairs)), key=lambda place: right[place])[:limit])
    return [pairs[place] for place in chosen]


def describe_set(name: str, systems: Sequence[str], facts: Sequence[Fact]) -> dict[str, Any]:
    """Describes a set of answers for the script: its name, its systems, and the facts that rows are filtered by."""
    described = [{"name": fact.name, "title": fact.title, "values": list(fact.values)} for fact in facts]
    return {"name": name, "systems": list(systems), "facts": described}


def _facts(one: AnswerSet) -> list[Fact]:
    found, examples = [], one.examples
    for name, title in FACTS.items():
        if not any(example.meta.get(name) for example in examples):
            continue
        values = {example.id: str(example.meta.get(name) or "(unknown)") for example in examples}
        found.append(Fact(name, title, sorted(set(values.values())), values))
    # With a prefix: a column may have the name of one of the page's filters.
    found += [Fact(f"by.{name}", name, sorted(set(values.values())), values) for name, values in one.by.items()]
    return found


def _figures_html(one: AnswerSet) -> str:
    """The tables of a test set and where its predictions are from: the first in sight, the others folded."""
    if not one.tables and not one.notes:
        return ""
    first, others = one.tables[:1], one.tables[1:]
    notes = "".join(f'<p class="note">{html.escape(escape_terminal(line))}</p>\n' for line in one.notes)
    folded = "".join(_table_html(table) for table in others) + notes
    more = f"<details><summary>All figures, and where they are from</summary>\n{folded}</details>\n" if folded else ""
    return f'<section class="figures">\n{"".join(_table_html(table) for table in first)}{more}</section>\n'


def _table_html(table: Table) -> str:
    title, notes = table_title(table), html.escape(table_caption(table))
    note = f'<p class="note">{notes}</p>\n' if notes else ""
    return f"<h2>{html.escape(title)}</h2>\n<div {scroll_box_attributes(title)}>{to_html(table)}</div>\n{note}"
