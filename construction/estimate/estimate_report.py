"""Estimates hallucination rates: by the detector, by the labels, and by both; chooses what to label next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from construction.estimate.labels import PROBABILITY, WAVES, Labels
from construction.estimate.verdict_tables import VerdictTable
from faithkit.errors import UserError
from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.pages.page_tables import escape_terminal, format_metric, new_number_table
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.group_counts import count_group_kinds, proportion_from_counts
from faithkit.statistics.label_sampling import Wave, check_scores, inclusion_probabilities, sample_rows, write_waves
from faithkit.statistics.metric import Metric
from faithkit.statistics.prediction_powered import (
    MIN_GROUPS,
    MIN_OF_EACH,
    Estimate,
    LabelPlan,
    Verdicts,
    estimate_rate,
)
from faithkit.statistics.spread import Values

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


def labelled_rows(table: VerdictTable, labels: Labels, probabilities: Mapping[str, float]) -> Verdicts:
    """Joins verdicts and labels.

    Args:
        probabilities: That each labelled response was chosen.
    """
    truth, chance = np.full(table.num_rows, np.nan), np.ones(table.num_rows)
    for name, value in labels.values.items():
        truth[table.labelled[name]], chance[table.labelled[name]] = value, probabilities[name]
    return Verdicts(table.scores, truth, table.groups, chance)


def estimate_parts(table: VerdictTable, rows: Verdicts, *, power: float | None, num_resamples: int) -> list[PartRates]:
    """Estimates the rates of all rows, of each value of `by`, the most frequent first, and of the other values.

    Args:
        power: The weight of the detector; None tunes it.
    """
    chosen: list[tuple[str, Any]] = [(ALL, slice(None))]
    if table.parts is not None:
        sizes = np.bincount(table.parts, minlength=len(table.part_names))
        order = np.argsort(-sizes, kind="stable").tolist()
        chosen += [(table.part_names[number], np.flatnonzero(table.parts == number)) for number in order[:MAX_PARTS]]
        if others := order[MAX_PARTS:]:
            name = f"the other {len(others):,} values" if len(others) > 1 else "the other value"
            chosen.append((name, np.flatnonzero(np.isin(table.parts, others))))
    found = []
    for name, places in chosen:
        groups, index = np.unique(table.groups.index[places], return_inverse=True)
        part = Verdicts(rows.scores[places], rows.labels[places], Groups(index, len(groups)), rows.probability[places])
        calls = table.labels[places]
        judged = np.isfinite(calls)
        share = proportion_from_counts(count_group_kinds(index[judged], calls[judged]), num_resamples=num_resamples)
        metrics, estimate = {} if share is None else {DETECTOR: share}, None
        if part.labelled.any():
            estimate = estimate_rate(part, power=power)
            metrics |= {RATE: estimate.metric, LABELS: estimate_rate(part, power=0.0).metric}
            if not table.is_sharded and (corrected := _correct(calls, part, num_resamples)):
                metrics[CORRECTED] = corrected
        num_labels = int(part.labelled.sum())
        found.append(
            PartRates(name=name, num_responses=len(index), num_labels=num_labels, metrics=metrics, estimate=estimate)
        )
    return found


def _correct(calls: Values, rows: Verdicts, num_resamples: int) -> Metric | None:
    """Corrects the detector's share by its errors on labels that were all drawn with one probability."""
    judged = np.flatnonzero(rows.labelled & np.isfinite(calls))
    truth = rows.labels[judged]
    if not 0 < truth.sum() < len(truth) or len(np.unique(rows.probability[rows.labelled])) > 1:
        return None
    groups = [str(group) for group in rows.groups.index]
    error = JudgeError.of_rows(truth, calls[judged], [groups[row] for row in judged])
    return corrected_rate(calls, groups, error, num_resamples=num_resamples).metric


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
    labels: Labels,
    probabilities: Mapping[str, float],
    waves: Sequence[Wave],
    block: Any,
    seed: int,
) -> list[dict[str, object]]:
    """Chooses the rows of label_next.csv: those to label, then those that are labelled already.

    Raises:
        UserError: Too few are left, it is unknown how the labels were drawn, or they were drawn by other scores.
    """
    if labels.values and not waves:
        hint = "draws of faithkit record it: their label_next.csv has a column `waves`"
        raise UserError("how the labels were drawn is not known of the other responses", hint=hint)
    old = [table.labelled[name] for name in labels.values]
    mean_spread = float(np.sqrt(table.scores * (1 - table.scores)).mean())
    stored = np.array([probabilities[name] for name in labels.values])
    check_scores(stored, inclusion_probabilities(waves, table.scores[old], mean_spread))
    is_labelled = np.zeros(table.num_rows, bool)
    is_labelled[old] = True
    drawn, wave = sample_rows(table.scores, is_labelled, block["label_next"], block["rule"], seed=seed)
    rows, all_waves = [*drawn.tolist(), *sorted(old)], [*waves, wave]
    scores = table.scores[rows]
    chances = inclusion_probabilities(all_waves, scores, mean_spread)
    found = []
    for shown, score, chance in zip(table.show(rows), scores.tolist(), chances.tolist(), strict=True):
        label = labels.values.get(shown["id"])
        name = "" if label is None else HALLUCINATED if label else FAITHFUL
        head = {"id": shown["id"], "label": name, "score": round(score, 6)}
        found.append({**head, PROBABILITY: chance, WAVES: write_waves(all_waves), **shown})
    return found
