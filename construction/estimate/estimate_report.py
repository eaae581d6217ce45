"""Estimates hallucination rates: by the detector, by the labels, and by both; chooses what to label next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

from construction.estimate.verdict_tables import PROBABILITY, WAVES, VerdictTable
from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.pages.page_tables import escape_terminal, format_metric, new_number_table
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.label_sampling import Wave, check_scores, inclusion_probabilities, sample_rows, write_waves
from faithkit.statistics.metric import PROPORTION, Metric
from faithkit.statistics.prediction_powered import (
    MIN_GROUPS,
    MIN_OF_EACH,
    Estimate,
    LabelPlan,
    LabelSums,
    Verdicts,
    estimate_sums,
)

ALL = "all"
MAX_PARTS = 50  # values of a column with separate rates; the others count together
FEW, BEYOND = "*", "**"  # mark an estimate by the labels alone
WHY_ALONE = {
    FEW: f"under {MIN_GROUPS} labelled groups or {MIN_OF_EACH} labels of either class, or groups all alike: "
    "the labels alone, exact",
    BEYOND: "with the detector beyond 0 or 100: the labels alone",
}
RATE, DETECTOR, LABELS, CORRECTED = "rate", "rate_detector", "rate_labels", "rate_corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRates:
    """The rates of all responses, of one value of the column `by`, or of its rarest values together.

    Args:
        estimate: None without labels.
    """

    name: str
    num_responses: int
    num_labels: int
    metrics: dict[str, Metric]
    estimate: Estimate | None


def name_of_others(number: int) -> str:
    """Names the values of a column that count together."""
    return f"the other {number:,} values" if number > 1 else "the other value"


def estimate_parts(table: VerdictTable, rows: Verdicts, *, power: float | None, num_resamples: int) -> list[PartRates]:
    """Estimates the rates of all rows, of each value of `by`, the most frequent first, and of the other values."""
    parts = [_estimate_part(ALL, table, rows, np.ones(len(table.ids), bool), power, num_resamples)]
    names, counts = np.unique(table.by, return_counts=True)
    shown, values = names[np.argsort(-counts, kind="stable")][:MAX_PARTS], np.array(table.by)
    for name in shown:
        parts.append(_estimate_part(str(name), table, rows, values == name, power, num_resamples))
    if len(names) > MAX_PARTS:
        others = name_of_others(len(names) - MAX_PARTS)
        parts.append(_estimate_part(others, table, rows, ~np.isin(values, shown), power, num_resamples))
    return parts


def _estimate_part(
    name: str, table: VerdictTable, rows: Verdicts, here: np.ndarray, power: float | None, num_resamples: int
) -> PartRates:
    part, called = rows.part(here), table.labels[here]
    groups = [group for group, kept in zip(table.groups, here, strict=True) if kept]
    metrics: dict[str, Metric] = {}
    judged = np.isfinite(called)
    if judged.any():
        judged_groups = Groups.of(group for group, kept in zip(groups, judged, strict=True) if kept)
        share = mean_statistic(judged_groups, {DETECTOR: called[judged]})
        metrics |= bootstrap(judged_groups, share, kinds=PROPORTION, num_resamples=num_resamples).metrics
    labelled = part.labelled
    found = combine_labels(name, LabelSums.of(part), metrics, power)
    both = labelled & judged
    truth = part.labels[both]
    if 0 < truth.sum() < len(truth) and len(np.unique(part.probability[labelled])) == 1:
        error = JudgeError.of_rows(truth, called[both], [g for g, kept in zip(groups, both, strict=True) if kept])
        if corrected := corrected_rate(called, groups, error, num_resamples=num_resamples).metric:
            found.metrics[CORRECTED] = corrected
    return found


def combine_labels(name: str, sums: LabelSums, metrics: Mapping[str, Metric], power: float | None) -> PartRates:
    """Adds the rates that use labels to those of the detector.

    Args:
        power: The weight of the detector; None tunes it.
    """
    estimate, metrics = None, dict(metrics)
    if sums.num_labels:
        estimate = estimate_sums(sums, power=power)
        metrics |= {RATE: estimate.metric, LABELS: estimate_sums(sums, power=0.0).metric}
    return PartRates(
        name=name,
        num_responses=round(sums.total[0]),
        num_labels=sums.num_labels,
        metrics=metrics,
        estimate=estimate,
    )


def estimate_table(parts: Sequence[PartRates], *, title: str, by: str | None) -> Table:
    """Makes the table of the rates in percent."""
    heads = ("responses", "labels", "detector", "labels alone", "estimate")
    table = new_number_table(f"{title}: hallucinated, percent", by or "", heads, min_width=8)
    marks = set[str]()
    for part in parts:
        mark = _mark(part.estimate)
        marks.add(mark)
        # Without its interval, which ignores the detector's errors; metrics.json has it.
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
    lines += [f"{mark} {why}" for mark, why in WHY_ALONE.items() if mark in marks]
    table.caption = Text("\n".join(lines))
    return table


def _mark(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return FEW if estimate.is_exact else BEYOND if estimate.is_beyond else ""


def plan_line(plan: LabelPlan, width: float, num_labels: int) -> str:
    """Describes how many labels an interval of a width takes.

    Args:
        num_labels: Those that there are.
    """
    points = f"an interval {100 * width:g} points wide"
    if plan.num_labels is None:
        return f"{points} needs more responses: with every response labelled it is {100 * plan.least_width:.1f} wide"
    more = max(0, plan.num_labels - num_labels)
    return f"{points} takes about {plan.num_labels:,} labels drawn at random: {more:,} more"


def choose_next(
    table: VerdictTable,
    rows: Verdicts,
    waves: Sequence[Wave],
    count: int,
    rule: str,
    *,
    seed: int,
    labels: Mapping[str, float],
) -> list[dict[str, object]]:
    """Chooses the rows of label_next.csv: those to label, then those that are labelled already.

    Raises:
        UserError: Too few are left, or the labels were drawn by other scores.
    """
    check_scores(rows.probability[rows.labelled], inclusion_probabilities(waves, table.scores)[rows.labelled])
    chosen, wave = sample_rows(table.scores, rows.labelled, count, rule, seed=seed)
    all_waves = [*waves, wave]
    probability, text = inclusion_probabilities(all_waves, table.scores), write_waves(all_waves)
    return [
        next_row(table.ids[i], labels.get(table.ids[i]), float(table.scores[i]), float(probability[i]), text)
        | dict(table.texts[i])
        for i in (*chosen.tolist(), *np.flatnonzero(rows.labelled).tolist())
    ]


def next_row(name: str, label: float | None, score: float, probability: float, waves: str) -> dict[str, object]:
    """Makes a row of label_next.csv, without the texts."""
    shown = "" if label is None else HALLUCINATED if label else FAITHFUL
    return {"id": name, "label": shown, "score": round(score, 6), PROBABILITY: probability, WAVES: waves}
