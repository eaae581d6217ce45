"""Writes one HTML page that compares runs: sortable tables, plots, and the answers on which two runs disagree.

It shows answers by the same parts as the page of answers (faithkit/pages/page.py). Everything is in the one file, a
policy forbids the network, and text from data is inserted only as text.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from faithkit.pages.page import (
    Fact,
    answer_blocks,
    describe_set,
    fill_part,
    gold_label,
    keep_first,
    round_score,
    write_filled_page,
)
from faithkit.pages.page_tables import escape_terminal
from faithkit.records import Example, Prediction
from faithkit.scores.board import Pair
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.comparison import LABELS, SPANS, Comparison
from faithkit_workflows.compare.comparison_plots import plot_curves, plot_precision_recall, plot_reliability
from faithkit_workflows.compare.comparison_tables import best_run_command, conclusion_lines
from faithkit_workflows.compare.sweep_ranking import Ranking, shorten_number
from faithkit_workflows.compare.test_sets import METRICS, TITLES, sort_values

MAX_PROBLEMS = 12  # further ones are folded away
PAIRS_NOTE = (
    "Every two runs on the rows that both have judged. The interval and its p are a paired bootstrap over groups "
    "(dialogues, documents); McNemar's test assumes independent rows, so prefer the bootstrap where groups have several"
    " rows. Holm: corrected for all pairs of runs on all test sets of this report, metric by metric."
)
PARTS = "comparison.html"
Section = tuple[str, str, Markup]  # its id in the page, its title, its markup


def write_comparison_page(path: str | Path, comparison: Comparison, *, title: str, max_rows: int = 20_000) -> None:
    """Writes the page, replacing the file in one step; the same runs give the same bytes.

    Args:
        max_rows: How many rows of a test set are shown; those on which systems disagree are preferred.
    """
    has_answers = bool(comparison.sets)
    scripts = ["answer.js", "tables.js", *(["tips.js", "filters.js"] if has_answers else []), "report.js"]
    blocks: dict[str, Iterable[Any]] = {"report": [_table_data(comparison)]}
    if has_answers:
        described = blocks["sets"] = []
        for place, one in enumerate(comparison.sets):
            facts = [
                # The script has another filter for types of spans.
                Fact("row_type" if name == "type" else name, TITLES.get(name, name), sort_values(values), values)
                for name, values in one.facts.items()
                if name != "span_types"
            ]
            described.append(describe_set(one.test_set.name, [system.name for system in one.systems], facts))
            rows = [
                (example, [system.predictions.get(id_) for system in one.systems], id_ in one.test_set.with_text)
                for id_, example in one.test_set.examples.items()
            ]
            blocks |= answer_blocks(place, keep_first(rows, _rank_row, max_rows), facts)
    counts = [(len(comparison.runs), "run"), (len(comparison.sets), "test set")]
    problems = [escape_terminal(problem, 300) for problem in comparison.problems]
    write_filled_page(
        path,
        "sections.html",
        title=title,
        styles=("style.css", "sections.css", "report.css"),
        scripts=[*scripts, "report_answers.js" if has_answers else "report_ready.js"],
        blocks=blocks,
        summary=fill_part("summary", counts, list(conclusion_lines(comparison)), problems, MAX_PROBLEMS, file=PARTS),
        sections=list(_sections(comparison, max_rows)),
    )


def _rank_row(row: tuple[Example, Sequence[Prediction | None], bool]) -> int:
    """Ranks rows on which systems disagree first, then mistakes, then others."""
    labels = {prediction.label for prediction in row[1] if prediction is not None}
    return 0 if len(labels) > 1 else 1 if labels != {gold_label(row[0])} else 2


def _sections(comparison: Comparison, max_rows: int) -> Iterator[Section]:
    def box(id_: str, label: str) -> Markup:
        return fill_part("box", label, id_)

    def note(text: str) -> Markup:
        return fill_part("notes", [text])

    def plot(image: bytes, text: str) -> Markup:
        return fill_part("picture", f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}", "Plot", text)

    rankings = [(sweep, ranking) for sweep in comparison.sweeps for ranking in sweep.rankings]
    for place, (sweep, ranking) in enumerate(rankings):
        name, command = f"sweep-{place}", best_run_command(sweep, ranking)
        body = fill_part("sweep", sweep.notes, MAX_PROBLEMS, command, file=PARTS)
        title = f"Sweep {sweep.name}: the best {ranking.monitor} first"
        yield name, title, box(f"{name}-ranking", "Runs of the sweep, ranked") + body
    runs = fill_part("find_run", file=PARTS) + box("runs-table", "Runs")
    yield "runs", "Runs, and the settings that differ", runs
    if comparison.metrics:
        line = "Value with its 95% interval, a bootstrap over dialogues or documents. A click on a head sorts."
        choices = fill_part("choices", [("values-part", "Of")])
        yield "values", "Metrics", choices + box("values-table", "Metrics") + note(line)
    if curves := plot_curves(comparison.runs):
        yield "curves", "Learning curves", plot(curves, "Learning curves of the runs, a panel for each metric.")
    if comparison.pairs:
        choices = fill_part("choices", [("pairs-set", "Test set"), ("pairs-metric", "Metric")])
        yield "pairs", "Paired differences", choices + box("pairs-table", "Pairs") + note(PAIRS_NOTE)
    for place, one in enumerate(comparison.sets):
        name = one.test_set.name
        plots = (
            (plot_precision_recall, f"Precision by recall of each run on {name}, with the chosen threshold marked."),
            (plot_reliability, f"Share of hallucinated rows of {name} by score, in ten bins."),
        )
        if figures := [plot(image, text) for plot_set, text in plots if (image := plot_set(one))]:
            body = Markup('<div class="figures">{}</div>').format(Markup().join(figures))
            yield f"plots-{place}", f"Scores on {name}", body
    if any(one.slices for one in comparison.sets):
        choices = fill_part("choices", [("slices-set", "Test set"), ("slices-metric", "Metric")])
        line = "Rows by the values of their fields; intervals as above, and wide where rows are few."
        yield "slices", "Slices", choices + box("slices-table", "Slices") + note(line)
    if comparison.sets:
        several = any(len(one.systems) > 1 for one in comparison.sets)
        cut = [one.test_set.name for one in comparison.sets if len(one.test_set.examples) > max_rows]
        examples = (example for one in comparison.sets for example in one.test_set.examples.values())
        legend = fill_part("legend", any(example.spans is not None for example in examples))
        chosen = Markup('<div id="confusions"></div>\n') + box("pair-table", "Differences of the two")
        chosen += Markup('<p id="pair-note" class="note"></p>\n') + legend
        line = f"Of {', '.join(cut)} {max_rows:,} rows are here, first those on which runs disagree."
        title = f"Answers{', and where two runs disagree' if several else ''}"
        yield "browser", title, fill_part("browser", chosen) + (note(line) if cut else "")


def _table_data(comparison: Comparison) -> dict[str, Any]:
    """Collects everything but the answers as plain data, as page_files/report.js reads it."""
    names = [run.name for run in comparison.runs]
    known = dict.fromkeys(name for pair in comparison.pairs for name in pair.differences)
    tested = sorted(known, key=lambda name: (*LABELS, *SPANS, name).index(name))  # others in their order
    parts = []
    for part, metrics in comparison.metrics.items():
        measured = dict.fromkeys(name for of_run in metrics.values() for name in of_run)
        first = [name for name in (*LABELS, *SPANS) if name in measured]
        shorts = [*first, *(name for name in measured if name not in first)]
        values = [[names[n], *(_metric_data(of_run.get(name)) for name in shorts)] for n, of_run in metrics.items()]
        parts.append({"name": part, "names": shorts, "rows": values})
    rankings = [ranking for sweep in comparison.sweeps for ranking in sweep.rankings]
    confusions = {
        # Gold labels (faithful, hallucinated) by called ones (faithful, hallucinated, unparsed).
        one.test_set.name: {
            name: np.bincount(each.gold.astype(np.intp) * 3 + each.called, minlength=6).reshape(2, 3).tolist()
            for name, each in one.outcomes.items()
        }
        for one in comparison.sets
    }
    slices = []
    for one in comparison.sets:
        cells = [
            [
                TITLES.get(part.field, part.field),
                part.value,
                part.num_rows,
                round_score(part.hallucinated),
                [[_metric_data(part.metrics[system].get(name)) for name in METRICS] for system in one.outcomes],
            ]
            for part in one.slices
        ]
        if cells:
            slices.append({"name": one.test_set.name, "systems": list(one.outcomes), "rows": cells})
    return {
        "settings": list(comparison.settings),
        "runs": [
            [run.name, run.script, str(run.state), str(run.began or "–"), *values]
            for run, *values in zip(comparison.runs, *comparison.settings.values(), strict=True)
        ],
        "metrics": parts,
        "sweeps": [_ranking_data(f"sweep-{place}", ranking) for place, ranking in enumerate(rankings)],
        "tested": tested,
        "pairs": [
            {"name": one.test_set.name, "rows": rows}
            for one in comparison.sets
            if (rows := [_pair_data(pair) for pair in comparison.pairs if pair.test_set == one.test_set.name])
        ],
        "sliced": METRICS,
        "slices": slices,
        "confusions": confusions,
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
