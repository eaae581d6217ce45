"""The comparison of runs in the terminal: what differs in the settings, the metrics, and the paired differences."""

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.pages.tables import escape_terminal, format_metric, format_p, new_number_table, new_text_table
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.paired import LABELS, Pair
from faithkit_workflows.compare.report import RunReport
from faithkit_workflows.compare.settings import MISSING
from faithkit_workflows.compare.sweep_report import sweep_tables

MAX_RUNS = 30  # of a table; the page has all
MAX_SETTINGS = 6
MAX_METRICS = 3
MAX_PAIRS = 10
MAX_CHARACTERS = 60  # of a name or a setting
# The settings that say most, by the last part of their keys, and the metrics; the first that a run has are shown.
TELLING = ("experiment", "name", "checkpoint", "predictions", "weights", "objective", "lr", "seed", "path")
SHOWN = (
    *("char_f1", "macro_f1", "response_f1", "f1", "accuracy", "auroc", "critic_rate", "q2_nli", "bertscore_f1"),
    *("knowledge_f1", "bleu", "perplexity", "rate"),
)


def report_tables(report: RunReport, *, against: str | None = None) -> Iterator[Table]:
    """Makes the tables that a user sees first; the page has the rest.

    Args:
        against: A run; the pairs that it is in are shown, all others are left to the page.
    """
    yield from sweep_tables(report.sweeps)
    yield _settings_table(report)
    for part, own in report.metrics.items():
        if part.count("/") == 1:
            yield _metrics_table(part, own, report)
    for name in dict.fromkeys(pair.test_set for pair in report.pairs):
        own_pairs = [pair for pair in report.pairs if pair.test_set == name]
        if against is not None:
            own_pairs = [pair for pair in own_pairs if against in (pair.first, pair.second)]
        if own_pairs:
            yield _pairs_table(name, own_pairs, len(report.pairs))


def _settings_table(report: RunReport) -> Table:
    keys = sorted(report.settings, key=_rank)
    table = new_text_table("runs, and the settings that differ", ["run", "script", "settings"], no_wrap=["script"])
    for place, run in enumerate(report.runs[:MAX_RUNS]):
        told = [f"{key}={report.settings[key][place]}" for key in keys if report.settings[key][place] != MISSING]
        lines = [escape_terminal(line, MAX_CHARACTERS) for line in told[:MAX_SETTINGS]]
        if len(told) > MAX_SETTINGS:
            lines.append(f"and {len(told) - MAX_SETTINGS:,} more")
        cells = [Text(_short(run.name)), Text(f"{run.script or '-'}\n{run.state}"), Text("\n".join(lines))]
        table.add_row(*cells, end_section=True)
    left = len(report.runs) - MAX_RUNS
    table.caption = Text(f"{left:,} further runs: the page has all" if left > 0 else "")
    return table


def _rank(key: str) -> tuple[int, int, str]:
    last = key.rpartition(".")[2]
    return TELLING.index(last) if last in TELLING else len(TELLING), key.count("."), key


def _metrics_table(part: str, own: Mapping[int, Mapping[str, Metric]], report: RunReport) -> Table:
    values = {name: [metrics[name].value for metrics in own.values() if name in metrics] for name in SHOWN}
    if values["f1"]:  # the same, of a response
        values["response_f1"] = []
    names = [name for name in SHOWN if any(values[name])][:MAX_METRICS]
    names = names or sorted({name for metrics in own.values() for name in metrics})[:MAX_METRICS]
    first = names[0]
    places = sorted(own, key=lambda place: -own[place][first].value if first in own[place] else float("inf"))
    table = new_number_table(f"{part}: the highest {first} first", "run", names, min_width=16)
    for place in places[:MAX_RUNS]:
        table.add_row(Text(_short(report.runs[place].name)), *(_cell(own[place].get(name)) for name in names))
    left = len(places) - MAX_RUNS
    table.caption = Text(f"{left:,} further runs: the page has all" if left > 0 else "95% intervals over groups")
    return table


def _cell(metric: Metric | None) -> str:
    return format_metric(metric, digits=3 if metric is None or abs(metric.value) < 10 else 1)


def _pairs_table(name: str, pairs: Sequence[Pair], num_all: int) -> Table:
    shown = sorted(pairs, key=lambda pair: pair.differences[headline(pair)].p_value)[:MAX_PAIRS]
    figures = ["difference", "p (Holm)", "alone right", "McNemar's p (Holm)"]
    title = f"{name}: paired differences of {headline(shown[0])}"
    table = new_number_table(title, "first\nless second", figures, min_width=16)
    for pair in shown:
        metric, test = headline(pair), pair.mcnemar
        difference = pair.differences[metric]
        table.add_row(
            Text(f"{_short(pair.first)}\n{_short(pair.second)}"),
            format_metric(difference.metric, digits=3),
            f"{format_p(difference.p_value)}\n({format_p(pair.corrected[metric])})",
            f"{test.first_alone:,}\n{test.second_alone:,}",
            f"{format_p(test.p_value)}\n({format_p(test.corrected)})",
            end_section=True,
        )
    lines = ["p: a bootstrap over groups; McNemar's test of the rows that one alone has right takes rows for"]
    lines[0] += f" independent. In brackets: corrected by Holm for all {num_all:,} comparisons here"
    if len(pairs) > len(shown):
        lines.append(f"{len(pairs) - len(shown):,} further pairs with a larger p: the page has all")
    table.caption = Text("\n".join(lines))
    return table


def headline(pair: Pair) -> str:
    """Chooses the metric that a pair is shown by: a tagger's characters, else the labels'."""
    return "char_f1" if "char_f1" in pair.differences else next(name for name in LABELS if name in pair.differences)


def told_problems(problems: Sequence[str], limit: int = 10) -> list[str]:
    """Shortens the list of what could not be compared for the terminal."""
    shown = [f"note: {escape_terminal(problem, 300)}" for problem in problems[:limit]]
    more = len(problems) - limit
    return [*shown, f"note: {more:,} more; the page has all"] if more > 0 else shown


def _short(name: str) -> str:
    return escape_terminal(name, MAX_CHARACTERS)
