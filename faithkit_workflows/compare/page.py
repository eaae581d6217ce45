"""One HTML page that compares runs: sortable tables, plots, and the answers on which two runs disagree.

It is built as the page of answers is (faithkit/pages/page.py) and shows answers by the same parts: everything
stands in the one file, a policy forbids the network, and text from data enters as text alone.
"""

import base64
import html
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from faithkit.files.atomic import atomic_file, disk_errors
from faithkit.pages.page import describe_set
from faithkit.pages.page_parts import Fact, build_row, fill_page, fill_part, gold_label, render_data_blocks
from faithkit.pages.tables import escape_terminal
from faithkit_workflows.compare.page_data import table_data
from faithkit_workflows.compare.plots import plot_curves, plot_precision_recall, plot_reliability
from faithkit_workflows.compare.report import ComparedSet, RunReport
from faithkit_workflows.compare.slices import in_order, title_of
from faithkit_workflows.compare.sweep_page import sweep_notes, told_rankings
from faithkit_workflows.compare.sweep_plot import plot_sweep

SHOWN_PROBLEMS = 12  # before the rest is folded away
EFFECTS_NOTE = (
    "Importance: fANOVA's share of the figure's variance. p: a permutation test of runs dealt to the values by chance, "
    "corrected by Holm for the settings. Means over runs whose other settings differ, with 95% intervals (Student's t)."
)
Section = tuple[str, str, str]  # its name in the page, its head, its markup


def write_report_page(path: str | Path, report: RunReport, *, title: str, max_rows: int = 20_000) -> None:
    """Writes the page, replacing the file in one step; the same runs give the same bytes.

    Args:
        max_rows: Rows of a test set whose answers are shown; of more, those on which systems disagree come first.
    """
    has_answers = bool(report.sets)
    scripts = ["answer.js", "tables.js", *(["tips.js", "filters.js"] if has_answers else []), "report.js"]
    sections = list(_sections(report, max_rows))
    start, end = fill_page(
        "report.html",
        title=title,
        styles=("style.css", "sections.css", "report.css"),
        scripts=[*scripts, "report_answers.js" if has_answers else "report_ready.js"],
        summary=_summary(report),
        contents="".join(f'<li><a href="#{name}">{html.escape(head)}</a></li>' for name, head, _ in sections),
        sections="".join(_section(*section) for section in sections),
    )
    blocks: dict[str, Iterable[Any]] = {"report": [table_data(report)]}
    if has_answers:
        facts = [_facts(one) for one in report.sets]
        blocks["sets"] = [
            describe_set(one.test_set.name, [system.name for system in one.systems], own)
            for one, own in zip(report.sets, facts, strict=True)
        ]
        for place, (one, own) in enumerate(zip(report.sets, facts, strict=True)):
            blocks |= _answers(place, one, own, max_rows)
    with atomic_file(path) as file, disk_errors(path):
        file.write(start.encode())
        for line in render_data_blocks(blocks):
            file.write(line.encode())
        file.write(end.encode())


def _section(name: str, head: str, body: str) -> str:
    return f'<section id="{name}" tabindex="-1"><h2>{html.escape(head)}</h2>\n{body}</section>\n'


def _sections(report: RunReport, max_rows: int) -> Iterator[Section]:
    for name, sweep, ranking in told_rankings(report.sweeps):
        plot = plot_sweep(ranking, effects := sweep.effects[ranking.monitor])
        body = _figure(plot, f"{ranking.monitor} of each run by setting.") if plot else ""
        body += _box(f"{name}-ranking", "Runs of the sweep, ranked") + sweep_notes(sweep, ranking)
        if effects.settings:
            body += "<h3>Which settings mattered</h3>\n" + _box(f"{name}-effects", "Settings") + _note(EFFECTS_NOTE)
        yield name, f"Sweep {sweep.ranked.name}: the best {ranking.monitor} first", body
    runs = (
        '<p class="choices"><label>Find <input id="run-filter" type="search" placeholder="run or setting" '
        'autocomplete="off" spellcheck="false"></label> <span id="run-count" role="status"></span></p>'
    )
    yield "runs", "Runs, and the settings that differ", runs + _box("runs-table", "Runs")
    if report.metrics:
        note = "Value with its 95% interval, a bootstrap over dialogues or documents. A click on a head sorts."
        body = _choices(("values-part", "Of")) + _box("values-table", "Metrics") + _note(note)
        yield "values", "Metrics", body
    if curves := plot_curves(report.runs):
        yield "curves", "Learning curves", _figure(curves, "Learning curves of the runs, a panel for each metric.")
    if report.pairs:
        yield "pairs", "Paired differences", _pairs_markup()
    for place, one in enumerate(report.sets):
        yield from _plots(place, one)
    if any(one.slices for one in report.sets):
        body = _choices(("slices-set", "Test set"), ("slices-metric", "Metric")) + _box("slices-table", "Slices")
        yield (
            "slices",
            "Slices",
            body + _note("Rows by what they have; intervals as above, and wide where rows are few."),
        )
    if report.sets:
        yield "browser", "Answers, and where two runs disagree", _browser_markup(report, max_rows)


def _pairs_markup() -> str:
    note = (
        "Every two runs on the rows that both have judged. The interval and its p are a paired bootstrap over groups "
        "(dialogues, documents); McNemar's test takes rows for independent, so trust the bootstrap where groups have "
        "several rows. Holm: corrected for all pairs of runs on all test sets of this report, metric by metric."
    )
    return _choices(("pairs-set", "Test set"), ("pairs-metric", "Metric")) + _box("pairs-table", "Pairs") + _note(note)


def _browser_markup(report: RunReport, max_rows: int) -> str:
    cut = [one.test_set.name for one in report.sets if len(one.test_set.examples) > max_rows]
    note = f"Of {', '.join(cut)} {max_rows:,} rows are here, first those on which runs disagree." if cut else ""
    tables = f'<div id="confusions"></div>\n{_box("pair-table", "Differences of the two")}'
    chosen = f'{tables}<p id="pair-note" class="note"></p>\n{fill_part("legend.html")}'
    return fill_part("browser.html", chosen=chosen) + (_note(note) if note else "")


def _plots(place: int, one: ComparedSet) -> Iterator[Section]:
    name = one.test_set.name
    figures = (
        (plot_precision_recall, f"Precision by recall of each run on {name}, with the chosen threshold marked."),
        (plot_reliability, f"Share of hallucinated rows of {name} by score, in ten bins."),
    )
    body = "".join(_figure(image, told) for plot, told in figures if (image := plot(one)))
    if body:
        yield f"plots-{place}", f"Scores on {name}", f'<div class="figures">{body}</div>'


def _figure(image: bytes, told: str) -> str:
    data = base64.b64encode(image).decode()
    picture = f'<img alt="{html.escape(escape_terminal(told))}" src="data:image/svg+xml;base64,{data}">'
    return f'<figure><div class="wide-box" tabindex="0" role="region" aria-label="Plot">{picture}</div></figure>\n'


def _summary(report: RunReport) -> str:
    counts = _counted(len(report.runs), "run"), _counted(len(report.sets), "test set")
    found = f'<p class="summary">{counts[0]}, and {counts[1]} with their predictions.</p>'
    if not report.problems:
        return found
    told = [f"<li>{html.escape(escape_terminal(problem, 300))}</li>" for problem in report.problems]
    first, rest = told[:SHOWN_PROBLEMS], told[SHOWN_PROBLEMS:]
    more = f"<details><summary>{len(rest):,} more</summary><ul>{''.join(rest)}</ul></details>" if rest else ""
    return f'{found}<div class="problems"><h2>Not compared, or not read</h2><ul>{"".join(first)}</ul>{more}</div>'


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _choices(*names: tuple[str, str]) -> str:
    labels = "".join(f'<label>{text} <select id="{name}"></select></label> ' for name, text in names)
    return f'<p class="choices">{labels}</p>\n'


def _box(name: str, told: str) -> str:
    return f'<div class="wide-box" id="{name}" tabindex="0" role="region" aria-label="{told}"></div>\n'


def _note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>\n'


def _facts(one: ComparedSet) -> list[Fact]:
    # The script has a filter of its own for types of spans.
    named = {"type": "row_type"}
    return [
        Fact(named.get(name, name), title_of(name), in_order(values), values)
        for name, values in one.facts.items()
        if name != "span_types"
    ]


def _answers(place: int, one: ComparedSet, facts: Sequence[Fact], max_rows: int) -> dict[str, Iterable[Any]]:
    """The rows of a test set and their knowledge, which rows share."""
    test_set = one.test_set
    ids = _most_telling(one, max_rows)
    texts = dict.fromkeys(test_set.examples[id_].knowledge for id_ in ids if id_ in test_set.with_text)
    contexts = {text: number for number, text in enumerate(texts)}

    def rows() -> Iterator[dict[str, Any]]:
        for id_ in ids:
            example = test_set.examples[id_]
            said = [system.predictions.get(id_) for system in one.systems]
            yield build_row(example, said, contexts[example.knowledge] if id_ in test_set.with_text else None, facts)

    return {f"contexts-{place}": contexts, f"rows-{place}": rows()}


def _most_telling(one: ComparedSet, max_rows: int) -> list[str]:
    """Chooses rows to show, in the files' order: those on which systems disagree, then mistakes, then others."""
    examples = one.test_set.examples
    if len(examples) <= max_rows:
        return list(examples)

    def rank(id_: str) -> int:
        labels = {said.label for system in one.systems if (said := system.predictions.get(id_)) is not None}
        return 0 if len(labels) > 1 else 1 if labels != {gold_label(examples[id_])} else 2

    chosen = set(sorted(examples, key=rank)[:max_rows])
    return [id_ for id_ in examples if id_ in chosen]
