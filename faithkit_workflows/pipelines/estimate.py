"""Estimates how often a system hallucinates, from a detector's verdicts on many responses and labels of a few."""

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from construction.labels import INCLUSION, WAVES, Labels, read_labels
from construction.verdict_tables import VerdictTable, read_file, read_shards
from data_modules.build import build_source
from data_modules.reading.dataset import read_examples, resolve_split
from data_modules.reading.fields import read_facet
from data_modules.reading.rows import ReadReport
from data_modules.reading.shards import name_of, shown
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.packages import environment
from faithkit.pages.page_tables import escape_terminal, format_metric, new_number_table, print_tables
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.metric import Metric, metric_name, write_results
from faithkit.statistics.prediction_powered import (
    MIN_GROUPS,
    MIN_OF_EACH,
    Estimate,
    LabelPlan,
    LabelSums,
    Verdicts,
    check_scores,
    estimate_rate,
    inclusion_probabilities,
    plan_labels,
    sample_rows,
    write_waves,
)
from faithkit.statistics.spread import count_group_kinds, proportion_from_counts
from faithkit_workflows.settings.engines import is_sharded
from faithkit_workflows.tables.shares import shares_table
from faithkit_workflows.tables.user_table import write_table

ALL = "all"
MAX_PARTS = 50  # values of a column with separate rates; the others count together
FEW, BEYOND = "*", "**"  # mark an estimate by the labels alone
WHY_ALONE = {
    FEW: f"under {MIN_GROUPS} labelled groups or {MIN_OF_EACH} labels of either class, or groups all alike: "
    "the labels alone, exact",
    BEYOND: "with the detector beyond 0 or 100: the labels alone",
}
RATE, DETECTOR, LABELS, CORRECTED = "rate", "rate_detector", "rate_labels", "rate_corrected"
NEXT = "label_next.csv"
log = logging.getLogger("faithkit")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """The rates of a system.

    Args:
        labels: Those of these responses; None if none are given.
        next_rows: The rows of label_next.csv.
    """

    labels: Labels | None
    parts: list[PartRates]
    plan: LabelPlan | None
    next_rows: list[dict[str, object]]


def run_estimate(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Reads verdicts and labels, prints the rates, and chooses what to label next."""
    block = config["pipeline"]
    data, is_folder = block["predictions"], is_sharded(block["predictions"])
    if config["dry_run"] and is_folder:
        print(f"would estimate from the shards in {shown(data)}")
        return
    labels = read_labels(block["labels"], block["label_columns"]) if block["labels"] else None
    if labels and not labels.values and not labels.num_open and block["label_next"] is None:
        hint = "label some rows, or choose the first: pipeline.labels=null pipeline.label_next=50"
        raise UserError("nothing is labelled yet: every label is empty", place=block["labels"], hint=hint)
    ids = labels.values if labels else {}
    if is_folder:
        table = read_shards(data, block["columns"], block["by"], ids if labels or block["label_next"] else None)
    else:
        found = None  # the columns of the dataset: the group, the field to count by, the texts if rows are chosen
        if block["dataset"] is not None:
            found = {}
            source = build_source(block["dataset"], block["path"], **block["options"]).with_all_rows(block["options"])
            splits = source.split_names() if block["split"] is None else [resolve_split(source, block["split"])]
            for example in chain.from_iterable(read_examples(source, split, ReadReport("skip")) for split in splits):
                columns: dict[str, Any] = {"group": example.group}
                if block["by"] and (value := read_facet(example, block["by"])) is not None:
                    columns[block["by"]] = value
                if block["label_next"]:
                    history = "\n".join(f"{turn.speaker}: {turn.text}" for turn in example.history)
                    columns |= {"knowledge": example.knowledge, "history": history, "response": example.response}
                found[example.id] = columns
        table = read_file(data, block["columns"], block["by"], ids, found)
    if config["dry_run"]:
        print(f"would estimate from {table.num_rows:,} verdicts and {len(table.labelled):,} labels")
        return
    name, rates = name_of(data) if is_folder else Path(data).stem, estimate(table, labels, block, config["seed"])
    log.info("%s verdicts, by their %s", f"{table.num_rows:,}", "scores" if table.uses_scores else "labels")
    if table.num_unread:
        log.info("%s verdicts could not be read: the mean of the others replaces them", f"{table.num_unread:,}")
    if not table.has_groups:
        log.info("every response counts by itself: pipeline.columns.group or pipeline.dataset groups them")
    if (known := rates.labels) is not None:
        is_random = not known.waves and not known.probabilities
        how = ", taken as drawn at random: a manual choice makes the rate wrong" if is_random else ""
        log.info("%s labels%s", f"{len(known.values):,}", how)
        for what, number in known.skipped.items():
            log.info("labels %s: %s", what, f"{number:,}")
        if known.num_open and known.values:
            note = "the last wave is labelled in part: the rate is right if chance chose that part, and wrong otherwise"
            log.info(note)
    if labels is None and is_folder:
        shares = [(part.name, part.metrics.get(DETECTOR)) for part in rates.parts]
        judged = [(part_name, share.n or 0 if share else 0, share) for part_name, share in shares]
        group = block["columns"]["group"] or ("group" if table.has_groups else None)
        without = table.num_rows - judged[0][1]
        shown_rates = shares_table([block["by"]] if block["by"] else [], judged, group, num_without=without)
    else:
        shown_rates = estimate_table(rates.parts, title=name, by=block["by"])
    print_tables(shown_rates)
    _write(run, config, rates, name)


def estimate(table: VerdictTable, labels: Labels | None, block: Mapping[str, Any], seed: int) -> Estimated:
    """Estimates the rates, plans the labels, and chooses the rows to label next.

    Raises:
        UserError: The labels do not fit; of those to label next too few are left, or it is unknown how the labels were
            drawn, or they were drawn by other scores.
    """
    if labels is not None and labels.values:
        labels = labels.only(table.labelled, block["labels"])
    known = labels or Labels({})
    known.check_finished(to_draw=block["label_next"] is not None)
    probabilities, waves = known.inclusion(table.num_rows)
    next_rows: list[dict[str, object]] = []
    if block["label_next"] is not None:
        if known.values and not waves:
            hint = "draws of faithkit record it: their label_next.csv has a column `waves`"
            raise UserError("how the labels were drawn is not known of the other responses", hint=hint)
        old = [table.labelled[name] for name in known.values]
        mean_spread = float(np.sqrt(table.scores * (1 - table.scores)).mean())
        stored = np.array([probabilities[name] for name in known.values])
        check_scores(stored, inclusion_probabilities(waves, table.scores[old], mean_spread))
        is_labelled = np.zeros(table.num_rows, bool)
        is_labelled[old] = True
        number, rule = block["label_next"], block["rule"]
        drawn, wave = sample_rows(table.scores, is_labelled, number, rule, seed=seed + len(waves))
        chosen, all_waves = [*drawn.tolist(), *sorted(old)], [*waves, wave]
        scores = table.scores[chosen]
        chances = inclusion_probabilities(all_waves, scores, mean_spread)
        for texts, score, inclusion in zip(table.show(chosen), scores.tolist(), chances.tolist(), strict=True):
            label = known.values.get(texts["id"])
            name = "" if label is None else HALLUCINATED if label else FAITHFUL
            cells = {"id": texts["id"], "label": name, "score": round(score, 6)}
            next_rows.append({**cells, INCLUSION: inclusion, WAVES: write_waves(all_waves), **texts})
    truth, chance = np.full(table.num_rows, np.nan), np.ones(table.num_rows)
    for name, value in known.values.items():
        truth[table.labelled[name]], chance[table.labelled[name]] = value, probabilities[name]
    rows = Verdicts(table.scores, truth, table.groups, chance)
    parts = estimate_parts(table, rows, power=block["power"], num_resamples=block["num_resamples"])
    plan = None
    if block["width"] is not None and known.values:
        plan = plan_labels(LabelSums.of(rows), block["width"])
    return Estimated(labels=labels, parts=parts, plan=plan, next_rows=next_rows)


def _write(run: RunFolder, config: Mapping[str, Any], found: Estimated, name: str) -> None:
    """Prints the plan of labels, and writes the rows to label next and the metrics; those of a part as `by/VALUE/`."""
    block, plan = config["pipeline"], found.plan
    metrics: dict[str, Metric] = {}
    for number, part in enumerate(found.parts):
        prefix = f"by/{part.name}/" if number else ""
        metrics |= {metric_name("test", name, prefix + short): metric for short, metric in part.metrics.items()}
    if plan is not None:
        points = f"an interval {100 * block['width']:g} points wide"
        if plan.num_labels is None:
            every = f"with every response labelled it is {100 * plan.least_width:.1f} wide"
            print(f"{points} needs more responses: {every}")
        else:
            more = max(0, plan.num_labels - found.parts[0].num_labels)
            print(f"{points} takes about {plan.num_labels:,} labels drawn at random: {more:,} more")
            metrics[metric_name("test", name, "labels_needed")] = Metric(value=plan.num_labels)
    if found.next_rows:
        write_table(run.path / NEXT, found.next_rows, ",")
        print(f"{block['label_next']:,} responses to label next, by {block['rule']}: {run.path / NEXT}")
        given = {
            name: block[name] for name in ("predictions", "dataset", "path", "split", "by") if block[name] is not None
        }
        keys = (f"pipeline.{name}={value}" for name, value in (given | {"labels": run.path / NEXT}).items())
        command = shlex.join(["faithkit", "construct", "pipeline=estimate", *keys])
        print(f"fill its empty labels, then: {escape_terminal(command)}")
    write_results(run.metrics, metrics, {"config": config, "environment": environment()})


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
            # The share by the detector's errors on labels that were all drawn with one probability.
            both = np.flatnonzero(part.labelled & judged)
            truth = part.labels[both]
            is_uniform = len(np.unique(part.probability[part.labelled])) == 1
            if not table.is_sharded and 0 < truth.sum() < len(truth) and is_uniform:
                names = [str(group) for group in part.groups.index]
                error = JudgeError.of_rows(truth, calls[both], [names[row] for row in both])
                corrected = corrected_rate(calls, names, error, num_resamples=num_resamples).metric
                metrics |= {} if corrected is None else {CORRECTED: corrected}
        num_labels = int(part.labelled.sum())
        found.append(
            PartRates(name=name, num_responses=len(index), num_labels=num_labels, metrics=metrics, estimate=estimate)
        )
    return found


def estimate_table(parts: Sequence[PartRates], *, title: str, by: str | None) -> Table:
    """Makes the table of the rates in percent."""
    heads = ("responses", "labels", "detector", "labels alone", "estimate")
    table = new_number_table(f"{title}: hallucinated, percent", by or "", heads, min_width=8)
    marks = []
    for part in parts:
        mark = ""
        if part.estimate is not None:
            mark = FEW if part.estimate.is_exact else BEYOND if part.estimate.is_beyond else ""
        marks.append(mark)
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
    if whole.estimate and not marks[0]:
        lines.append(f"weight of the detector: {whole.estimate.power:.2f}, as it follows the labels")
    if whole.estimate and (corrected := whole.metrics.get(CORRECTED)):
        shown = format_metric(corrected, digits=1, scale=100)
        lines.append(f"corrected by its recall and false alarms (Rogan & Gladen), of all: {shown}")
    lines += [f"{mark} {why}" for mark, why in WHY_ALONE.items() if mark in marks]
    table.caption = Text("\n".join(lines))
    return table
