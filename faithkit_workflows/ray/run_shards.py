"""Carries out a command with `engine=ray`: lists the shards, runs the unfinished ones, and reports the result."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from tqdm.auto import tqdm

from construction.estimate.labels import newest_names
from data_modules.reading.shards import Shard, check_outputs, find_shards, opened, shown, some_names
from faithkit import signals
from faithkit.errors import UserError
from faithkit.files.atomic import make_folder, set_by
from faithkit.files.run_lock import run_lock
from faithkit.pages.page_tables import print_tables
from faithkit.signals import Interrupted
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import proportion_from_counts
from faithkit_workflows.ray.cluster import run_on_cluster
from faithkit_workflows.ray.out_folder import FinishedShard, OutFolder
from faithkit_workflows.ray.shard_worker import ShardWorker, Work
from faithkit_workflows.settings.engines import RayOptions
from faithkit_workflows.tables.scored_rows import print_renamed_columns
from faithkit_workflows.tables.shares import MAX_SHOWN_VALUES, make_caption, shares_table

AGAIN = "run the same command again: what is finished stays"
Runner = Callable[[type, Any, Sequence[Mapping[str, Any]], RayOptions], Iterator[Any]]
Kinds = Counter[tuple[int, int]]  # the number of groups with so many rows and so many hallucinated rows
ALL = ""  # the column of all rows
PROGRESS_SECONDS = 30.0  # between progress lines that do not go to a terminal
NOTE = """note: this is the detector's share; by any column, and with labels of some rows that correct it:
  faithkit construct pipeline=estimate {predictions} pipeline.by=COLUMN"""


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
        work.identity = _identify(work, shards[0], folder)
        folder.begin(work.data, work.identity)
        finished, summary = set(), Summary()
        for record in folder.finished(shards, work.data):
            finished.add(record.shard)
            summary.add(record)
        pending = [shard for shard in shards if shard.name not in finished]
        if finished:
            print(f"{len(finished):,} are {work.done} already, {len(pending):,} are left")
        failures = _run_workers(pending, work, summary, run) if pending else []
        _print_summary(summary, folder, work)
        if failures:
            first = failures[0]
            more = f"{len(failures):,} of {len(shards):,} shards are not {work.done}; the first: "
            hint = f"{first.hint}; then {AGAIN}" if first.hint else AGAIN
            raise UserError(f"{more if len(shards) > 1 else ''}{first.problem}", place=first.place, hint=hint)


def _identify(work: Work, first: Shard, folder: OutFolder) -> dict[str, Any]:
    """Collects what the results depend on; the columns are those of the first shard of the folder's first run."""
    columns = folder.columns()
    if columns is None:
        with opened(work.data, first) as file:
            columns = work.columns(work.read(file))
    return {**work.identify(), "columns": columns}


def _run_workers(pending: Sequence[Shard], work: Work, summary: "Summary", run: Runner) -> list[UserError]:
    """Runs the workers, and shows their progress in bytes, since the number of rows is not known.

    Raises:
        UserError: A worker cannot work at all.
    """
    results = run(ShardWorker, work, [shard.to_dict() for shard in pending], work.ray)
    interval = 0.5 if sys.stderr.isatty() else PROGRESS_SECONDS
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


def _print_summary(summary: "Summary", folder: OutFolder, work: Work) -> None:
    if summary.num_shards:
        if work.judges:
            print_tables(summary.table(num_resamples=work.num_resamples))
        print(f"{summary.num_rows:,} rows in {summary.num_shards:,} shards")
    if summary.num_rejected:
        rejects = folder.state / "rejects"
        print(f"note: {summary.num_rejected:,} rows cannot be {work.done}; {rejects} lists the reasons")
    if work.judges and summary.num_shards:
        print(NOTE.format(predictions=shlex.quote(f"pipeline.predictions={folder.path}")))
        print_renamed_columns(newest_names([name for name, _ in folder.columns() or ()]))
    print(folder.path)


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
        parts = list(self._parts(columns))
        table = shares_table(columns, ((name, size, _share(kinds, num_resamples)) for name, size, kinds in parts))
        num_without = self.num_rows - self.num_unsure - (parts[0][1] if parts else 0)
        table.caption = make_caption(self.grouped_by, num_unsure=self.num_unsure, num_without=num_without)
        return table

    def _parts(self, columns: Sequence[str]) -> Iterator[tuple[str, int, Kinds]]:
        for column, values in self._kinds.items():
            prefix = f"{column}: " if len(columns) > 1 and column != ALL else ""
            sizes = {value: _num_rows(kinds) for value, kinds in values.items()}
            ordered = sorted(values, key=lambda value: (-sizes[value], value))
            for value in ordered[:MAX_SHOWN_VALUES]:
                yield prefix + value, sizes[value], values[value]
            if others := ordered[MAX_SHOWN_VALUES:]:
                together = _add_kinds(values[value] for value in others)
                yield f"{prefix}the other {len(others):,} values", _num_rows(together), together


def _num_rows(kinds: Kinds) -> int:
    return sum(rows * count for (rows, _), count in kinds.items())


def _add_kinds(parts: Iterable[Kinds]) -> Kinds:
    total: Kinds = Counter()
    for kinds in parts:
        total.update(kinds)
    return total


def _share(kinds: Kinds, num_resamples: int) -> Metric | None:
    counts = [[rows, hallucinated, count] for (rows, hallucinated), count in sorted(kinds.items())]
    return proportion_from_counts(counts, num_resamples=num_resamples)
