"""Estimates how often a system hallucinates: from verdicts of a detector on many responses, and labels of a few."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from construction.estimate.estimate_report import DETECTOR, Part, estimate_table, next_rows, parts_of, plan_line
from construction.estimate.shard_steps import SCORE
from construction.estimate.verdict_tables import Labels, Table, check_finished, joined, read_labels, read_verdicts
from data_modules.build import build_source
from data_modules.reading.dataset import read_examples, resolve_split
from data_modules.reading.rows import ReadReport
from data_modules.reading.shards import name_of, shown
from faithkit.environment import environment
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.results import metric_name, write_results
from faithkit.pages.tables import print_tables
from faithkit.statistics.label_sampling import Wave
from faithkit.statistics.metric import Metric
from faithkit.statistics.prediction_powered import LabelPlan, LabelSums, Verdicts, plan_labels
from faithkit_workflows.corpus.corpus_columns import read_facet
from faithkit_workflows.pipelines.describe import every_row
from faithkit_workflows.ray.rates import estimate_shards
from faithkit_workflows.settings.engines import RAY, RayOptions
from faithkit_workflows.settings.ray import is_sharded
from faithkit_workflows.tables.scored_rows import write_table
from faithkit_workflows.tables.shares import make_caption, shares_table

NEXT = "label_next.csv"
log = logging.getLogger("faithkit")


def run_estimate(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Reads both tables, prints the rates, and chooses what to label next."""
    block = config["pipeline"]
    if is_sharded(block["predictions"]):
        _run_on_shards(run, config)
        return
    table = read_verdicts(block["predictions"], block["columns"], block["by"], _facts(block))
    labels = read_labels(block["labels"], block["label_columns"], table.ids) if block["labels"] else None
    rows, waves = joined(table, labels)
    facts = table.uses_scores, table.num_unparsed, table.has_groups
    for line in _notes(len(table.ids), labels, *facts):
        log.info("%s", line)
    if labels is not None and not labels.values and block["label_next"] is None:
        hint = "label some rows, or choose the first: pipeline.labels=null pipeline.label_next=50"
        raise UserError("nothing is labelled yet: every label is empty", place=block["labels"], hint=hint)
    if config["dry_run"]:
        print(f"would estimate from {len(table.ids):,} verdicts and {int(rows.labelled.sum()):,} labels")
        return
    chosen = _choose(table, labels, rows, waves, config) if block["label_next"] is not None else []
    parts = parts_of(table, rows, power=block["power"], num_resamples=block["num_resamples"])
    plan = (
        plan_labels(LabelSums.of(rows), block["width"]) if block["width"] is not None and rows.labelled.any() else None
    )
    metrics = _tell(parts, block, plan, Path(block["predictions"]).stem)
    _write_next(run, chosen, block)
    write_results(run.metrics, metrics, {"config": config, "environment": environment()})


def _run_on_shards(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Does the same with a folder of scored shards, whose rows are never held."""
    block, ray = config["pipeline"], RayOptions(**config["ray"]) if config["engine"]["name"] == RAY else None
    if config["dry_run"]:
        print(f"would estimate from the shards in {shown(block['predictions'])}")
        return
    found = estimate_shards(block, ray, seed=config["seed"])
    rates, labels = found.rates, found.labels
    group = rates.counting.columns.group
    log.info("columns: %s", rates.counting.columns)
    for line in _notes(rates.num_rows, labels, rates.detector == SCORE, rates.num_unread, has_groups=True):
        log.info("%s", line)
    if group is None:
        log.info("every response counts by itself: pipeline.columns.group=NAME tells which belong together")
    width, whole = block["width"], found.sums.get(None)
    plan = plan_labels(whole, width) if width is not None and whole is not None else None
    parts = rates.rates(found.sums)
    if labels is None:  # the detector's share is all that there is
        shares = [(part.name, part.metrics.get(DETECTOR)) for part in parts]
        judged = [(name, share.n or 0 if share else 0, share) for name, share in shares]
        table = shares_table([block["by"]] if block["by"] else [], judged)
        table.caption = make_caption(group, num_unsure=0, num_without=rates.num_rows - judged[0][1])
        print_tables(table)
    metrics = _tell(parts, block, plan, name_of(block["predictions"]), with_table=labels is not None)
    _write_next(run, found.next_rows, block)
    write_results(run.metrics, metrics, {"config": config, "environment": environment()})


def _write_next(run: RunFolder, chosen: Sequence[Mapping[str, object]], block: Mapping[str, Any]) -> None:
    if chosen:
        write_table(run.path / NEXT, chosen, ",")
        print(f"{block['label_next']:,} responses to label next, by {block['rule']}: {run.path / NEXT}")
        print(f"fill its empty labels, then: pipeline.labels={run.path / NEXT}")


def _tell(
    parts: list[Part], block: Mapping[str, Any], plan: LabelPlan | None, name: str, *, with_table: bool = True
) -> dict[str, Metric]:
    """Prints the rates, and how many labels the wanted width takes; gives the metrics."""
    if with_table:
        print_tables(estimate_table(parts, title=name, by=block["by"]))
    metrics = _metrics(parts, name)
    if plan is not None and (whole := parts[0].estimate) is not None:
        print(plan_line(plan, block["width"], whole.num_labels))
        if plan.num_labels is not None:
            metrics[metric_name("test", name, "labels_needed")] = Metric(value=plan.num_labels)
    return metrics


def _facts(block: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Reads what the dataset tells of each response: its group, the field to count by, texts where some are chosen."""
    if block["dataset"] is None:
        return None
    source, _ = every_row(build_source(block["dataset"], block["path"], **block["options"]), block["options"])
    found: dict[str, dict[str, Any]] = {}
    for split in source.split_names() if block["split"] is None else [resolve_split(source, block["split"])]:
        for example in read_examples(source, split, ReadReport("skip")):
            facts: dict[str, Any] = {"group": example.group}
            if block["by"] and (value := read_facet(example, block["by"])) is not None:
                facts[block["by"]] = value
            if block["label_next"]:
                said = "\n".join(f"{turn.speaker}: {turn.text}" for turn in example.history)
                facts |= {"knowledge": example.knowledge, "history": said, "response": example.response}
            found[example.id] = facts
    return found


def _choose(
    table: Table, labels: Labels | None, rows: Verdicts, waves: list[Wave], config: Mapping[str, Any]
) -> list[dict[str, object]]:
    """The rows of label_next.csv.

    Raises:
        UserError: Fewer are left than asked for, the last wave is labelled in part, or how the labels so far were drawn
            is known of them alone.
    """
    block, given = config["pipeline"], labels.values if labels else {}
    check_finished(labels or Labels({}), to_draw=True)
    if rows.labelled.any() and not waves:
        hint = "labels of draws of our own tell it: their label_next.csv has a column `waves`"
        raise UserError("how the labels were drawn is not known of the other responses", hint=hint)
    seed = config["seed"] + len(waves)
    return next_rows(table, rows, waves, block["label_next"], block["rule"], seed=seed, labels=given)


def _metrics(parts: list[Part], name: str) -> dict[str, Metric]:
    """The rates by full name; those of parts as `by/VALUE/rate`."""
    found: dict[str, Metric] = {}
    for place, part in enumerate(parts):
        prefix = f"by/{part.name}/" if place else ""
        found |= {metric_name("test", name, prefix + short): metric for short, metric in part.metrics.items()}
    return found


def _notes(
    num_rows: int, labels: Labels | None, uses_scores: bool, num_unparsed: int, has_groups: bool
) -> Iterator[str]:
    yield f"{num_rows:,} verdicts, " + ("by their scores" if uses_scores else "by their labels")
    if num_unparsed:
        yield f"{num_unparsed:,} verdicts could not be read: the mean of the others stands for them"
    if not has_groups:
        yield "every response counts by itself: pipeline.columns.group or pipeline.dataset tell which belong together"
    if labels is None:
        return
    how = "" if labels.waves or labels.chances else ", taken as drawn at random: a choice by hand makes the rate wrong"
    yield f"{len(labels.values):,} labels{how}"
    counts = {
        "of ids that have no verdict": labels.num_unknown,
        "still empty": labels.num_empty,
        "given twice alike, counted once": labels.num_repeated,
    }
    for what, number in counts.items():
        if number:
            yield f"labels {what}: {number:,}"
    if labels.num_open and labels.values:
        yield "the last wave is labelled in part: the rate is right if chance chose that part, and wrong by any choice"
