"""The estimate of a hallucination rate: beside the detector's own, the labels' and the one corrected by its error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table as RichTable
from rich.text import Text

from construction.estimate.verdict_tables import CHANCE, WAVES, Table
from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.pages.tables import escape_terminal, format_metric, new_number_table
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.label_sampling import Wave, check_scores, inclusion_probabilities, sample_rows, write_waves
from faithkit.statistics.metric import PROPORTION, Metric
from faithkit.statistics.prediction_powered import MIN_GROUPS, MIN_OF_EACH, Estimate, LabelPlan, Verdicts, estimate_rate

ALL = "all"
MAX_PARTS = 50  # values of a column that are told apart: the others count together
FEW, BEYOND = "*", "**"  # mark an estimate that is the labels alone
WHY_ALONE = {
    FEW: f"under {MIN_GROUPS} labelled groups or {MIN_OF_EACH} labels of either class, or groups all alike: "
    "the labels alone, exact",
    BEYOND: "with the detector beyond 0 or 100: the labels alone",
}
RATE, DETECTOR, LABELS, CORRECTED = "rate", "rate_detector", "rate_labels", "rate_corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rates of all responses, of one value of the column `by`, or of its rarest values together.

    Args:
        num_labels: The labelled responses.
        estimate: None without labels, and where it was not worked out.
    """

    name: str
    num_responses: int
    num_labels: int
    metrics: dict[str, Metric]
    estimate: Estimate | None


def others_name(number: int) -> str:
    """Names the values of a column that are not told apart."""
    return f"the other {number:,} values" if number > 1 else "the other value"


def parts_of(table: Table, rows: Verdicts, *, power: float | None, num_resamples: int) -> list[Part]:
    """The rates of all, then of each value of `by`, the most frequent first, then of those beyond `MAX_PARTS`."""
    found = [_part(ALL, table, rows, np.ones(len(table.ids), bool), power, num_resamples)]
    names, counts = np.unique(table.by, return_counts=True)
    shown, values = names[np.argsort(-counts, kind="stable")][:MAX_PARTS], np.array(table.by)
    for name in shown:
        found.append(_part(str(name), table, rows, values == name, power, num_resamples))
    if len(names) > MAX_PARTS:
        rest = ~np.isin(values, shown)
        found.append(_part(others_name(len(names) - MAX_PARTS), table, rows, rest, power, num_resamples))
    return found


def _part(name: str, table: Table, rows: Verdicts, here: np.ndarray, power: float | None, num_resamples: int) -> Part:
    part = rows.part(here)
    called, groups = table.called[here], [group for group, kept in zip(table.groups, here, strict=True) if kept]
    metrics: dict[str, Metric] = {}
    judged = np.isfinite(called)
    if judged.any():
        own = Groups.of(group for group, kept in zip(groups, judged, strict=True) if kept)
        scored = bootstrap(
            own, mean_statistic(own, {DETECTOR: called[judged]}), kinds=PROPORTION, num_resamples=num_resamples
        )
        metrics |= scored.metrics
    count, num_labels = int(here.sum()), int(part.labelled.sum())
    if not num_labels:
        return Part(name=name, num_responses=count, num_labels=0, metrics=metrics, estimate=None)
    estimate = estimate_rate(part, power=power)
    metrics |= {RATE: estimate.metric, LABELS: estimate_rate(part, power=0.0).metric}
    both = part.labelled & judged
    truth = part.labels[both]
    if 0 < truth.sum() < len(truth) and len(np.unique(part.probability[part.labelled])) == 1:
        error = JudgeError.of_rows(truth, called[both], [g for g, kept in zip(groups, both, strict=True) if kept])
        corrected = corrected_rate(called, groups, error, num_resamples=num_resamples).metric
        metrics |= {CORRECTED: corrected} if corrected else {}
    return Part(name=name, num_responses=count, num_labels=num_labels, metrics=metrics, estimate=estimate)


def estimate_table(parts: Sequence[Part], *, title: str, by: str | None) -> RichTable:
    """Shows the rates in percent."""
    heads = ("responses", "labels", "detector", "labels alone", "estimate")
    table = new_number_table(f"{title}: hallucinated, percent", by or "", heads, min_width=8)
    marks = set[str]()
    for part in parts:
        one = part.estimate
        mark = _mark(one)
        marks.add(mark)
        # The detector's own interval knows nothing of its errors: it stands in metrics.json alone.
        called = part.metrics.get(DETECTOR)
        cells = [f"{100 * called.value:.1f}" if called else "-"]
        cells += [format_metric(part.metrics.get(name), digits=1, scale=100) for name in (LABELS, RATE)]
        cells[2] += f" {mark}" if mark else ""
        style = "bold" if part.name == ALL else ""
        row = (escape_terminal(part.name, 60), f"{part.num_responses:,}", f"{part.num_labels:,}", *cells)
        table.add_row(*(Text(cell, style=style) for cell in row))
    whole = parts[0]
    lines = ["95% intervals over groups; estimate: of the system, with the detector's errors in it"]
    if whole.estimate and not _mark(whole.estimate):
        lines.append(f"weight of the detector: {whole.estimate.power:.2f}, as it follows the labels")
    if whole.estimate and (corrected := whole.metrics.get(CORRECTED)):
        shown = format_metric(corrected, digits=1, scale=100)
        lines.append(f"corrected by its recall and false alarms (Rogan & Gladen), of all: {shown}")
    for mark, why in WHY_ALONE.items():
        if mark in marks:
            lines.append(f"{mark} {why}")
    if any(part.num_labels and part.estimate is None for part in parts):
        lines.append("over shards the other values have no estimate together: count by a column of fewer values")
    table.caption = Text("\n".join(lines))
    return table


def _mark(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return FEW if estimate.is_exact else BEYOND if estimate.is_beyond else ""


def plan_line(plan: LabelPlan, width: float, present: int) -> str:
    """Says how many labels a width takes."""
    points = f"an interval {100 * width:g} points wide"
    if plan.num_labels is None:
        least = f"with every response labelled it is {100 * plan.least_width:.1f} wide"
        return f"{points} needs more responses: {least}"
    more = max(0, plan.num_labels - present)
    return f"{points} takes about {plan.num_labels:,} labels drawn at random: {more:,} more"


def next_rows(
    table: Table,
    rows: Verdicts,
    waves: Sequence[Wave],
    count: int,
    rule: str,
    *,
    seed: int,
    labels: Mapping[str, float],
) -> list[dict[str, object]]:
    """The rows of label_next.csv: those to label, without a label, then those that are labelled already.

    Raises:
        UserError: Fewer are left than are wanted, or the labels were drawn by other scores.
    """
    check_scores(rows.probability[rows.labelled], inclusion_probabilities(waves, table.scores)[rows.labelled])
    chosen, wave = sample_rows(table.scores, rows.labelled, count, rule, seed=seed)
    every = [*waves, wave]
    chance, text = inclusion_probabilities(every, table.scores), write_waves(every)
    order = [*chosen.tolist(), *np.flatnonzero(rows.labelled).tolist()]
    found: list[dict[str, object]] = []
    for place in order:
        name = table.ids[place]
        own = next_row(name, labels.get(name), float(table.scores[place]), float(chance[place]), text)
        found.append(own | dict(table.shown[place]))
    return found


def next_row(name: str, label: float | None, score: float, chance: float, waves: str) -> dict[str, object]:
    """A row of label_next.csv, without the texts."""
    told = {1.0: HALLUCINATED, 0.0: FAITHFUL}.get(-1.0 if label is None else label, "")
    return {"id": name, "label": told, "score": round(score, 6), CHANCE: chance, WAVES: waves}
