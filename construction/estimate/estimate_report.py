"""Estimates hallucination rates: by the detector, by the labels, and by both; chooses what to label next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from construction.estimate.labels import PROBABILITY, WAVES, Labels
from construction.estimate.verdict_tables import CALLED, JUDGED, ROWS, SCORED, SCORES, SQUARES, VerdictTable
from faithkit.errors import UserError
from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.pages.page_tables import escape_terminal, format_metric, new_number_table
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.group_counts import proportion_from_counts
from faithkit.statistics.label_sampling import Wave, check_scores, inclusion_probabilities, write_waves
from faithkit.statistics.metric import Metric
from faithkit.statistics.prediction_powered import (
    MIN_GROUPS,
    MIN_OF_EACH,
    Estimate,
    LabelPlan,
    LabelSums,
    estimate_sums,
    weighted_terms,
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


def estimate_parts(
    table: VerdictTable, labels: Labels, probabilities: Mapping[str, float], *, power: float | None, num_resamples: int
) -> list[PartRates]:
    """Estimates the rates of all rows, of each value of `by`, the most frequent first, and of the other values."""
    numbers: list[tuple[str, list[int] | None]] = [(ALL, None)]
    parts = np.zeros(0, np.int64) if table.parts is None else table.parts
    if table.parts is not None:
        sizes = np.bincount(table.parts, weights=table.sums[:, ROWS], minlength=len(table.part_names))
        order = np.argsort(-sizes, kind="stable").tolist()
        numbers += [(table.part_names[number], [number]) for number in order[:MAX_PARTS]]
        if others := order[MAX_PARTS:]:
            name = f"the other {len(others):,} values" if len(others) > 1 else "the other value"
            numbers.append((name, others))
    found = []
    for name, chosen in numbers:
        cells = np.arange(len(table.sums)) if chosen is None else np.flatnonzero(np.isin(parts, chosen))
        _, index = np.unique(table.groups.index[cells], return_inverse=True)
        groups = Groups(index, int(index.max()) + 1)
        judged = groups.sums(table.sums[cells][:, [JUDGED, CALLED]]).astype(np.int64)
        share = proportion_from_counts(_count_kinds(judged[judged[:, 0] > 0]), num_resamples=num_resamples)
        metrics = {} if share is None else {DETECTOR: share}
        sums = label_sums(table, labels, probabilities, cells, groups)
        part = combine_labels(name, sums, metrics, power)
        if table.is_by_row and (corrected := _correct(table, labels, probabilities, cells, num_resamples)):
            part.metrics[CORRECTED] = corrected
        found.append(part)
    return found


def label_sums(
    table: VerdictTable,
    labels: Labels,
    probabilities: Mapping[str, float],
    cells: NDArray[np.intp] | None = None,
    groups: Groups | None = None,
) -> LabelSums:
    """Sums up verdicts and labels of some cells.

    Args:
        cells: In their order; None means all.
        groups: Of these cells.
    """
    cells, groups = np.arange(len(table.sums)) if cells is None else cells, groups or table.groups
    sums = groups.sums(table.sums[cells][:, [ROWS, SCORED, SCORES, SQUARES]])
    missing = sums[:, 0] - sums[:, 1]
    sums = np.column_stack([sums[:, 0], sums[:, 2] + missing * table.mean, sums[:, 3] + missing * table.mean**2])
    rows = sorted(labels.values, key=lambda name: (table.labelled[name].cell, table.labelled[name].place))
    cell_of_row = np.array([table.labelled[name].cell for name in rows], np.intp)
    is_here = np.isin(cell_of_row, cells)
    names = [name for name, here in zip(rows, is_here, strict=True) if here]
    index = groups.index[np.searchsorted(cells, cell_of_row[is_here])]
    of_labelled = np.zeros((len(sums), 6))
    values = np.array([labels.values[name] for name in names])
    weights = 1 / np.array([probabilities[name] for name in names])
    scores = table.scores_of([table.labelled[name] for name in names])
    np.add.at(of_labelled, index, np.stack(weighted_terms(values, scores, weights), axis=1))
    return LabelSums.of_groups(
        np.column_stack([sums, of_labelled]),
        num_labels=len(names),
        num_hallucinated=round(values.sum()),
        num_groups=len(np.unique(index)),
    )


def _count_kinds(judged: NDArray[np.int64]) -> list[list[int]]:
    """Counts the groups with so many judged and so many hallucinated rows [G, 2]."""
    base = int(judged[:, 1].max(initial=0)) + 1  # sorting pairs coded as one number is many times faster
    pairs, counts = np.unique(judged[:, 0] * base + judged[:, 1], return_counts=True)
    return np.column_stack([pairs // base, pairs % base, counts]).tolist()


def _correct(
    table: VerdictTable,
    labels: Labels,
    probabilities: Mapping[str, float],
    cells: NDArray[np.intp],
    num_resamples: int,
) -> Metric | None:
    """Corrects the detector's share by its errors on labels that were all drawn with one probability."""
    here = set(cells.tolist())
    labelled = {name: row for name in labels.values if (row := table.labelled[name]).cell in here}
    judged = {name: row for name, row in labelled.items() if np.isfinite(row.label)}
    truth = [labels.values[name] for name in judged]
    if not 0 < sum(truth) < len(truth) or len({probabilities[name] for name in labelled}) > 1:
        return None
    groups = [str(group) for group in table.groups.index]
    error = JudgeError.of_rows(truth, [row.label for row in judged.values()], [groups[r.cell] for r in judged.values()])
    called = np.where(table.sums[cells, JUDGED] > 0, table.sums[cells, CALLED], np.nan)
    return corrected_rate(called, [groups[cell] for cell in cells], error, num_resamples=num_resamples).metric


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
    stored = np.array([probabilities[name] for name in labels.values])
    check_scores(stored, inclusion_probabilities(waves, table.scores_of(old), table.mean_spread))
    drawn, wave = table.draw(block["label_next"], block["rule"], seed)
    rows, all_waves = [*drawn, *sorted(old, key=lambda row: (row.shard, row.place))], [*waves, wave]
    scores = table.scores_of(rows)
    chances = inclusion_probabilities(all_waves, scores, table.mean_spread)
    found = []
    for shown, score, chance in zip(table.texts(rows), scores.tolist(), chances.tolist(), strict=True):
        label = labels.values.get(shown["id"])
        name = "" if label is None else HALLUCINATED if label else FAITHFUL
        head = {"id": shown["id"], "label": name, "score": round(score, 6)}
        found.append({**head, PROBABILITY: chance, WAVES: write_waves(all_waves), **shown})
    return found
