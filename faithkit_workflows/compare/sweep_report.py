"""Everything that terminal and page show of a sweep, worked out once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from faithkit.runs.run import Run
from faithkit_workflows.compare.sweep import RankedSweep, sweeps_of
from faithkit_workflows.compare.sweep_settings import Effects, effects_of
from faithkit_workflows.compare.sweep_tables import effects_table, ranking_tables, told_best


@dataclass(frozen=True, slots=True)
class SweepReport:
    """A sweep with its runs ranked, and by each metric that ranks them the effects of its settings."""

    ranked: RankedSweep
    effects: Mapping[str, Effects]


def report_sweeps(runs: Sequence[Run]) -> tuple[list[SweepReport], list[str]]:
    """Reports the sweeps that runs come from; also what could not be read."""
    found, problems = sweeps_of(runs)
    reports = []
    for sweep in found:
        effects = {one.monitor: effects_of(one, is_adaptive=sweep.is_search) for one in sweep.rankings}
        reports.append(SweepReport(sweep, effects))
    return reports, problems


def sweep_tables(sweeps: Sequence[SweepReport]) -> Iterator[Table]:
    """Makes the tables of the terminal: the ranked runs, then the settings by how much they mattered."""
    for sweep in sweeps:
        yield from ranking_tables(sweep.ranked)
        for ranking in sweep.ranked.rankings:
            if (table := effects_table(sweep.ranked, ranking, sweep.effects[ranking.monitor])) is not None:
                yield table


def sweep_lines(sweeps: Sequence[SweepReport]) -> Iterator[str]:
    """Gives what stands below the tables: notes, and how to repeat the best run."""
    for sweep in sweeps:
        yield from told_best(sweep.ranked)
        for effects in sweep.effects.values():
            yield from (f"note: {note}" for note in effects.notes)
