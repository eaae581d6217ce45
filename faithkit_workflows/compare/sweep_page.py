"""The section of a sweep on the page: its plot, the ranked runs, the settings that mattered, and what must be said."""

import html
from collections.abc import Iterator, Sequence
from typing import Any

from faithkit.pages.page_parts import round_score
from faithkit.pages.tables import escape_terminal
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.sweep import Ranking, short_value
from faithkit_workflows.compare.sweep_report import SweepReport
from faithkit_workflows.compare.sweep_tables import repeating

MAX_NOTES = 12


def told_rankings(sweeps: Sequence[SweepReport]) -> Iterator[tuple[str, SweepReport, Ranking]]:
    """Gives each ranking with the name that its section has in the page."""
    pairs = [(sweep, ranking) for sweep in sweeps for ranking in sweep.ranked.rankings]
    for place, (sweep, ranking) in enumerate(pairs):
        yield f"sweep-{place}", sweep, ranking


def sweep_data(sweeps: Sequence[SweepReport]) -> list[dict[str, Any]]:
    """Gives the tables of each ranking, as page_files/report.js reads them."""
    return [_data(name, sweep, ranking) for name, sweep, ranking in told_rankings(sweeps)]


def _data(name: str, sweep: SweepReport, ranking: Ranking) -> dict[str, Any]:
    keys = list(dict.fromkeys(key for row in ranking.rows for key in row.settings))
    rows = [
        [
            place + 1,
            *(short_value(row.settings[key]) if key in row.settings else None for key in keys),
            _told(row.validation),
            _told(row.test),
            len(row.runs),
            ", ".join(one.run.name for one in row.runs),
        ]
        for place, row in enumerate(ranking.rows)
    ]
    effects = [
        [effect.key, effect.importance, effect.p_value, effect.corrected, value, _told(metric), metric.n]
        for effect in sweep.effects[ranking.monitor].settings
        for value, metric in effect.values.items()
    ]
    named = {"name": name, "keys": keys, "monitor": ranking.monitor, "test": ranking.test_name or "test"}
    return {**named, "rows": rows, "effects": effects}


def _told(metric: Metric | None) -> list[Any] | None:
    return None if metric is None else [round_score(metric.value), round_score(metric.low), round_score(metric.high)]


def sweep_notes(sweep: SweepReport, ranking: Ranking) -> str:
    """Writes what must be said of a ranking, and the command of its best run, as markup."""
    notes = [*sweep.ranked.notes, *sweep.effects[ranking.monitor].notes]
    told = [f"<li>{html.escape(escape_terminal(note, 400))}</li>" for note in notes[:MAX_NOTES]]
    if len(notes) > MAX_NOTES:
        told.append(f"<li>and {len(notes) - MAX_NOTES} more</li>")
    command = (
        f'<p class="command">Again: <code>{html.escape(escape_terminal(repeating(sweep.ranked, ranking)))}</code></p>'
    )
    return f'<ul class="note">{"".join(told)}</ul>\n{command}\n'
