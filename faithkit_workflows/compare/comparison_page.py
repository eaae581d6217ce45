"""Writes one HTML page that compares runs: sortable tables, plots, and the answers on which two runs disagree.

It shows answers by the same parts as the page of answers (faithkit/pages/page.py). Everything is in the one file, a
policy forbids the network, and text from data is inserted only as text.
"""

import base64
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.metrics.outcomes import Outcomes
from faithkit.pages.page import describe_set
from faithkit.pages.page_parts import (
    Fact,
    answer_blocks,
    fill_legend,
    fill_part,
    fill_sections,
    gold_label,
    keep_first,
    round_score,
    write_filled_page,
)
from faithkit.pages.page_tables import escape_terminal
from faithkit.records import Example, Prediction
from faithkit.scores.board import Pair
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.comparison import LABELS, SPANS, ComparedSet, Comparison
from faithkit_workflows.compare.comparison_plots import plot_curves, plot_precision_recall, plot_reliability
from faithkit_workflows.compare.comparison_tables import best_run_command, conclusion_lines
from faithkit_workflows.compare.sweep_ranking import RankedSweep, Ranking, shorten_number
from faithkit_workflows.compare.test_sets import METRICS, sort_values, title_of

MAX_PROBLEMS = 12  # further ones are folded away
MAX_NOTES = 12
PAIRS_NOTE = (
    "Every two runs on the rows that both have judged. The interval and its p are a paired bootstrap over groups "
    "(dialogues, documents); McNemar's test assumes independent rows, so prefer the bootstrap where groups have several"
    " rows. Holm: corrected for all pairs of runs on all test sets of this report, metric by metric."
)
Section = tuple[str, str, str]  # its id in the page, its title, its markup


def write_comparison_page(path: str | Path, comparison: Comparison, *, title: str, max_rows: int = 20_000) -> None:
    """Writes the page, replacing the file in one step; the same runs give the same bytes.

    Args:
        max_rows: How many rows of a test set are shown; those on which systems disagree are preferred.
    """
    has_answers = bool(comparison.sets)
    scripts = ["answer.js", "tables.js", *(["tips.js", "filters.js"] if has_answers else []), "report.js"]
    blocks: dict[str, Iterable[Any]] = {"report": [_table_data(comparison)]}
    if has_answers:
        facts = [_facts(one) for one in comparison.sets]
        blocks["sets"] = [
            describe_set(one.test_set.name, [system.name for system in one.systems], of_set)
            for one, of_set in zip(comparison.sets, facts, strict=True)
        ]
        for place, (one, of_set) in enumerate(zip(comparison.sets, facts, strict=True)):
            blocks |= answer_blocks(place, _choose_rows(one, max_rows), of_set)
    write_filled_page(
        path,
        "report.html",
        title=title,
        styles=("style.css", "sections.css", "report.css"),
        scripts=[*scripts, "report_answers.js" if has_answers else "report_ready.js"],
        blocks=blocks,
        summary=_summary(comparison),
        **fill_sections(_sections(comparison, max_rows)),
    )


def _sections(comparison: Comparison, max_rows: int) -> Iterator[Section]:
    for name, sweep, ranking in _named_rankings(comparison.sweeps):
        body = _box(f"{name}-ranking", "Runs of the sweep, ranked") + _sweep_notes(sweep, ranking)
        yield name, f"Sweep {sweep.name}: the best {ranking.monitor} first", body
    runs = (
        '<p class="choices"><label>Find <input id="run-filter" type="search" placeholder="run or setting" '
        'autocomplete="off" spellcheck="false"></label> <span id="run-count" role="status"></span></p>'
    )
    yield "runs", "Runs, and the settings that differ", runs + _box("runs-table", "Runs")
    if comparison.metrics:
        note = "Value with its 95% interval, a bootstrap over dialogues or documents. A click on a head sorts."
        yield "values", "Metrics", _choices(("values-part", "Of")) + _box("values-table", "Metrics") + _note(note)
    if curves := plot_curves(comparison.runs):
        yield "curves", "Learning curves", _figure(curves, "Learning curves of the runs, a panel for each metric.")
    if comparison.pairs:
        choices = _choices(("pairs-set", "Test set"), ("pairs-metric", "Metric"))
        yield "pairs", "Paired differences", choices + _box("pairs-table", "Pairs") + _note(PAIRS_NOTE)
    for place, one in enumerate(comparison.sets):
        name = one.test_set.name
        plots = (
            (plot_precision_recall, f"Precision by recall of each run on {name}, with the chosen threshold marked."),
            (plot_reliability, f"Share of hallucinated rows of {name} by score, in ten bins."),
        )
        if figures := "".join(_figure(image, text) for plot_set, text in plots if (image := plot_set(one))):
            yield f"plots-{place}", f"Scores on {name}", f'<div class="figures">{figures}</div>'
    if any(one.slices for one in comparison.sets):
        choices = _choices(("slices-set", "Test set"), ("slices-metric", "Metric"))
        note = _note("Rows by the values of their fields; intervals as above, and wide where rows are few.")
        yield "slices", "Slices", choices + _box("slices-table", "Slices") + note
    if comparison.sets:
        several = any(len(one.systems) > 1 for one in comparison.sets)
        title = f"Answers{', and where two runs disagree' if several else ''}"
        yield "browser", title, _browser_markup(comparison, max_rows)


def _browser_markup(comparison: Comparison, max_rows: int) -> str:
    cut = [one.test_set.name for one in comparison.sets if len(one.test_set.examples) > max_rows]
    note = f"Of {', '.join(cut)} {max_rows:,} rows are here, first those on which runs disagree." if cut else ""
    examples = (example for one in comparison.sets for example in one.test_set.examples.values())
    tables = f'<div id="confusions"></div>\n{_box("pair-table", "Differences of the two")}'
    chosen = f'{tables}<p id="pair-note" class="note"></p>\n{fill_legend(examples)}'
    return fill_part("browser.html", chosen=chosen) + (_note(note) if note else "")


def _named_rankings(sweeps: Sequence[RankedSweep]) -> Iterator[tuple[str, RankedSweep, Ranking]]:
    """Lists the rankings with the ids of their sections."""
    pairs = [(sweep, ranking) for sweep in sweeps for ranking in sweep.rankings]
    for place, (sweep, ranking) in enumerate(pairs):
        yield f"sweep-{place}", sweep, ranking


def _sweep_notes(sweep: RankedSweep, ranking: Ranking) -> str:
    items = [f"<li>{html.escape(escape_terminal(note, 400))}</li>" for note in sweep.notes[:MAX_NOTES]]
    if len(sweep.notes) > MAX_NOTES:
        items.append(f"<li>and {len(sweep.notes) - MAX_NOTES} more</li>")
    code = html.escape(escape_terminal(best_run_command(sweep, ranking)))
    return f'<ul class="note">{"".join(items)}</ul>\n<p class="command">Repeat: <code>{code}</code></p>\n'


def _figure(image: bytes, text: str) -> str:
    data = base64.b64encode(image).decode()
    picture = f'<img alt="{html.escape(escape_terminal(text))}" src="data:image/svg+xml;base64,{data}">'
    return f'<figure><div class="wide-box" tabindex="0" role="region" aria-label="Plot">{picture}</div></figure>\n'


def _summary(comparison: Comparison) -> str:
    counts = {"run": len(comparison.runs), "test set": len(comparison.sets)}
    shown = ", and ".join(f"{number:,} {name}{'' if number == 1 else 's'}" for name, number in counts.items())
    summary = f'<p class="summary">{shown} with their predictions.</p>'
    if lines := [f"<li>{html.escape(line)}</li>" for line in conclusion_lines(comparison)]:
        summary += f'<ul class="note">{"".join(lines)}</ul>'
    items = [f"<li>{html.escape(escape_terminal(problem, 300))}</li>" for problem in comparison.problems]
    first, rest = items[:MAX_PROBLEMS], items[MAX_PROBLEMS:]
    if not items:
        return summary
    more = f"<details><summary>{len(rest):,} more</summary><ul>{''.join(rest)}</ul></details>" if rest else ""
    return f'{summary}<div class="problems"><h2>Not compared, or not read</h2><ul>{"".join(first)}</ul>{more}</div>'


def _choices(*names: tuple[str, str]) -> str:
    labels = "".join(f'<label>{text} <select id="{name}"></select></label> ' for name, text in names)
    return f'<p class="choices">{labels}</p>\n'


def _box(name: str, label: str) -> str:
    return f'<div class="wide-box" id="{name}" tabindex="0" role="region" aria-label="{label}"></div>\n'


def _note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>\n'


def _facts(one: ComparedSet) -> list[Fact]:
    names = {"type": "row_type"}  # the script has another filter for types of spans
    return [
        Fact(names.get(name, name), title_of(name), sort_values(values), values)
        for name, values in one.facts.items()
        if name != "span_types"
    ]


def _choose_rows(one: ComparedSet, max_rows: int) -> list[tuple[Example, list[Prediction | None], bool]]:
    """Chooses rows in the files' order: those on which systems disagree, then mistakes, then others."""

    def rank(row: tuple[Example, list[Prediction | None], bool]) -> int:
        labels = {prediction.label for prediction in row[1] if prediction is not None}
        return 0 if len(labels) > 1 else 1 if labels != {gold_label(row[0])} else 2

    test_set = one.test_set
    rows = [
        (example, [system.predictions.get(id_) for system in one.systems], id_ in test_set.with_text)
        for id_, example in test_set.examples.items()
    ]
    return keep_first(rows, rank, max_rows)


def _table_data(comparison: Comparison) -> dict[str, Any]:
    """Collects everything but the answers as plain data, as page_files/report.js reads it."""
    names = [run.name for run in comparison.runs]
    known = dict.fromkeys(name for pair in comparison.pairs for name in pair.differences)
    tested = sorted(known, key=lambda name: (*LABELS, *SPANS, name).index(name))  # others in their order
    return {
        "settings": list(comparison.settings),
        "runs": [
            [run.name, run.script, str(run.state), str(run.began or "–"), *values]
            for run, *values in zip(comparison.runs, *comparison.settings.values(), strict=True)
        ],
        "metrics": [_metrics_data(part, metrics, names) for part, metrics in comparison.metrics.items()],
        "sweeps": [_ranking_data(name, ranking) for name, _, ranking in _named_rankings(comparison.sweeps)],
        "tested": tested,
        "pairs": [
            {"name": one.test_set.name, "rows": rows}
            for one in comparison.sets
            if (rows := [_pair_data(pair) for pair in comparison.pairs if pair.test_set == one.test_set.name])
        ],
        "sliced": METRICS,
        "slices": [_slices_data(one) for one in comparison.sets if one.slices],
        "confusions": {
            one.test_set.name: {name: _count_confusions(outcomes) for name, outcomes in one.outcomes.items()}
            for one in comparison.sets
        },
    }


def _ranking_data(name: str, ranking: Ranking) -> dict[str, Any]:
    keys = list(dict.fromkeys(key for row in ranking.rows for key in row.settings))
    rows = [
        [
            place + 1,
            *(shorten_number(row.settings[key]) if key in row.settings else None for key in keys),
            _metric_data(row.validation),
            _metric_data(row.test),
            len(row.runs),
            ", ".join(one.run.name for one in row.runs),
        ]
        for place, row in enumerate(ranking.rows)
    ]
    test = ranking.test_name or "test"
    return {"name": name, "keys": keys, "monitor": ranking.monitor, "test": test, "rows": rows}


def _metrics_data(part: str, metrics: Mapping[int, Mapping[str, Metric]], names: Sequence[str]) -> dict[str, Any]:
    known = dict.fromkeys(name for of_run in metrics.values() for name in of_run)
    first = [name for name in (*LABELS, *SPANS) if name in known]
    shorts = [*first, *(name for name in known if name not in first)]
    rows = [[names[n], *(_metric_data(of_run.get(name)) for name in shorts)] for n, of_run in metrics.items()]
    return {"name": part, "names": shorts, "rows": rows}


def _metric_data(metric: Metric | None) -> list[Any] | None:
    return None if metric is None else [round_score(metric.value), round_score(metric.low), round_score(metric.high)]


def _pair_data(pair: Pair) -> dict[str, Any]:
    differences = {
        name: [round_score(one.value), round_score(one.low), round_score(one.high), one.p_value, pair.corrected[name]]
        for name, one in pair.differences.items()
    }
    test = pair.mcnemar
    return {
        "first": pair.first,
        "second": pair.second,
        "rows": pair.num_rows,
        "groups": pair.num_groups,
        "differences": differences,
        "mcnemar": [test.first_alone, test.second_alone, test.p_value, test.corrected] if test else None,
    }


def _count_confusions(outcomes: Outcomes) -> list[list[int]]:
    """Counts gold labels (faithful, hallucinated) by called ones (faithful, hallucinated, unparsed)."""
    counts = np.bincount(outcomes.gold.astype(np.intp) * 3 + outcomes.called, minlength=6)
    found: list[list[int]] = counts.reshape(2, 3).tolist()
    return found


def _slices_data(one: ComparedSet) -> dict[str, Any]:
    systems = list(one.outcomes)
    rows = [
        [
            title_of(part.field),
            part.value,
            part.num_rows,
            round_score(part.hallucinated),
            [[_metric_data(part.metrics[system].get(name)) for name in METRICS] for system in systems],
        ]
        for part in one.slices
    ]
    return {"name": one.test_set.name, "systems": systems, "rows": rows}
