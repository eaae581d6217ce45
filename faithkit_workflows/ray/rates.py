"""Reads scored shards for their rates, twice where people labelled some rows: on a cluster, or here one by one."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from construction.estimate.shard_labels import Showing, places_to_show, rows_to_label
from construction.estimate.shard_rates import ShardRates
from construction.estimate.shard_steps import Counting
from construction.estimate.shard_verdicts import ShardColumns
from construction.estimate.verdict_tables import Labels, labels_of, read_labels
from data_modules.reading.shards import Shard, find_shards, opened, shown
from faithkit import signals
from faithkit.errors import UserError
from faithkit.statistics.prediction_powered import LabelSums
from faithkit_workflows.ray.cluster import connected, run_on_cluster
from faithkit_workflows.ray.run_shards import EVERY, Runner
from faithkit_workflows.ray.shard_worker import absolute_path, named
from faithkit_workflows.settings.engines import RayOptions

PARQUET = ".parquet"
Step = Callable[[Path, str], dict[str, Any]]  # of the file, and of its name below the data


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The settings that workers get.

    Args:
        data: The folder, glob or address of the shards.
        step: Reads a shard.
    """

    data: str
    step: Step


class ShardReader:
    """Reads a shard a call: gives what it came to, or the reason why it cannot be read."""

    def __init__(self, reading: Reading):
        self.reading = reading

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Reads a shard; what it gives is JSON, since a table of Ray's wants every row alike."""
        shard = Shard(**row)
        try:
            with opened(self.reading.data, shard) as file, named(shard, file):
                found = json.dumps(self.reading.step(file, shard.name))
        except UserError as error:
            problem = {"problem": error.problem, "place": error.place or shard.name, "hint": error.hint or ""}
            return {"shard": shard.name, "bytes": shard.size, "found": "", **problem}
        return {"shard": shard.name, "bytes": shard.size, "found": found, "problem": "", "place": "", "hint": ""}


def in_this_process(worker: type, argument: Any, rows: Sequence[Mapping[str, Any]], _: RayOptions) -> Iterator[Any]:
    """Calls one worker of this process for all rows, in the place of a cluster."""
    return map(worker(argument), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEstimate:
    """The sums that were read of shards.

    Args:
        labels: Those of these rows; None where none are given.
        sums: Of the parts that have labels.
        next_rows: Those to label next, and those that are labelled.
    """

    rates: ShardRates
    labels: Labels | None
    sums: dict[str | None, LabelSums]
    next_rows: list[dict[str, object]]


def estimate_shards(
    block: Mapping[str, Any], ray: RayOptions | None, run: Runner | None = None, *, seed: int = 0
) -> ShardEstimate:
    """Reads all shards.

    Args:
        block: `pipeline` of `pipeline=estimate`.
        ray: None reads on this machine.
        run: Calls the workers; None does as `ray` says.
        seed: Of the rows to label next.

    Raises:
        UserError: A shard cannot be read, or the labels do not fit.
    """
    data, options = absolute_path(block["predictions"]), ray or RayOptions()
    shards = [shard for shard in find_shards(data)[0] if shard.name.endswith(PARQUET)]
    if not shards:
        hint = "scored shards are Parquet: faithkit score ... engine=ray writes them"
        raise UserError("there are no shards of Parquet", place=shown(data), hint=hint)
    with opened(data, shards[0]) as file, named(shards[0], file):
        columns = ShardColumns.of(file, block["columns"], block["by"])
    labels = read_labels(block["labels"], block["label_columns"], None) if block["labels"] else None
    if labels is not None and not labels.values and block["label_next"] is None:
        hint = "label some rows, or choose the first: pipeline.labels=null pipeline.label_next=50"
        raise UserError("nothing is labelled yet: every label is empty", place=block["labels"], hint=hint)
    draw, ids = block["label_next"] or 0, frozenset(labels.values if labels else ())
    num_waves = max(len(labels.waves), bool(labels.values)) if labels else 0  # a draw of its own each
    needs_ids = draw or labels is not None
    counting = Counting(columns=columns, ids=ids if needs_ids else None, draw=draw, seed=seed + num_waves)
    rates = ShardRates(counting, power=block["power"], num_resamples=block["num_resamples"])

    def read(step: Step, told: str, of: Sequence[Shard] = shards) -> Iterator[tuple[str, Any]]:
        runner = run or (run_on_cluster if ray is not None else in_this_process)
        rows = [shard.to_dict() for shard in of]
        return _results(runner(ShardReader, Reading(data=data, step=step), rows, options), of, told)

    sums, rows = dict[str | None, LabelSums](), list[dict[str, object]]()
    with connected(options) if ray is not None and run is None else nullcontext():  # for all readings
        for name, found in read(counting, "reading"):
            rates.add(name, found)
        if labels is not None and labels.values:
            labels = labels_of(labels, rates.found, block["labels"])
            weighed = rates.weigh(labels)
            step = rates.leaving_out(weighed, *([None] if block["width"] is not None else []))
            sums = rates.add_up(step, weighed, read(step, "leaving groups out"))
        if draw:
            places = places_to_show(rates, draw)
            showing = Showing(columns=columns, places=places)
            having = [shard for shard in shards if shard.name in places]
            rows = rows_to_label(rates, labels, read(showing, "choosing", having))
    return ShardEstimate(rates=rates, labels=labels, sums=sums, next_rows=rows)


def _results(results: Iterator[Any], shards: Sequence[Shard], told: str) -> Iterator[tuple[str, Any]]:
    """Yields the name of each shard with what was read of it, and shows how far it is.

    Raises:
        UserError: One cannot be read: rates are of all shards.
    """
    interval = 0.5 if sys.stderr.isatty() else EVERY
    size = sum(shard.size for shard in shards)
    with tqdm(total=size, desc=told, unit="B", unit_scale=True, mininterval=interval) as bar:
        for result in results:
            signals.check()
            if result["problem"]:
                raise UserError(result["problem"], place=result["place"], hint=result["hint"])
            bar.update(result["bytes"])
            yield result["shard"], json.loads(result["found"])
