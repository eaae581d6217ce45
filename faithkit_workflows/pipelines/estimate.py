"""Estimates how often a system hallucinates, from a detector's verdicts on many responses and labels of a few."""

import logging
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from construction.estimate.estimate_report import (
    DETECTOR,
    PartRates,
    choose_next,
    estimate_parts,
    estimate_table,
    label_sums,
    plan_line,
)
from construction.estimate.labels import Labels, read_labels
from construction.estimate.shard_verdicts import ReadTexts, ShardColumns, SumShard, join_shards
from construction.estimate.verdict_tables import VerdictTable, read_verdicts
from data_modules.build import build_source
from data_modules.reading.dataset import read_examples, resolve_split
from data_modules.reading.rows import ReadReport
from data_modules.reading.shards import Shard, find_shards, name_of, opened, shown
from faithkit import signals
from faithkit.environment import environment
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.results import metric_name, write_results
from faithkit.pages.page_tables import print_tables
from faithkit.statistics.metric import Metric
from faithkit.statistics.prediction_powered import LabelPlan, plan_labels
from faithkit_workflows.corpus.corpus_columns import read_facet
from faithkit_workflows.pipelines.describe import every_row
from faithkit_workflows.ray.cluster import connected, run_on_cluster
from faithkit_workflows.ray.run_shards import PROGRESS_SECONDS, Runner
from faithkit_workflows.ray.shard_worker import absolute_path, naming_shard
from faithkit_workflows.settings.engines import RAY, RayOptions, is_sharded
from faithkit_workflows.tables.scored_rows import write_table
from faithkit_workflows.tables.shares import make_caption, shares_table

NEXT = "label_next.csv"
ShardTask = Callable[[Path, str], Any]  # of the file, and of its name below the data
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """The rates of a system.

    Args:
        labels: Those of these responses; None if none are given.
        next_rows: The rows of label_next.csv.
    """

    table: VerdictTable
    labels: Labels | None
    parts: list[PartRates]
    plan: LabelPlan | None
    next_rows: list[dict[str, object]]


def run_estimate(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Reads verdicts and labels, prints the rates, and chooses what to label next."""
    block, ray = config["pipeline"], RayOptions(**config["ray"]) if config["engine"]["name"] == RAY else None
    is_folder = is_sharded(block["predictions"])
    name = name_of(block["predictions"]) if is_folder else Path(block["predictions"]).stem
    if config["dry_run"] and is_folder:
        print(f"would estimate from the shards in {shown(block['predictions'])}")
        return
    if is_folder:
        found = estimate_shards(block, ray, seed=config["seed"])
    else:
        labels = _read_labels(block)
        ids = labels.values if labels else ()
        table = read_verdicts(block["predictions"], block["columns"], block["by"], ids, _dataset_columns(block))
        if config["dry_run"]:
            print(f"would estimate from {table.num_rows:,} verdicts and {len(table.labelled):,} labels")
            return
        found = estimate(table, labels, block, config["seed"])
    _log_notes(found.table, found.labels)
    if found.labels is None and is_folder:
        shares = [(part.name, part.metrics.get(DETECTOR)) for part in found.parts]
        judged = [(part_name, share.n or 0 if share else 0, share) for part_name, share in shares]
        rates = shares_table([block["by"]] if block["by"] else [], judged)
        group = block["columns"]["group"] or ("group" if found.table.has_groups else None)
        rates.caption = make_caption(group, num_unsure=0, num_without=found.table.num_rows - judged[0][1])
    else:
        rates = estimate_table(found.parts, title=name, by=block["by"])
    print_tables(rates)
    _write(run, config, found.parts, found.plan, name, found.next_rows)


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
    options = {"power": block["power"], "num_resamples": block["num_resamples"]}
    parts = estimate_parts(table, known, probabilities, **options)
    plan = None
    if block["width"] is not None and known.values:
        plan = plan_labels(label_sums(table, known, probabilities), block["width"])
    return Estimated(table=table, labels=labels, parts=parts, plan=plan, next_rows=next_rows)


def _read_labels(block: Mapping[str, Any]) -> Labels | None:
    if not block["labels"]:
        return None
    labels = read_labels(block["labels"], block["label_columns"])
    if not labels.values and not labels.num_open and block["label_next"] is None:
        hint = "label some rows, or choose the first: pipeline.labels=null pipeline.label_next=50"
        raise UserError("nothing is labelled yet: every label is empty", place=block["labels"], hint=hint)
    return labels


def _write(
    run: RunFolder,
    config: Mapping[str, Any],
    parts: Sequence[PartRates],
    plan: LabelPlan | None,
    name: str,
    chosen: Sequence[Mapping[str, object]],
) -> None:
    """Prints the plan of labels, and writes the rows to label next and the metrics; those of a part as `by/VALUE/`."""
    block = config["pipeline"]
    metrics: dict[str, Metric] = {}
    for number, part in enumerate(parts):
        prefix = f"by/{part.name}/" if number else ""
        metrics |= {metric_name("test", name, prefix + short): metric for short, metric in part.metrics.items()}
    if plan is not None:
        print(plan_line(plan, block["width"], parts[0].num_labels))
        if plan.num_labels is not None:
            metrics[metric_name("test", name, "labels_needed")] = Metric(value=plan.num_labels)
    if chosen:
        write_table(run.path / NEXT, chosen, ",")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTaskSettings:
    """The settings of workers.

    Args:
        data: The folder, glob or address of the shards.
        task: Reads a shard.
    """

    data: str
    task: ShardTask


class ShardReader:
    """Runs a task on one shard per call; returns its result, or the error."""

    def __init__(self, settings: ShardTaskSettings):
        self.settings = settings

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Reads a shard."""
        shard = Shard(**row)
        found = {"shard": shard.name, "bytes": shard.size, "result": b"", "problem": "", "place": "", "hint": ""}
        try:
            with opened(self.settings.data, shard) as file, naming_shard(shard, file):
                return {**found, "result": pickle.dumps(self.settings.task(file, shard.name))}
        except UserError as error:
            return {**found, "problem": error.problem, "place": error.place or shard.name, "hint": error.hint or ""}


def run_in_process(worker: type, argument: Any, rows: Sequence[Mapping[str, Any]], _: RayOptions) -> Iterator[Any]:
    """Calls one worker in this process for all rows, instead of a cluster."""
    return map(worker(argument), rows)


def estimate_shards(
    block: Mapping[str, Any], ray: RayOptions | None, run: Runner | None = None, *, seed: int = 0
) -> Estimated:
    """Estimates the rates over all shards; with `label_next` the texts of the chosen rows are read in a second pass.

    Args:
        block: The block `pipeline`.
        ray: None reads in this process.
        run: Calls the workers; None chooses by `ray`.
        seed: Of the rows to label next.

    Raises:
        UserError: A shard cannot be read, or the labels do not fit.
    """
    data, options = absolute_path(block["predictions"]), ray or RayOptions()
    shards = [shard for shard in find_shards(data)[0] if shard.name.endswith(".parquet")]
    if not shards:
        hint = "scored shards are Parquet: faithkit score ... engine=ray writes them"
        raise UserError("there are no shards of Parquet", place=shown(data), hint=hint)
    with opened(data, shards[0]) as file, naming_shard(shards[0], file):
        columns = ShardColumns.of(file, block["columns"], block["by"])
    log.info("columns: %s", columns)
    labels = _read_labels(block)
    known, num_drawn = labels or Labels({}), block["label_next"] or 0
    ids = frozenset(known.values) if num_drawn or labels is not None else None
    runner = run or (run_on_cluster if ray is not None else run_in_process)

    def read(task: ShardTask, title: str, chosen: Sequence[Shard]) -> dict[str, Any]:
        rows = [shard.to_dict() for shard in chosen]
        results = runner(ShardReader, ShardTaskSettings(data=data, task=task), rows, options)
        return dict(_track(results, chosen, title))

    with connected(options) if ray is not None and run is None else nullcontext():  # for both passes
        num_waves = max(len(known.waves), bool(known.values))
        sums = read(SumShard(columns=columns, ids=ids, num_drawn=num_drawn, seed=seed + num_waves), "reading", shards)
        num_rows = {name: shard.num_rows for name, shard in sums.items()}

        def read_texts(places: Mapping[str, Sequence[int]]) -> dict[str, Any]:
            task = ReadTexts(columns=columns, places=places, num_rows=num_rows)
            return read(task, "choosing", [shard for shard in shards if shard.name in places])

        return estimate(join_shards(columns, sums, read_texts), labels, block, seed)


def _track(results: Iterator[Any], shards: Sequence[Shard], title: str) -> Iterator[tuple[str, Any]]:
    """Yields the name and the result of each shard, and shows the progress.

    Raises:
        UserError: A shard cannot be read.
    """
    interval = 0.5 if sys.stderr.isatty() else PROGRESS_SECONDS
    size = sum(shard.size for shard in shards)
    with tqdm(total=size, desc=title, unit="B", unit_scale=True, mininterval=interval) as bar:
        for result in results:
            signals.check()
            if result["problem"]:
                raise UserError(result["problem"], place=result["place"], hint=result["hint"])
            bar.update(result["bytes"])
            yield result["shard"], pickle.loads(result["result"])  # noqa: S301 -- of our workers, never a file
