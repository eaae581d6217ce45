"""Estimates how often a system hallucinates, from a detector's verdicts on many responses and labels of a few."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from construction.estimate.estimate_report import (
    DETECTOR,
    PartRates,
    choose_next,
    estimate_parts,
    estimate_table,
    labelled_rows,
    plan_line,
)
from construction.estimate.labels import Labels, read_labels
from construction.estimate.verdict_tables import VerdictTable, read_file, read_shards
from data_modules.build import build_source
from data_modules.reading.dataset import read_examples, resolve_split
from data_modules.reading.rows import ReadReport
from data_modules.reading.shards import name_of, shown
from faithkit.environment import environment
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.results import metric_name, write_results
from faithkit.pages.page_tables import print_tables
from faithkit.statistics.metric import Metric
from faithkit.statistics.prediction_powered import LabelPlan, LabelSums, plan_labels
from faithkit_workflows.corpus.corpus_columns import read_facet
from faithkit_workflows.pipelines.describe import every_row
from faithkit_workflows.settings.engines import is_sharded
from faithkit_workflows.tables.scored_rows import write_table
from faithkit_workflows.tables.shares import make_caption, shares_table

NEXT = "label_next.csv"
log = logging.getLogger("faithkit")


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
    labels = _read_labels(block)
    ids = labels.values if labels else {}
    if is_folder:
        table = read_shards(data, block["columns"], block["by"], ids if labels or block["label_next"] else None)
    else:
        table = read_file(data, block["columns"], block["by"], ids, _dataset_columns(block))
    if config["dry_run"]:
        print(f"would estimate from {table.num_rows:,} verdicts and {len(table.labelled):,} labels")
        return
    name, found = name_of(data) if is_folder else Path(data).stem, estimate(table, labels, block, config["seed"])
    _log_notes(table, found.labels)
    if labels is None and is_folder:
        shares = [(part.name, part.metrics.get(DETECTOR)) for part in found.parts]
        judged = [(part_name, share.n or 0 if share else 0, share) for part_name, share in shares]
        rates = shares_table([block["by"]] if block["by"] else [], judged)
        group = block["columns"]["group"] or ("group" if table.has_groups else None)
        rates.caption = make_caption(group, num_unsure=0, num_without=table.num_rows - judged[0][1])
    else:
        rates = estimate_table(found.parts, title=name, by=block["by"])
    print_tables(rates)
    _write(run, config, found, name)


def estimate(table: VerdictTable, labels: Labels | None, block: Mapping[str, Any], seed: int) -> Estimated:
    """Estimates the rates, plans the labels, and chooses the rows to label next.

    Raises:
        UserError: The labels do not fit.
    """
    if labels is not None and labels.values:
        labels = labels.only(table.labelled, block["labels"])
    known = labels or Labels({})
    known.check_finished(to_draw=block["label_next"] is not None)
    probabilities, waves = known.inclusion(table.num_rows)
    next_rows: list[dict[str, object]] = []
    if block["label_next"] is not None:
        next_rows = choose_next(table, known, probabilities, waves, block, seed + len(waves))
    rows = labelled_rows(table, known, probabilities)
    parts = estimate_parts(table, rows, power=block["power"], num_resamples=block["num_resamples"])
    plan = None
    if block["width"] is not None and known.values:
        plan = plan_labels(LabelSums.of(rows), block["width"])
    return Estimated(labels=labels, parts=parts, plan=plan, next_rows=next_rows)


def _read_labels(block: Mapping[str, Any]) -> Labels | None:
    if not block["labels"]:
        return None
    labels = read_labels(block["labels"], block["label_columns"])
    if not labels.values and not labels.num_open and block["label_next"] is None:
        hint = "label some rows, or choose the first: pipeline.labels=null pipeline.label_next=50"
        raise UserError("nothing is labelled yet: every label is empty", place=block["labels"], hint=hint)
    return labels


def _write(run: RunFolder, config: Mapping[str, Any], found: Estimated, name: str) -> None:
    """Prints the plan of labels, and writes the rows to label next and the metrics; those of a part as `by/VALUE/`."""
    block, plan = config["pipeline"], found.plan
    metrics: dict[str, Metric] = {}
    for number, part in enumerate(found.parts):
        prefix = f"by/{part.name}/" if number else ""
        metrics |= {metric_name("test", name, prefix + short): metric for short, metric in part.metrics.items()}
    if plan is not None:
        print(plan_line(plan, block["width"], found.parts[0].num_labels))
        if plan.num_labels is not None:
            metrics[metric_name("test", name, "labels_needed")] = Metric(value=plan.num_labels)
    if found.next_rows:
        write_table(run.path / NEXT, found.next_rows, ",")
        print(f"{block['label_next']:,} responses to label next, by {block['rule']}: {run.path / NEXT}")
        print(f"fill its empty labels, then: pipeline.labels={run.path / NEXT}")
    write_results(run.metrics, metrics, {"config": config, "environment": environment()})


def _dataset_columns(block: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Reads columns from the dataset: the group, the field to count by, and the texts if rows are to be chosen."""
    if block["dataset"] is None:
        return None
    source, _ = every_row(build_source(block["dataset"], block["path"], **block["options"]), block["options"])
    found: dict[str, dict[str, Any]] = {}
    for split in source.split_names() if block["split"] is None else [resolve_split(source, block["split"])]:
        for example in read_examples(source, split, ReadReport("skip")):
            columns: dict[str, Any] = {"group": example.group}
            if block["by"] and (value := read_facet(example, block["by"])) is not None:
                columns[block["by"]] = value
            if block["label_next"]:
                history = "\n".join(f"{turn.speaker}: {turn.text}" for turn in example.history)
                columns |= {"knowledge": example.knowledge, "history": history, "response": example.response}
            found[example.id] = columns
    return found


def _log_notes(table: VerdictTable, labels: Labels | None) -> None:
    log.info("%s verdicts, by their %s", f"{table.num_rows:,}", "scores" if table.uses_scores else "labels")
    if table.num_unread:
        log.info("%s verdicts could not be read: the mean of the others replaces them", f"{table.num_unread:,}")
    if not table.has_groups:
        log.info("every response counts by itself: pipeline.columns.group or pipeline.dataset groups them")
    if labels is None:
        return
    is_random = not labels.waves and not labels.probabilities
    how = ", taken as drawn at random: a manual choice makes the rate wrong" if is_random else ""
    log.info("%s labels%s", f"{len(labels.values):,}", how)
    counts = {
        "of ids that have no verdict": labels.num_unknown,
        "still empty": labels.num_empty,
        "given twice alike, counted once": labels.num_repeated,
    }
    for what, number in counts.items():
        if number:
            log.info("labels %s: %s", what, f"{number:,}")
    if labels.num_open and labels.values:
        log.info("the last wave is labelled in part: the rate is right if chance chose that part, and wrong otherwise")
