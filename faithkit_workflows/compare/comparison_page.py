"""Writes one HTML page that compares runs: sortable tables, plots, and the answers on which two runs disagree.

It shows answers by the same parts as the page of answers (faithkit/pages/page.py). Everything is in the one file, a
policy forbids the network, and text from data is inserted only as text.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from faithkit.calibration import reliability
from faithkit.pages.page import (
    answer_blocks,
    describe_set,
    fill_part,
    gold_label,
    keep_first,
    round_score,
    write_filled_page,
)
from faithkit.pages.page_tables import escape_terminal
from faithkit.pages.plotting import COLOURS, MARKERS, STYLE, legend_above, new_figure, percent_axis, plot_name
from faithkit.records import Example, Prediction
from faithkit.runs.reading import Curve, Run, read_curves
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.comparison import LABELS, SPANS, ComparedSet, Comparison, shorten_number
from faithkit_workflows.compare.comparison_tables import best_run_command, conclusion_lines
from faithkit_workflows.compare.test_sets import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_PROBLEMS = 12  # further ones are folded away
PARTS = "comparison.html"
MAX_LINES = len(COLOURS)  # further runs are thin and grey
MAX_PANELS = 6
NUM_BINS = 10
GREY = "#999999"
SVG = {**STYLE, "svg.hashsalt": "faithkit"}  # settings of matplotlib
FIRST_CURVES = ("train/loss", "macro_f1", "char_f1", "f1", "loss", "perplexity", "lr")


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
                replace(fact, name="row_type") if fact.name == "type" else fact
                for fact in one.facts
                if fact.name != "span_types"
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


def _sections(comparison: Comparison, max_rows: int) -> Iterator[tuple[str, str, Markup]]:
    """Yields the sections: id in the page, title, markup."""

    def plot(image: bytes, text: str) -> Markup:
        return fill_part("picture", f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}", "Plot", text)

    rankings = [(sweep, ranking) for sweep in comparison.sweeps for ranking in sweep.rankings]
    for place, (sweep, ranking) in enumerate(rankings):
        name, command = f"sweep-{place}", best_run_command(sweep, ranking)
        body = fill_part("sweep", sweep.notes, MAX_PROBLEMS, command, file=PARTS)
        title = f"Sweep {sweep.name}: the best {ranking.monitor} first"
        yield name, title, fill_part("box", "Runs of the sweep, ranked", f"{name}-ranking") + body
    runs = fill_part("find_run", file=PARTS) + fill_part("box", "Runs", "runs-table")
    yield "runs", "Runs, and the settings that differ", runs
    if comparison.metrics:
        line = "Value with its 95% interval, a bootstrap over dialogues or documents. A click on a head sorts."
        choices = fill_part("choices", [("values-part", "Of")])
        table = fill_part("box", "Metrics", "values-table")
        yield "values", "Metrics", choices + table + fill_part("notes", [line])
    if curves := plot_curves(comparison.runs):
        yield "curves", "Learning curves", plot(curves, "Learning curves of the runs, a panel for each metric.")
    if comparison.pairs:
        line = (
            "Every two runs on the rows that both have judged. The interval and its p are a paired bootstrap over "
            "groups (dialogues, documents); McNemar's test assumes independent rows, so prefer the bootstrap where "
            "groups have several rows. Holm: corrected for all pairs of runs on all test sets of this report, metric "
            "by metric."
        )
        choices = fill_part("choices", [("pairs-set", "Test set"), ("pairs-metric", "Metric")])
        table = fill_part("box", "Pairs", "pairs-table")
        yield "pairs", "Paired differences", choices + table + fill_part("notes", [line])
    for place, one in enumerate(comparison.sets):
        name = one.test_set.name
        if images := plot_scores(one):
            texts = (
                f"Precision by recall of each run on {name}, with the chosen threshold marked.",
                f"Share of hallucinated rows of {name} by score, in ten bins.",
            )
            body = Markup('<div class="figures">{}</div>').format(Markup().join(map(plot, images, texts)))
            yield f"plots-{place}", f"Scores on {name}", body
    if any(one.slices for one in comparison.sets):
        choices = fill_part("choices", [("slices-set", "Test set"), ("slices-metric", "Metric")])
        line = "Rows by the values of their fields; intervals as above, and wide where rows are few."
        table = fill_part("box", "Slices", "slices-table")
        yield "slices", "Slices", choices + table + fill_part("notes", [line])
    if comparison.sets:
        several = any(len(one.systems) > 1 for one in comparison.sets)
        cut = [one.test_set.name for one in comparison.sets if len(one.test_set.examples) > max_rows]
        examples = (example for one in comparison.sets for example in one.test_set.examples.values())
        legend = fill_part("legend", any(example.spans is not None for example in examples))
        chosen = Markup('<div id="confusions"></div>\n') + fill_part("box", "Differences of the two", "pair-table")
        chosen += Markup('<p id="pair-note" class="note"></p>\n') + legend
        line = f"Of {', '.join(cut)} {max_rows:,} rows are here, first those on which runs disagree."
        title = f"Answers{', and where two runs disagree' if several else ''}"
        yield "browser", title, fill_part("browser", chosen) + (fill_part("notes", [line]) if cut else "")


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
    sweeps = []
    for place, ranking in enumerate(ranking for sweep in comparison.sweeps for ranking in sweep.rankings):
        keys = list(dict.fromkeys(key for row in ranking.rows for key in row.settings))
        ranked = [
            [
                rank,
                *(shorten_number(row.settings[key]) if key in row.settings else None for key in keys),
                _metric_data(row.validation),
                _metric_data(row.test),
                len(row.runs),
                ", ".join(one.run.name for one in row.runs),
            ]
            for rank, row in enumerate(ranking.rows, start=1)
        ]
        about = {"name": f"sweep-{place}", "keys": keys, "monitor": ranking.monitor}
        sweeps.append({**about, "test": ranking.test_name or "test", "rows": ranked})
    pairs, slices, confusions = list[Any](), list[Any](), dict[str, Any]()
    for one in comparison.sets:
        name, rows = one.test_set.name, []
        # Gold labels (faithful, hallucinated) by called ones (faithful, hallucinated, unparsed).
        confusions[name] = {
            system: np.bincount(each.gold.astype(np.intp) * 3 + each.called, minlength=6).reshape(2, 3).tolist()
            for system, each in one.outcomes.items()
        }
        for pair in (pair for pair in comparison.pairs if pair.test_set == name):
            test, differences = pair.mcnemar, {}
            for metric, each in pair.differences.items():
                bounds = [round_score(each.value), round_score(each.low), round_score(each.high)]
                differences[metric] = [*bounds, each.p_value, pair.corrected[metric]]
            row = {
                "first": pair.first,
                "second": pair.second,
                "rows": pair.num_rows,
                "groups": pair.num_groups,
                "differences": differences,
                "mcnemar": [test.first_alone, test.second_alone, test.p_value, test.corrected] if test else None,
            }
            rows.append(row)
        if rows:
            pairs.append({"name": name, "rows": rows})
        titles = {fact.name: fact.title for fact in one.facts}
        cells = [
            [
                titles[part.field],
                part.value,
                part.num_rows,
                round_score(part.hallucinated),
                [[_metric_data(part.metrics[system].get(metric)) for metric in METRICS] for system in one.outcomes],
            ]
            for part in one.slices
        ]
        if cells:
            slices.append({"name": name, "systems": list(one.outcomes), "rows": cells})
    return {
        "settings": list(comparison.settings),
        "runs": [
            [run.name, run.script, str(run.state), str(run.began or "–"), *values]
            for run, *values in zip(comparison.runs, *comparison.settings.values(), strict=True)
        ],
        "metrics": parts,
        "sweeps": sweeps,
        "tested": tested,
        "pairs": pairs,
        "sliced": METRICS,
        "slices": slices,
        "confusions": confusions,
    }


def _metric_data(metric: Metric | None) -> list[Any] | None:
    return None if metric is None else [round_score(metric.value), round_score(metric.low), round_score(metric.high)]


def plot_curves(runs: Sequence[Run]) -> bytes | None:
    """Plots the learning curves, a panel for each metric; None if nothing was logged."""
    curves: dict[int, dict[str, Curve]] = {}
    for place, run in enumerate(runs):
        with suppress(OSError):
            if run.curves is not None and (found := read_curves(run.curves)):
                curves[place] = found
    # Losses and validation come first, then the metrics of most runs; one point is not a curve.
    counts = Counter(name for found in curves.values() for name, curve in found.items() if len(curve) > 1)

    def rank(name: str) -> tuple[int, int, str]:
        short = name if name in FIRST_CURVES else name.rpartition("/")[2]
        place = FIRST_CURVES.index(short) if short in FIRST_CURVES else len(FIRST_CURVES)
        return place, -counts[name], name

    names = sorted(counts, key=rank)[:MAX_PANELS]
    if not names:
        return None

    from matplotlib import rc_context

    with rc_context(SVG):
        columns = min(len(names), 2)
        rows = -(-len(names) // columns)
        figure, _ = new_figure(9, 2.6 * rows + 0.4, rows=rows, columns=columns)
        for axes in figure.axes[len(names) :]:
            axes.set_visible(False)
        handles: dict[Any, Any] = {}
        for axes, name in zip(figure.axes, names, strict=False):
            for line, (place, found) in enumerate(curves.items()):
                if name not in found:
                    continue
                points = [found[name][n] for n in _thin(len(found[name]))]
                style: dict[str, Any] = {"color": GREY, "linewidth": 0.6, "alpha": 0.5}
                if line < MAX_LINES:
                    style = _line_style(line) | {"label": plot_name(runs[place].name)}
                    style |= {"marker": MARKERS[line], "markersize": 3} if len(points) < 12 else {}
                axes.plot(*zip(*points, strict=True), **style)
            axes.set_title(plot_name(name))
            axes.set_xlabel("step")
            handles |= zip(*axes.get_legend_handles_labels()[::-1], strict=True)
        if len(handles) > 1:
            figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=2)
        return _to_svg(figure)


def plot_scores(compared: ComparedSet) -> list[bytes]:
    """Plots precision by recall of the first systems' scores, and the share of hallucinated rows by score.

    Systems need scores for rows of both classes; without one there is no plot.
    """
    from matplotlib import rc_context
    from sklearn.metrics import precision_recall_curve

    has_both = {name: 0 < one.gold[one.scored].sum() < one.scored.sum() for name, one in compared.outcomes.items()}
    scored = [(name, one) for name, one in compared.outcomes.items() if has_both[name]][:MAX_LINES]
    if not scored:
        return []

    def label_axes(axes: "Axes", title: str, x: str, y: str) -> None:
        for axis, label in ((axes.xaxis, x), (axes.yaxis, y)):
            axis.set_major_formatter(percent_axis())
            axis.set_label_text(label)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.05)
        legend_above(axes, title)

    with rc_context(SVG):
        precisions, axes = new_figure(6.4, 4.6)
        for line, (name, outcomes) in enumerate(scored):
            rows = outcomes.scored
            precision, recall, _ = precision_recall_curve(outcomes.gold[rows], outcomes.scores[rows])
            kept = _thin(len(recall) - 1)  # the last point, recall 0, belongs to no score
            axes.plot(recall[kept], precision[kept], label=plot_name(name), drawstyle="steps-post", **_line_style(line))
            called = outcomes.called[rows] == 1
            if called.any():  # the threshold with its lowest score
                correct = int((outcomes.gold[rows] * called).sum())
                point = correct / max(int(outcomes.gold[rows].sum()), 1), correct / int(called.sum())
                mark: dict[str, Any] = {"color": COLOURS[line], "markeredgecolor": "black", "zorder": 3}
                axes.plot(*point, MARKERS[line], markersize=8, **mark)
                lowest = f"{outcomes.scores[rows][called].min():.2f}"
                axes.annotate(lowest, point, xytext=(6, 6), textcoords="offset points", fontsize=8)
            if line == 0:
                share = float(np.mean(outcomes.gold))
                head = f"share of hallucinated rows, {share:.0%}"
                axes.axhline(share, color=GREY, linewidth=0.8, linestyle=":", label=head)
        title = "Precision by recall; marks: the threshold of each, with its lowest score"
        label_axes(axes, title, "recall of hallucinated rows", "precision")
        reliabilities, axes = new_figure(6.4, 4.6)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":", label="calibrated")
        for line, (name, outcomes) in enumerate(scored):
            rows = outcomes.scored
            bins = reliability(outcomes.scores[rows], outcomes.gold[rows], NUM_BINS)
            x, y = [one.mean_score for one in bins], [one.hallucinated for one in bins]
            sizes = [8 + 200 * one.count / int(rows.sum()) for one in bins]
            axes.plot(x, y, label=plot_name(name), **_line_style(line))
            axes.scatter(x, y, s=sizes, color=COLOURS[line], marker=MARKERS[line])
        label_axes(axes, "Reliability", "P(hallucinated), mean of a bin", "share of hallucinated rows")
        return [_to_svg(precisions), _to_svg(reliabilities)]


def _line_style(line: int) -> dict[str, Any]:
    return {"color": COLOURS[line], "linewidth": 1.4, "linestyle": ("-", "--", "-.", ":")[line % 4]}


def _thin(count: int) -> NDArray[np.intp]:
    """Chooses at most 400 places of a curve, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, 400)).astype(np.intp))


def _to_svg(figure: "Figure") -> bytes:
    """Renders a figure under the settings `SVG`; the same data give the same bytes."""
    image = BytesIO()
    figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    return image.getvalue()
