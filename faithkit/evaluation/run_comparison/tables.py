"""The comparison of runs in the terminal: what differs in the settings, the metrics, and the paired differences."""

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.evaluation.metric import Metric
from faithkit.evaluation.run_comparison.paired import LABELS, Pair
from faithkit.evaluation.run_comparison.report import RunReport
from faithkit.evaluation.tables import figures_table, format_metric, format_p, harmless, texts_table

MAX_RUNS = 30  # of a table; the page has all
MAX_KEYS = 12
MAX_METRICS = 4
MAX_PAIRS = 15
MAX_CHARACTERS = 40  # of a value
# The metrics that a table has room for, the first of them that a test set has.
SHOWN = (
    *("macro_f1", "char_f1", "response_f1", "f1", "accuracy", "auroc", "critic_rate", "q2_nli", "bertscore_f1"),
    *("knowledge_f1", "bleu", "perplexity", "rate"),
)


def report_tables(report: RunReport, *, against: str | None = None) -> Iterator[Table]:
    """Makes the tables that a user sees first; the page has the rest.

    Args:
        against: A run; the pairs that it is in are shown, all others are left to the page.
    """
    numbers = {place: str(place + 1) for place in range(len(report.runs))}
    yield _settings_table(report, numbers)
    whole = [(part, own) for part, own in report.metrics.items() if part.count("/") == 1]
    yield from (_metrics_table(part, own, report, numbers) for part, own in whole)
    if report.pairs:
        yield _pairs_table(report, against)


def _settings_table(report: RunReport, numbers: Mapping[int, str]) -> Table:
    keys = list(report.settings)[:MAX_KEYS]
    table = texts_table("runs, and the settings that differ", ["", "run", "script, state", "settings"], no_wrap=[""])
    for place, run in enumerate(report.runs[:MAX_RUNS]):
        told = [f"{key}={report.settings[key][place]}" for key in keys if report.settings[key][place] != "–"]
        settings = "\n".join(harmless(line, MAX_CHARACTERS + 20) for line in told)
        about = f"{run.script or '-'}, {run.state}"
        table.add_row(numbers[place], Text(harmless(run.name, 60)), Text(about), Text(settings))
    left = [f"{len(report.runs) - MAX_RUNS:,} further runs"] if len(report.runs) > MAX_RUNS else []
    left += [f"{len(report.settings) - MAX_KEYS:,} further keys"] if len(report.settings) > MAX_KEYS else []
    if left:
        table.caption = Text(f"{' and '.join(left)}: html=FILE shows all")
    return table


def _metrics_table(
    part: str, own: Mapping[int, Mapping[str, Metric]], report: RunReport, numbers: Mapping[int, str]
) -> Table:
    having = {name for metrics in own.values() for name in metrics}
    names = [name for name in SHOWN if name in having][:MAX_METRICS] or sorted(having)[:MAX_METRICS]
    places = sorted(own, key=lambda place: -own[place][names[0]].value if names[0] in own[place] else float("inf"))
    table = figures_table(f"{part}: the best {names[0]} first", ["", "run"], names, min_width=2)
    for place in places[:MAX_RUNS]:
        cells = [_cell(own[place].get(name)) for name in names]
        table.add_row(numbers[place], Text(harmless(report.runs[place].name, 60)), *cells)
    left = len(places) - MAX_RUNS
    table.caption = Text(f"{left:,} further runs: html=FILE shows all" if left > 0 else "95% intervals over groups")
    return table


def _cell(metric: Metric | None) -> str:
    return format_metric(metric, digits=3 if metric is None or abs(metric.value) < 10 else 1)


def _pairs_table(report: RunReport, against: str | None) -> Table:
    pairs = [pair for pair in report.pairs if against is None or against in (pair.first, pair.second)]
    shown = sorted(pairs, key=lambda pair: pair.differences[headline(pair)].p_value)[:MAX_PAIRS]
    figures = ["difference", "p", "Holm", "right alone", "McNemar", "Holm"]
    table = figures_table("paired differences, first less second", ["test set, metric", "first, second"], figures)
    for pair in shown:
        name = headline(pair)
        difference = pair.differences[name]
        test = pair.mcnemar
        table.add_row(
            Text(f"{harmless(pair.test_set)} {name}"),
            Text(f"{harmless(pair.first, 60)}\n{harmless(pair.second, 60)}"),
            format_metric(difference.metric, digits=3),
            format_p(difference.p_value),
            format_p(pair.corrected[name]),
            f"{test.first_alone:,}\n{test.second_alone:,}",
            format_p(test.p_value),
            format_p(test.corrected),
        )
    lines = ["p: paired bootstrap over groups; McNemar's test takes rows for independent; right alone: rows"]
    lines.append(f"Holm: corrected for all {len(report.pairs):,} pairs of runs and test sets")
    if len(pairs) > len(shown):
        lines.append(f"{len(pairs) - len(shown):,} further pairs with a larger p: html=FILE shows all")
    table.caption = Text("\n".join(lines))
    return table


def headline(pair: Pair) -> str:
    """Chooses the metric that a pair is shown by: a tagger's characters, else the labels'."""
    return "char_f1" if "char_f1" in pair.differences else next(name for name in LABELS if name in pair.differences)


def told_problems(problems: Sequence[str], limit: int = 10) -> list[str]:
    """Shortens the list of what could not be compared for the terminal."""
    shown = [f"note: {harmless(problem, 300)}" for problem in problems[:limit]]
    more = len(problems) - limit
    return [*shown, f"note: {more:,} more; html=FILE shows all"] if more > 0 else shown
