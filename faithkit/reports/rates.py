"""The report of hallucination rates: each system by history and temperature, with intervals over dialogues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from faithkit.metrics.dialogue_rates import RATES, TURN_RATE, Turns, rate_metrics, rates
from faithkit.metrics.responses.judge_error import JudgeError, corrected_rate
from faithkit.pages.tables import figure, figures_table, format_p, harmless, percent
from faithkit.published.tables import published_table
from faithkit.reports.report import Report
from faithkit.statistics.intervals import Difference, Metric, Scored, paired_difference

GOLD, SELF = "gold", "self"
CORRECTED = f"{TURN_RATE}_corrected"
NUM_PUBLISHED = 3
CAPTION = (
    "history: gold, the data's own replies stand before a turn; self, the system's. dialogues: any turn is "
    "hallucinated. 95% intervals over dialogues"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One system with one kind of history, at one temperature.

    Args:
        temperature: None where none was set.
    """

    system: str
    history: str
    temperature: float | None = None

    @property
    def name(self) -> str:
        """Begins the names of its metrics, and names its files (with - for /)."""
        at = [] if self.temperature is None else [f"temperature_{self.temperature:g}"]
        return "/".join([self.system, self.history, *at])

    @property
    def file(self) -> str:
        """Names its files."""
        return self.name.replace("/", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """The rates of all cases.

    Args:
        metrics: By case and name.
        report: All of it, to be shown.
    """

    metrics: Mapping[Case, Mapping[str, Metric]]
    report: Report


def rates_report(
    cases: Mapping[Case, Turns],
    groups: Sequence[str],
    *,
    title: str,
    judged_by: str,
    error: JudgeError | None = None,
    dataset: str = "",
    notes: Sequence[str] = (),
    num_resamples: int = 1000,
) -> Rated:
    """Computes `small/gold/turn_rate` of each case, and `difference/small/turn_rate`, self histories less gold ones.

    Args:
        cases: The turns of each, the same ones in the same order.
        groups: Their dialogues.
        judged_by: The judge, as a reader knows it.
        error: How it errs on labelled rows: turn rates are corrected by it.
        dataset: Whose published figures stand beside; empty for none.
    """
    found: dict[Case, Mapping[str, Metric]] = {}
    said = list(notes)
    for case, turns in cases.items():
        scored = _score(case, turns, groups, error, num_resamples)
        found[case] = scored.metrics
        said += [note for note in scored.notes if note not in said]
    metrics = {f"{case.name}/{name}": metric for case, own in found.items() for name, metric in own.items()}
    differences = _differences(cases, num_resamples)
    for name, each in differences.items():
        for rate, one in each.items():
            metrics |= one.named(f"{name}/{rate}")
    if error is None:
        said.append("no rate is corrected: name rows that people labelled, benchmark.judge_labels=[{dataset, path}]")
    else:
        errors = error.metrics(num_resamples=num_resamples)
        metrics |= {f"judge/{name}": metric for name, metric in errors.items()}
        recall, false_alarms = (percent(errors[name]) for name in ("recall", "false_alarms"))
        calls = f"finds {recall}% of what is hallucinated and calls {false_alarms}% of the rest so"
        said.append(f"the judge {calls}, on {error.name}")
    tables = [_table(found, title=title, judged_by=judged_by, dataset=dataset)]
    if differences:
        tables.append(_differences_table(differences, title=title))
    return Rated(metrics=found, report=Report(metrics=metrics, tables=tuple(tables), notes=tuple(said)))


def _score(case: Case, turns: Turns, groups: Sequence[str], error: JudgeError | None, num_resamples: int) -> Scored:
    """Computes the rates of a case, the corrected one too where the judge's error is known."""
    scored = rate_metrics(turns, num_resamples=num_resamples)
    metrics, notes = dict(scored.metrics), list(scored.notes)
    num_replied = int(turns.replied.sum())
    if silent := len(turns.replied) - num_replied:
        notes.append(f"{case.name}: {silent:,} of {len(turns.replied):,} turns got no reply: left out")
    if unparsed := int((turns.replied & ~turns.judged).sum()):
        notes.append(f"{case.name}: {unparsed:,} of {num_replied:,} replies got no readable verdict")
    if error is not None and turns.judged.any():
        corrected = corrected_rate(turns.called, list(groups), error, num_resamples=num_resamples)
        metrics |= {CORRECTED: corrected.metric} if corrected.metric else {}
        notes += [f"{case.name}: {corrected.note}"] if corrected.note else []
    return Scored(metrics=metrics, notes=tuple(notes))


def _differences(cases: Mapping[Case, Turns], num_resamples: int) -> dict[str, dict[str, Difference]]:
    """Subtracts rates with gold histories from those with self ones, where a system has both, on the same resamples."""
    found: dict[str, dict[str, Difference]] = {}
    for case, turns in cases.items():
        other = cases.get(Case(system=case.system, history=GOLD, temperature=case.temperature))
        if case.history != SELF or other is None:
            continue
        name = "/".join(part for part in case.name.split("/") if part != SELF)
        every = paired_difference(turns.groups, rates(turns), rates(other), num_resamples=num_resamples)
        found[name] = {rate: every[rate] for rate in RATES if rate in every}
    return found


def _table(cases: Mapping[Case, Mapping[str, Metric]], *, title: str, judged_by: str, dataset: str) -> Table:
    at = any(case.temperature is not None for case in cases)
    names, figures = ["system", "history", *(["at"] if at else [])], ["turns", "dialogues"]
    table = figures_table(f"{title}: hallucinated, percent", names, figures, min_width=14, no_wrap=figures)
    for case, metrics in cases.items():
        cells = [harmless(case.system), case.history]
        cells += ["-" if case.temperature is None else f"{case.temperature:g}"] if at else []
        cells += [percent(metrics.get(name)) for name in RATES]
        table.add_row(*map(Text, cells))
        if (corrected := metrics.get(CORRECTED)) is not None:
            blank = [""] * (1 + at)
            table.add_row("  corrected", *blank, percent(corrected), "-")
    lines = [f"judged by {harmless(judged_by, 200)}", CAPTION + ("; at: temperature" if at else "")]
    if dataset == "halludial":
        published = published_table("halludial_rates")
        table.add_section()
        for row in sorted(published.rows, key=lambda row: row["gold_turn"])[:NUM_PUBLISHED]:
            for history in (GOLD, SELF):
                cells = [figure(row[f"{history}_{kind}"]) for kind in ("turn", "dialogue")]
                table.add_row(f"{row['system']} *", history, *(["1"] if at else []), *cells)
        lines.append(f"* the lowest of {published.citation}: {published.protocol}")
    table.caption = Text("\n".join(lines))
    return table


def _differences_table(differences: Mapping[str, Mapping[str, Difference]], *, title: str) -> Table:
    heads = ("turns", "p", "dialogues", "p")
    table = figures_table(f"{title}: self histories less gold ones, percent", "system", heads, min_width=14)
    for name, found in differences.items():
        cells = []
        for rate in RATES:
            one = found.get(rate)
            cells += [percent(one.metric), format_p(one.p_value)] if one else ["-", "-"]
        table.add_row(Text(harmless(name.replace("/temperature_", " at "))), *cells)
    table.caption = Text("paired, on the same resamples of dialogues; p two-sided, each by itself")
    return table
