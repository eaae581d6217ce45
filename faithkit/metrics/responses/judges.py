"""Several judges of the same responses, each beside its own error on labelled rows.

One critic's rate is only as good as the critic. A judge of another kind (an NLI model, counted words), which errs in
other ways, tells which differences do not depend on the judge.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from faithkit.detector import Detector
from faithkit.metrics.responses.critic_rate import critic_rate
from faithkit.metrics.responses.judge_error import JudgeError, corrected_rate
from faithkit.pages.tables import figures_table, harmless, percent
from faithkit.records import Example
from faithkit.statistics.intervals import Metric, Values

CRITIC = "critic"  # the judge whose rate is the headline; its columns are those of `critic_rate`


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A detector that judges responses.

    Args:
        key: Begins the names of its metrics: `<key>_rate`, `<key>_rate_corrected`.
        name: The judge, as a table names it.
        error: How it errs on labelled rows; None where there are none.
    """

    key: str
    name: str
    detector: Detector
    error: JudgeError | None = None


def judge_columns(
    judges: Sequence[Judge], examples: Sequence[Example], responses: Sequence[str], *, progress: bool = False
) -> dict[str, Values]:
    """Gives each judge's verdicts and scores: `<key>_rate` and `<key>_score` [N]."""
    columns: dict[str, Values] = {}
    for judge in judges:
        found = critic_rate(judge.detector, examples, responses, progress=progress)
        columns |= {name.replace(CRITIC, judge.key, 1): column for name, column in found.items()}
    return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """Corrected rates and errors by metric name, and what is shown of them."""

    metrics: dict[str, Metric]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def judge_report(
    judges: Sequence[Judge],
    examples: Sequence[Example],
    systems: Mapping[str, tuple[Mapping[str, Values], Mapping[str, Metric]]],
    *,
    title: str,
    num_resamples: int = 1000,
) -> JudgeReport:
    """Corrects every judge's rate of every system by the judge's own error.

    Args:
        systems: By name columns and metrics of the responses; the first system's metrics have no prefix.
    """
    if not judges:
        return JudgeReport(metrics={}, tables=(), notes=())
    metrics: dict[str, Metric] = {}
    notes: list[str] = []
    heads = ("as it calls them", "corrected by its error")
    rates = figures_table(f"{title}: responses called hallucinated, percent", ["judge", "responses"], heads)
    groups = [example.group for example in examples]
    for judge in judges:
        for number, (system, (columns, measured)) in enumerate(systems.items()):
            rate, metric = f"{judge.key}_rate", None
            if rate not in measured:
                continue
            if judge.error is not None:
                corrected = corrected_rate(columns[rate], groups, judge.error, num_resamples=num_resamples)
                metric = corrected.metric
                prefix = "" if number == 0 else f"{system}/"
                metrics |= {f"{prefix}{rate}_corrected": metric} if metric else {}
                notes += [f"{judge.name}, {system}: {corrected.note}"] if corrected.note else []
            rates.add_row(Text(harmless(judge.name)), system, percent(measured[rate]), percent(metric))
    rates.caption = Text("corrected: if the judge errs on these responses as on its labelled rows; 95% intervals")
    errors = list(_error_rows(judges, num_resamples))
    for judge, found in errors:
        metrics |= {f"judge/{judge.key}_{name}": metric for name, metric in found.items()}
    if not errors:
        notes.append("no rate is corrected: name rows that people labelled, benchmark.judge_labels=[{dataset, path}]")
    tables = (rates, _error_table(errors, title)) if errors else (rates,)
    return JudgeReport(metrics=metrics, tables=tables, notes=tuple(notes))


def _error_rows(judges: Sequence[Judge], num_resamples: int) -> Iterator[tuple[Judge, dict[str, Metric]]]:
    for judge in judges:
        if judge.error is not None:
            yield judge, judge.error.metrics(num_resamples=num_resamples)


def _error_table(errors: Sequence[tuple[Judge, Mapping[str, Metric]]], title: str) -> Table:
    heads = ("of hallucinated found", "of faithful called so", "people", "judge")
    table = figures_table(f"{title}: the judges against people's labels, percent", "judge", heads)
    lines = []
    for judge, found in errors:
        assert judge.error is not None
        hit, missed, alarms, passed = judge.error.table.sum(axis=0)
        size = hit + missed + alarms + passed
        shares = [f"{100 * part / size:.1f}" for part in (hit + missed, hit + alarms)]
        table.add_row(Text(harmless(judge.name)), percent(found["recall"]), percent(found["false_alarms"]), *shares)
        lines.append(f"{judge.name}: on {judge.error.name}")
    table.caption = Text(
        "\n".join(map(harmless, lines)) + "\npeople, judge: the share that each calls hallucinated there"
    )
    return table
