"""Formats the comparison of runs for the terminal: sweeps, settings, metrics, and paired differences."""

import shlex
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.pages.page_tables import (
    escape_terminal,
    format_metric,
    format_p,
    new_number_table,
    new_text_table,
    print_tables,
)
from faithkit.reports.write_reports import suggest_by_verdict
from faithkit.runs.reading import TRAIN
from faithkit.scores.board import Pair, conclude_by
from faithkit.scores.measures import is_lower_better
from faithkit.statistics.bootstrap import read_conclusions
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.comparison import MISSING, Comparison, RankedSweep, Ranking, main_metric

MAX_RUNS = 30  # of a table; the page has all
MAX_SWEEP_ROWS = 15
MAX_SETTINGS = 6
MAX_PAIRS = MAX_PROBLEMS = 10
MAX_CHARACTERS = 60  # of a name or a setting
# The most informative settings, by the last part of their keys, and the metrics of which the first few are shown.
FIRST_SETTINGS = ("experiment", "name", "checkpoint", "predictions", "weights", "objective", "lr", "seed", "path")
SHOWN = (
    *("char_f1", "macro_f1", "response_f1", "f1", "accuracy", "auroc", "critic_rate", "q2_nli", "bertscore_f1"),
    *("knowledge_f1", "bleu", "perplexity", "rate"),
)


def print_comparison(comparison: Comparison, *, against: str | None = None) -> None:
    """Prints the tables, the best runs of sweeps, the first problems, and the conclusions; the page has the rest.

    Args:
        against: A run; only the pairs with it are shown.
    """
    tables = [table for sweep in comparison.sweeps for table in ranking_tables(sweep)]
    ranks = {name: rank for rank, name in enumerate(FIRST_SETTINGS)}
    last = {key: ranks.get(key.rpartition(".")[2], len(ranks)) for key in comparison.settings}
    keys = sorted(comparison.settings, key=lambda key: (last[key], key.count("."), key))
    table = new_text_table("runs, and the settings that differ", ["run", "script", "settings"], no_wrap=["script"])
    for place, run in enumerate(comparison.runs[:MAX_RUNS]):
        given = {key: comparison.settings[key][place] for key in keys}
        settings = [f"{key}={value}" for key, value in given.items() if value != MISSING]
        lines = [_shorten(line) for line in settings[:MAX_SETTINGS]]
        if len(settings) > MAX_SETTINGS:
            lines.append(f"and {len(settings) - MAX_SETTINGS:,} more")
        cells = [Text(_shorten(run.name)), Text(f"{run.script or '-'}\n{run.state}"), Text("\n".join(lines))]
        table.add_row(*cells, end_section=True)
    table.caption = Text(_further_runs(len(comparison.runs)))
    tables.append(table)
    for part, metrics in comparison.metrics.items():
        if part.count("/") != 1:
            continue
        values = {name: [of_run[name].value for of_run in metrics.values() if name in of_run] for name in SHOWN}
        if values["f1"]:  # which is the same for responses
            values["response_f1"] = []
        known = sorted({name for of_run in metrics.values() for name in of_run})
        first, *_ = names = ([name for name in SHOWN if any(values[name])] or known)[:3]
        end, sign = ("lowest", 1) if is_lower_better(first) else ("highest", -1)
        order = {n: sign * found[first].value if first in found else float("inf") for n, found in metrics.items()}
        rows = (
            [_shorten(comparison.runs[n].name), *(_format(metrics[n].get(name)) for name in names)]
            for n in sorted(order, key=order.__getitem__)[:MAX_RUNS]
        )
        lines = [_further_runs(len(order)) or "95% intervals over groups"]
        title = f"{part}: the {end} {first} first"
        tables.append(new_number_table(title, "run", names, rows, caption=lines, min_width=16))
    by_set: dict[str, list[Pair]] = {}
    for pair in comparison.pairs:
        if against is None or against in (pair.first, pair.second):
            by_set.setdefault(pair.test_set, []).append(pair)
    tables += [_pairs_table(name, pairs, len(comparison.pairs)) for name, pairs in by_set.items()]
    print_tables(*tables)
    lines = [line for sweep in comparison.sweeps for line in sweep_lines(sweep)]
    lines += [f"note: {escape_terminal(problem, 300)}" for problem in comparison.problems[:MAX_PROBLEMS]]
    if (left_out := len(comparison.problems) - MAX_PROBLEMS) > 0:
        lines.append(f"note: {left_out:,} more; the page has all")
    for line in (*lines, *conclusion_lines(comparison, against=against)):
        print(line)


def ranking_tables(sweep: RankedSweep) -> Iterator[Table]:
    """Builds a table of ranked runs for each metric."""
    for ranking in sweep.rankings:
        direction = "lowest" if ranking.is_lower_better else "highest"
        has_seeds = any(len(row.runs) > 1 for row in ranking.rows)
        lines = ["ranked by validation; the test figure is not used"]
        if has_seeds:
            lines[0] += ". Means with 95% intervals over seeds (Student's t)"
        if len(ranking.rows) > MAX_SWEEP_ROWS:
            lines.append(f"{len(ranking.rows) - MAX_SWEEP_ROWS:,} further rows: the page has all")
        yield new_number_table(
            f"sweep {sweep.name}: the {direction} {ranking.monitor} first",
            "settings",
            ["validation", ranking.test_name or "test", *["seeds"] * has_seeds],
            (
                [_shorten(row.name), _format(row.validation), _format(row.test), *[str(len(row.runs))] * has_seeds]
                for row in ranking.rows[:MAX_SWEEP_ROWS]
            ),
            caption=lines,
            min_width=16,
        )


def sweep_lines(sweep: RankedSweep) -> Iterator[str]:
    """Formats the notes on a sweep, and the command that repeats its best run."""
    yield from (escape_terminal(f"note: {note}", 400) for note in sweep.notes)
    for ranking in sweep.rankings:
        yield f"best: {escape_terminal(ranking.runs[0].run.name)}: {best_run_command(sweep, ranking)}"


def best_run_command(sweep: RankedSweep, ranking: Ranking) -> str:
    """Formats the command that repeats the best run of a ranking."""
    return shlex.join(["faithkit", "train", *sweep.record.command(ranking.runs[0].job)])


def _pairs_table(name: str, pairs: Sequence[Pair], num_all: int) -> Table:
    shown = sorted(pairs, key=lambda pair: pair.differences[main_metric(pair)].p_value)[:MAX_PAIRS]
    heads = ["difference", "p (Holm)", "only one right", "McNemar's p (Holm)"]
    title = f"{name}: paired differences of {main_metric(shown[0])}"
    table = new_number_table(title, "first\nminus second", heads, min_width=16)
    for pair in shown:
        metric, test = main_metric(pair), pair.mcnemar
        difference = pair.differences[metric]
        table.add_row(
            Text(f"{_shorten(pair.first)}\n{_shorten(pair.second)}"),
            format_metric(difference.metric, digits=3),
            f"{format_p(difference.p_value)}\n({format_p(pair.corrected[metric])})",
            f"{test.first_alone:,}\n{test.second_alone:,}" if test else "-",
            f"{format_p(test.p_value)}\n({format_p(test.corrected)})" if test else "-",
            end_section=True,
        )
    lines = [
        "p: a bootstrap over groups; McNemar's test of the rows where only one is right assumes independent rows. "
        f"In brackets: corrected by Holm for all {num_all:,} comparisons here"
    ]
    if len(pairs) > len(shown):
        lines.append(f"{len(pairs) - len(shown):,} further pairs with a larger p: the page has all")
    table.caption = Text("\n".join(lines))
    return table


def conclusion_lines(comparison: Comparison, *, against: str | None = None) -> Iterator[str]:
    """States how each run compares with its baselines and the best system with the others, then the next command.

    Args:
        against: A run; only the pairs with it are stated.
    """
    for run in comparison.runs[:MAX_RUNS]:
        for name, found in read_conclusions(run.meta).items():
            yield escape_terminal(f"{run.name}, {name}: {found.text}")
    best: dict[str, str] = {}  # the first pair of a test set has its best system
    for pair in comparison.pairs:
        if (against or best.setdefault(pair.test_set, pair.first)) in (pair.first, pair.second):
            name = main_metric(pair)
            conclusion = conclude_by(name, pair.first, pair.second, pair.differences[name])
            yield escape_terminal(f"{pair.test_set}: {conclusion.text}")
    if comparison.sets:
        run = comparison.sets[0].systems[0].run
        checkpoint = str(run.folder if run.script == TRAIN else run.config.get("checkpoint") or "")
        for purpose, command in suggest_by_verdict(run.meta, checkpoint):
            yield escape_terminal(f"{purpose}: {command}")


def _format(metric: Metric | None) -> str:
    return format_metric(metric, digits=3 if metric is None or abs(metric.value) < 10 else 1)


def _further_runs(num_runs: int) -> str:
    left_out = num_runs - MAX_RUNS
    return f"{left_out:,} further runs: the page has all" if left_out > 0 else ""


def _shorten(name: str) -> str:
    return escape_terminal(name, MAX_CHARACTERS)
