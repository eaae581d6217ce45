"""Carries out a command with `engine=ray`: lists the shards, launches what is not finished, tells what came of it."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from tqdm.auto import tqdm

from construction.estimate.verdict_columns import newest_names
from data_modules.reading.shards import Shard, check_outputs, find_shards, opened, shown, some_names
from faithkit import signals
from faithkit.errors import UserError
from faithkit.files.atomic import make_folder, set_by
from faithkit.files.run_lock import run_lock
from faithkit.pages.tables import print_tables
from faithkit.signals import Interrupted
from faithkit.statistics.group_counts import proportion_from_counts
from faithkit.statistics.metric import Metric
from faithkit_workflows.ray.cluster import run_on_cluster
from faithkit_workflows.ray.out_folder import OWN, Entry, OutFolder
from faithkit_workflows.ray.shard_worker import Job, ShardWorker, Work, columns_of
from faithkit_workflows.settings.engines import RayOptions
from faithkit_workflows.tables.scored_rows import print_renamed_columns
from faithkit_workflows.tables.shares import MAX_SHOWN_VALUES, make_caption, shares_table

ALL = ""  # the column of all rows
Kinds = Counter[tuple[int, int]]  # rows of a group and hallucinated ones, how often


class Summary:
    """The sum of accounts."""

    def __init__(self) -> None:
        self.num_shards = self.num_rows = self.num_rejected = self.num_unsure = 0
        self.grouped_by = "group"
        self._kinds: dict[str, dict[str, Kinds]] = {}

    def add(self, entry: Entry) -> None:
        """Adds the account of a shard."""
        self.num_shards += 1
        self.num_rows += entry.rows
        self.num_rejected += entry.rejected
        self.num_unsure += entry.unsure
        self.grouped_by = entry.grouped_by
        for column, values in entry.kinds.items():
            known = self._kinds.setdefault(column, {})
            for value, kinds in values.items():
                found = known.setdefault(value, Counter())
                for rows, called, count in kinds:
                    found[rows, called] += count

    def table(self, *, num_resamples: int) -> Table:
        """Shows the share of all rows, and of each value of each column, with their intervals."""
        columns = [column for column in self._kinds if column != ALL]
        parts = list(self._parts(columns))
        shares = ((name, number, _share(kinds, num_resamples)) for name, number, kinds in parts)
        table = shares_table(columns, shares)
        without = self.num_rows - self.num_unsure - (parts[0][1] if parts else 0)
        table.caption = make_caption(self.grouped_by, num_unsure=self.num_unsure, num_without=without)
        return table

    def _parts(self, columns: Sequence[str]) -> Iterator[tuple[str, int, Kinds]]:
        for column, values in self._kinds.items():
            before = f"{column}: " if len(columns) > 1 and column != ALL else ""
            sizes = {value: sum(rows * count for (rows, _), count in kinds.items()) for value, kinds in values.items()}
            ordered = sorted(values, key=lambda value: (-sizes[value], value))
            for value in ordered[:MAX_SHOWN_VALUES]:
                yield before + value, sizes[value], values[value]
            if rest := ordered[MAX_SHOWN_VALUES:]:
                together: Kinds = Counter()
                for value in rest:
                    together.update(values[value])
                yield f"{before}the other {len(rest):,} values", sum(sizes[value] for value in rest), together


def _share(kinds: Kinds, num_resamples: int) -> Metric | None:
    counted = [[rows, called, count] for (rows, called), count in sorted(kinds.items())]
    return proportion_from_counts(counted, num_resamples=num_resamples)


AGAIN = "run the same command again: what is finished stays"
Runner = Callable[[type, Any, Sequence[Mapping[str, Any]], RayOptions], Iterator[Any]]
NOTE = """note: this is the detector's share; by any column, and with labels of some rows that correct it:
  faithkit construct pipeline=estimate {predictions} pipeline.by=COLUMN"""
EVERY = 30.0  # seconds between progress lines where nobody looks at a terminal


@set_by("out")
def work_on_shards(work: Work, run: Runner = run_on_cluster) -> None:
    """Does all shards that are not finished.

    Args:
        run: Calls the workers.

    Raises:
        UserError: The folder is of another model or settings, a shard has changed, or some could not be done.
    """
    shards, others = find_shards(work.data)
    check_outputs(shards, work.data)
    print(f"{len(shards):,} shards in {shown(work.data)}")
    if others:
        print(f"note: files of other kinds are left out: {some_names(others)}")
    folder = OutFolder(work.out)
    make_folder(folder.own)
    with run_lock(folder.own, "out"):
        job = Job(work=work, identity=_identity(work, shards[0], folder))
        folder.begin(work.data, job.identity)
        finished, summary = set(), Summary()
        for entry in folder.finished(shards, work.data):
            finished.add(entry.shard)
            summary.add(entry)
        pending = [shard for shard in shards if shard.name not in finished]
        if finished:
            print(f"{len(finished):,} are {work.done} already, {len(pending):,} are left")
        failures = _launch(pending, job, summary, run) if pending else []
        _tell(summary, folder, work)
        if failures:
            raise _failure(failures, len(shards), work)


def _identity(work: Work, first: Shard, folder: OutFolder) -> dict[str, Any]:
    """Names what the results depend on; the columns are those of the first shard that was ever seen."""
    columns = folder.columns()
    if columns is None:
        with opened(work.data, first) as file:
            columns = columns_of(work, work.read(file))
    return {**work.identify(), "columns": columns}


def _launch(pending: Sequence[Shard], job: Job, summary: Summary, run: Runner) -> list[UserError]:
    rows = [shard.to_dict() for shard in pending]
    results = run(ShardWorker, job, rows, job.work.ray)
    failures: list[UserError] = []
    try:
        for entry, error in _told(results, sum(shard.size for shard in pending)):
            if entry is not None:
                summary.add(entry)
            if error is not None:
                failures.append(error)
    except Interrupted as error:
        raise Interrupted(AGAIN) from error
    return failures


def _told(results: Iterable[Mapping[str, Any]], num_bytes: int) -> Iterator[tuple[Entry | None, UserError | None]]:
    """Reads what workers give, and shows how far they are: bytes tell the remaining time, whose rows are not known.

    Raises:
        UserError: A worker cannot work at all.
    """
    interval = 0.5 if sys.stderr.isatty() else EVERY
    options: dict[str, Any] = {"unit": "B", "unit_scale": True, "mininterval": interval}
    num_rows = num_failed = 0
    with tqdm(total=num_bytes, desc="shards", **options) as bar:
        for result in results:
            signals.check()
            if result["stops"]:
                raise UserError(result["problem"], place=result["place"], hint=result["hint"])
            entry = Entry.model_validate_json(result["entry"]) if result["entry"] else None
            num_rows += entry.rows if entry else 0
            num_failed += entry is None
            seconds = bar.format_dict["elapsed"] or 1
            bar.set_postfix_str(
                f"{num_rows:,} rows, {num_rows / seconds:,.1f} rows/s, {num_failed} failed", refresh=False
            )
            bar.update(result["bytes"])
            error = None
            if entry is None:
                error = UserError(result["problem"], place=result["place"], hint=result["hint"])
                bar.write(f"{result['shard']}: {result['problem']}", file=sys.stderr)
            yield entry, error


def _tell(summary: Summary, folder: OutFolder, work: Work) -> None:
    if summary.num_shards:
        if work.judges:
            print_tables(summary.table(num_resamples=work.num_resamples))
        print(f"{summary.num_rows:,} rows in {summary.num_shards:,} shards")
    if summary.num_rejected:
        print(f"note: {summary.num_rejected:,} rows cannot be {work.done}; {folder.path / OWN / 'rejects'} says why")
    if work.judges and summary.num_shards:
        print(NOTE.format(predictions=shlex.quote(f"pipeline.predictions={folder.path}")))
        _tell_names(folder)
    print(folder.path)


def _tell_names(folder: OutFolder) -> None:
    """Says where the verdicts stand: in the newest columns that are called as those that scoring adds."""
    names = [name for name, _ in folder.columns() or ()]
    print_renamed_columns(newest_names(names))


def _failure(failures: Sequence[UserError], num_shards: int, work: Work) -> UserError:
    first = failures[0]
    more = f"{len(failures):,} of {num_shards:,} shards are not {work.done}; the first: " if num_shards > 1 else ""
    hint = f"{first.hint}; then {AGAIN}" if first.hint else AGAIN
    return UserError(f"{more}{first.problem}", place=first.place, hint=hint)
