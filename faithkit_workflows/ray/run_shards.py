"""Carries out a command with `engine=ray`: lists the shards, runs the unfinished ones, and reports the result.

Ray Data does placement, restarts, retries and back-pressure. A worker is an actor that gets one row per call. When a
worker or its node dies, Ray restarts it or gives its row to another.
"""

import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.table import Table
from tqdm.auto import tqdm

from construction.labels import newest_names
from data_modules.reading.shards import Shard, check_outputs, find_shards, opened, shown, some_names
from faithkit import signals
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import make_folder, set_by
from faithkit.files.run_folder import run_lock
from faithkit.pages.page_tables import print_tables
from faithkit.signals import Interrupted
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import proportion_from_counts
from faithkit_workflows.ray.out_folder import FinishedShard, OutFolder
from faithkit_workflows.ray.shard_worker import ShardWorker, Work
from faithkit_workflows.settings.engines import RayOptions
from faithkit_workflows.tables.shares import MAX_SHOWN_VALUES, shares_table
from faithkit_workflows.tables.user_table import print_renamed_columns

GIB = 2**30


def run_on_cluster(
    worker: type,
    argument: Any,
    rows: Sequence[Mapping[str, Any]],
    options: RayOptions,
) -> Iterator[Any]:
    """Yields the results of the rows as they finish.

    Args:
        worker: A class; each worker makes an object of it with the argument, and calls it with rows.
        rows: Items of work. Their results are stored, so workers may be restarted any number of times.

    Raises:
        UserError: The cluster does not answer or has too few resources, a worker cannot start.
    """
    with connected(options) as ray:
        from ray.data import ActorPoolStrategy, DataContext

        context = DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        gpus = options.gpus
        if gpus is None:
            gpus = 1.0 if ray.cluster_resources().get("GPU") else 0.0
        size = min(_room(ray, options, gpus), len(rows))
        most = size if options.workers else None  # a cluster may grow
        # The pool may shrink to one worker: idle ones make room for one that died with its node.
        pool = ActorPoolStrategy(min_size=1, max_size=most, initial_size=size, max_tasks_in_flight_per_actor=1)
        memory = int(options.memory_gb * GIB) if options.memory_gb else None
        # Of more blocks, one task has several shards; finished ones are skipped when it is retried.
        results = ray.data.from_items(list(rows), override_num_blocks=min(len(rows), 10_000)).map(
            worker,
            fn_constructor_args=[argument],
            compute=pool,
            num_cpus=options.cpus,
            num_gpus=gpus or None,
            memory=memory,
        )
        try:
            yield from results.iter_rows()
        except ray.exceptions.RayActorError as error:
            reason = [line for line in str(error).splitlines() if line.strip()][-1]
            hint = "see that every node has this faithkit and its extra ray"
            raise UserError(f"a worker cannot start: {shorten(reason, 200)}", hint=hint) from error


@contextmanager
def connected(options: RayOptions) -> Iterator[Any]:
    """Connects to a cluster, or starts a local one that ends with this process; reuses an open connection.

    Raises:
        UserError: The cluster does not answer.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would send usage data
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # internal warnings
    import ray
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # it raises the errors that it logs
    if ray.is_initialized():  # by the caller
        yield ray
        return
    address = options.address or os.environ.get("RAY_ADDRESS") or "local"
    local: dict[str, Any] = {}
    if address == "local":
        cpus = options.workers * options.cpus if options.workers else None
        # Only names and counts pass through the object store.
        local = {"num_cpus": cpus, "object_store_memory": 100_000_000, "include_dashboard": False}
    elif address != "auto":
        # `ray.init` would wait for minutes, and then end the process.
        host, _, port = address.rpartition(":")
        command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
        try:
            socket.create_connection((host, int(port)), options.timeout_seconds).close()
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout_seconds)
        except OSError as error:
            raise _no_answer(address, str(error)) from error
        except subprocess.TimeoutExpired as error:
            raise _no_answer(address, f"no answer in {options.timeout_seconds:g} s") from error
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
            raise _no_answer(address, shorten(lines[-1], 200))
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_answer(address, shorten(str(error).splitlines()[0], 200)) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)  # Ray's handler would end the process at once
    try:
        yield ray
    finally:
        ray.shutdown()


def _no_answer(address: str, reason: str) -> UserError:
    hint = "see `ray status` on its head; without ray.address the command uses this machine"
    return UserError(f"no Ray cluster answers at {address}: {reason}", hint=hint)


def _room(ray: Any, options: RayOptions, gpus: float) -> int:
    """Counts the workers that fit on the nodes.

    Raises:
        UserError: Fewer fit than are needed.
    """
    needs = {"CPU": options.cpus, "GPU": gpus, "memory": (options.memory_gb or 0) * GIB}
    wanted = {name: amount for name, amount in needs.items() if amount}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(min(int(node.get(name, 0) / amount) for name, amount in wanted.items()) for node in nodes)
    least = options.workers or 1
    if room >= least:
        return options.workers or room
    shown = {
        name: f"{amount / GIB:.1f} GiB of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in wanted.items()
    }
    problem = f"the cluster has room for {room} workers of {', '.join(shown.values())}, and {least} are needed"
    best = max((node.get("memory", 0) / GIB for node in nodes), default=0)
    hint = (
        f"ray.workers={room}" if room else f"lower ray.cpus, ray.gpus or ray.memory_gb: a node has up to {best:.1f} GiB"
    )
    raise UserError(problem, hint=hint)


AGAIN = "run the same command again: what is finished stays"
Runner = Callable[[type, Any, Sequence[Mapping[str, Any]], RayOptions], Iterator[Any]]
Kinds = Counter[tuple[int, int]]  # the number of groups with so many rows and so many hallucinated rows
ALL = ""  # the column of all rows


@set_by("out")
def work_on_shards(work: Work, run: Runner = run_on_cluster) -> None:
    """Does all shards that are not finished.

    Args:
        run: Calls the workers.

    Raises:
        UserError: The folder is of another model or settings, a shard has changed, or some shards fail.
    """
    shards, others = find_shards(work.data)
    check_outputs(shards, work.data)
    print(f"{len(shards):,} shards in {shown(work.data)}")
    if others:
        print(f"note: files of other kinds are left out: {some_names(others)}")
    folder = OutFolder(work.out)
    make_folder(folder.state)
    with run_lock(folder.state, "out"):
        columns = folder.columns()  # those of the first shard of the folder's first run
        if columns is None:
            with opened(work.data, shards[0]) as file:
                columns = work.columns(work.read(file))
        work.identity = {**work.identify(), "columns": columns}
        folder.begin(work.data, work.identity)
        finished, summary = set(), Summary()
        for record in folder.finished(shards, work.data):
            finished.add(record.shard)
            summary.add(record)
        pending = [shard for shard in shards if shard.name not in finished]
        if finished:
            print(f"{len(finished):,} are {work.done} already, {len(pending):,} are left")
        failures = _run_workers(pending, work, summary, run) if pending else []
        if summary.num_shards:
            if work.judges:
                print_tables(summary.table(num_resamples=work.num_resamples))
            print(f"{summary.num_rows:,} rows in {summary.num_shards:,} shards")
        if summary.num_rejected:
            rejects = folder.state / "rejects"
            print(f"note: {summary.num_rejected:,} rows cannot be {work.done}; {rejects} lists the reasons")
        if work.judges and summary.num_shards:
            predictions = shlex.quote(f"pipeline.predictions={folder.path}")
            print("note: this is the detector's share; by any column, and with labels of some rows that correct it:")
            print(f"  faithkit construct pipeline=estimate {predictions} pipeline.by=COLUMN")
            print_renamed_columns(newest_names([name for name, _ in folder.columns() or ()]))
        print(folder.path)
        if failures:
            first = failures[0]
            more = f"{len(failures):,} of {len(shards):,} shards are not {work.done}; the first: "
            hint = f"{first.hint}; then {AGAIN}" if first.hint else AGAIN
            raise UserError(f"{more if len(shards) > 1 else ''}{first.problem}", place=first.place, hint=hint)


def _run_workers(pending: Sequence[Shard], work: Work, summary: "Summary", run: Runner) -> list[UserError]:
    """Runs the workers, and shows their progress in bytes, since the number of rows is not known.

    Raises:
        UserError: A worker cannot work at all.
    """
    results = run(ShardWorker, work, [shard.to_dict() for shard in pending], work.ray)
    interval = 0.5 if sys.stderr.isatty() else 30.0  # seconds between progress lines
    num_bytes, num_rows, failures = sum(shard.size for shard in pending), 0, list[UserError]()
    try:
        with tqdm(total=num_bytes, desc="shards", unit="B", unit_scale=True, mininterval=interval) as bar:
            for result in results:
                signals.check()
                if result["record"]:
                    record = FinishedShard.model_validate_json(result["record"])
                    summary.add(record)
                    num_rows += record.rows
                else:
                    error = UserError(result["problem"], place=result["place"], hint=result["hint"])
                    if result["stops"]:
                        raise error
                    failures.append(error)
                    bar.write(f"{result['shard']}: {result['problem']}", file=sys.stderr)
                speed = num_rows / (bar.format_dict["elapsed"] or 1)
                shown_speed = f"{num_rows:,} rows, {speed:,.1f} rows/s, {len(failures)} failed"
                bar.set_postfix_str(shown_speed, refresh=False)
                bar.update(result["bytes"])
    except Interrupted as error:
        raise Interrupted(AGAIN) from error
    return failures


class Summary:
    """Adds up rows and the hallucinated share by column over shards; memory does not grow with the rows.

    A group in several shards counts as one in each.
    """

    def __init__(self) -> None:
        self.num_shards = self.num_rows = self.num_rejected = self.num_unsure = 0
        self.grouped_by = "group"
        self._kinds: dict[str, dict[str, Kinds]] = {}

    def add(self, record: FinishedShard) -> None:
        """Adds a shard."""
        self.num_shards += 1
        self.num_rows += record.rows
        self.num_rejected += record.rejected
        self.num_unsure += record.unsure
        self.grouped_by = record.grouped_by
        for column, values in record.kinds.items():
            for value, kinds in values.items():
                total = self._kinds.setdefault(column, {}).setdefault(value, Counter())
                for rows, hallucinated, count in kinds:
                    total[rows, hallucinated] += count

    def table(self, *, num_resamples: int) -> Table:
        """Makes the table of the shares of all rows and of each value of each column, with intervals."""
        columns = [column for column in self._kinds if column != ALL]
        parts: list[tuple[str, int, Metric | None]] = []
        for column, values in self._kinds.items():
            prefix = f"{column}: " if len(columns) > 1 and column != ALL else ""
            ordered = sorted(values, key=lambda value: (-_num_rows(values[value]), value))
            found = {prefix + value: values[value] for value in ordered[:MAX_SHOWN_VALUES]}
            if others := ordered[MAX_SHOWN_VALUES:]:
                together: Kinds = Counter()
                for value in others:
                    together.update(values[value])
                found[f"{prefix}the other {len(others):,} values"] = together
            for name, kinds in found.items():
                counts = [[rows, hallucinated, count] for (rows, hallucinated), count in sorted(kinds.items())]
                parts.append((name, _num_rows(kinds), proportion_from_counts(counts, num_resamples=num_resamples)))
        num_without = self.num_rows - self.num_unsure - (parts[0][1] if parts else 0)
        return shares_table(columns, parts, self.grouped_by, num_unsure=self.num_unsure, num_without=num_without)


def _num_rows(kinds: Kinds) -> int:
    return sum(rows * count for (rows, _), count in kinds.items())
