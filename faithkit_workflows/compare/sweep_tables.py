"""Sweeps in the terminal: the ranked runs, and the settings by how much they mattered."""

import shlex
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from faithkit.pages.tables import escape_terminal, format_metric, format_p, new_number_table
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.sweep import RankedSweep, Ranking
from faithkit_workflows.compare.sweep_settings import Effects

MAX_ROWS = 15
MAX_VALUES = 6
MAX_CHARACTERS = 60


def ranking_tables(sweep: RankedSweep) -> Iterator[Table]:
    """Makes a table for each metric that runs are ranked by."""
    for ranking in sweep.rankings:
        yield _ranking_table(sweep, ranking)


def _ranking_table(sweep: RankedSweep, ranking: Ranking) -> Table:
    way = "lowest" if ranking.is_lower_better else "highest"
    has_seeds = any(len(row.runs) > 1 for row in ranking.rows)
    title = f"sweep {sweep.name}: the {way} {ranking.monitor} first"
    figures = ["validation", ranking.test_name or "test", *(["seeds"] if has_seeds else [])]
    table = new_number_table(title, "settings", figures, min_width=16)
    for row in ranking.rows[:MAX_ROWS]:
        counted = [str(len(row.runs))] if has_seeds else []
        table.add_row(Text(escape_terminal(row.name, MAX_CHARACTERS)), told(row.validation), told(row.test), *counted)
    lines = ["validation ranks; the test figure stands beside it"]
    if has_seeds:
        lines[0] += ". Means with 95% intervals over seeds (Student's t)"
    if len(ranking.rows) > MAX_ROWS:
        lines.append(f"{len(ranking.rows) - MAX_ROWS:,} further ones: the page has all")
    table.caption = Text("\n".join(lines))
    return table


def told(metric: Metric | None) -> str:
    """Formats a figure of a training."""
    return format_metric(metric, digits=3 if metric is None or abs(metric.value) < 10 else 1)


def told_best(sweep: RankedSweep) -> list[str]:
    """Gives the notes on a sweep, and the command that repeats its best run."""
    lines = [escape_terminal(f"note: {note}", 400) for note in sweep.notes]
    for ranking in sweep.rankings:
        best = ranking.runs[0]
        lines.append(f"best: {escape_terminal(best.run.name)}: {repeating(sweep, ranking)}")
    return lines


def repeating(sweep: RankedSweep, ranking: Ranking) -> str:
    """Writes the command that repeats the best run of a ranking."""
    return shlex.join(["faithkit", "train", *sweep.record.command(ranking.runs[0].job)])


def effects_table(sweep: RankedSweep, ranking: Ranking, effects: Effects) -> Table | None:
    """Makes the table of the settings by how much they mattered; None where nothing can be told."""
    if not effects.settings:
        return None
    title = f"sweep {sweep.name}: which settings mattered for {ranking.monitor}"
    table = new_number_table(title, "setting", ["importance", "p (Holm)", "mean by value (runs)"], min_width=12)
    for one in effects.settings:
        ordered = sorted(one.values.items(), key=lambda item: item[1].value, reverse=not ranking.is_lower_better)
        lines = [f"{escape_terminal(name, 24)}: {told(metric)} ({metric.n})" for name, metric in ordered[:MAX_VALUES]]
        if len(ordered) > MAX_VALUES:
            lines.append(f"and {len(ordered) - MAX_VALUES} more")
        share = "-" if one.importance is None else f"{one.importance:.0%}"
        p = f"{format_p(one.p_value)}\n({format_p(one.corrected)})"
        table.add_row(Text(escape_terminal(one.key, MAX_CHARACTERS)), share, p, "\n".join(lines), end_section=True)
    table.caption = Text(
        "importance: fANOVA's share of the variance; p: a permutation test, in brackets by Holm;\n"
        "means over runs whose other settings differ, with 95% intervals (Student's t)"
    )
    return table
