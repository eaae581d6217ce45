"""Does one shard a call with models that are loaded once: what a worker does, which knows nothing of Ray."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from data_modules.reading.shards import Shard, hash_of, opened, shown
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import set_by
from faithkit_workflows.ray.identity import check_same
from faithkit_workflows.ray.out_folder import Entry, OutFolder, job_of
from faithkit_workflows.ray.work import ShardWriter, Work
from faithkit_workflows.tables.user_table import UserTable

Columns = Sequence[tuple[str, str]]  # names with their types
SAME_VERSION = "install the same faithkit and copy the same model to every node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The settings that all workers get.

    Args:
        work: What is done.
        identity: What the command that launched them has; workers compare.
    """

    work: Work
    identity: Mapping[str, Any]


class ShardWorker:
    """Does shards: gives of each what it came to, and of one that cannot be done the reason."""

    def __init__(self, job: Job):
        self.job = job
        self.folder = OutFolder(job.work.out)

    @set_by("out")
    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Does a shard unless it is finished, as after a worker's death that came behind the last write."""
        shard, is_ready = Shard(**row), False
        try:
            entry = self.folder.entry(shard)
            if entry is None:
                writer, is_ready = self.writer, True
                entry = self._do(shard, writer)
        except UserError as error:
            place = error.place or shown(self.job.work.data)
            problem = {"problem": error.problem, "place": place, "hint": error.hint or ""}
            return {"shard": shard.name, "bytes": shard.size, "entry": None, "stops": not is_ready, **problem}
        nothing = {"stops": False, "problem": "", "place": "", "hint": ""}
        return {"shard": shard.name, "bytes": shard.size, "entry": entry.model_dump_json(), **nothing}

    @cached_property
    def writer(self) -> ShardWriter:
        """Loads the models.

        Raises:
            UserError: They or the code are not those of the command.
        """
        import torch

        work = self.job.work
        torch.set_num_threads(work.ray.cpus)
        here = work.identify()
        wanted = {name: self.job.identity[name] for name in here}
        check_same(here, wanted, "a worker", place=work.place, hint=SAME_VERSION)
        return work.load()

    def _do(self, shard: Shard, writer: ShardWriter) -> Entry:
        work, begun = self.job.work, time.process_time()
        with self.folder.scratch(shard) as scratch:
            made = Path(scratch, "made.parquet")
            with opened(work.data, shard) as file, named(shard, file):
                digest = hash_of(file)
                rows = work.read(file)
                check_columns(columns_of(work, rows), self.job.identity["columns"], shard)
                shares = writer.write(made, rows)
            entry = Entry(
                job=job_of(work.data, self.job.identity),
                shard=shard.name,
                bytes=shard.size,
                stamp=shard.stamp,
                sha256=digest,
                output_bytes=made.stat().st_size,
                rows=rows.num_read,
                rejected=rows.report.counts["rejected: bad row"],
                unsure=shares.num_unsure,
                grouped_by=rows.grouped_by,
                kinds=shares.kinds(),
                device=writer.device,
                cpu_seconds=round(time.process_time() - begun, 3),
            )
            rejects = [{**reject, "file": shard.name} for reject in rows.report.rejects]
            self.folder.commit(shard, made, rejects, entry)
        return entry


def columns_of(work: Work, rows: UserTable) -> Columns:
    """Gives the columns of a new shard with their types."""
    return [(field.name, str(field.type)) for field in work.schema(rows)]


def check_columns(found: Columns, wanted: Columns, shard: Shard) -> None:
    """Refuses a shard with other columns than the first: together they would be no table."""
    here, first = (dict(columns) for columns in (found, wanted))
    for name in {**first, **here}:
        if here.get(name) != first.get(name):
            kinds = f"{here.get(name, 'missing')} here, and {first.get(name, 'missing')} in the first shard"
            hint = "write all shards with the same columns, as Parquet where types differ"
            raise UserError(f"column {shorten(name)} is {kinds}", place=shard.name, hint=hint)


@contextmanager
def named(shard: Shard, file: Path) -> Iterator[None]:
    """Names the shard in errors, whose file may be a copy for a moment."""
    try:
        yield
    except UserError as error:
        place = (error.place or shard.name).replace(str(file), shard.name)
        raise UserError(error.problem, place=place, hint=error.hint) from error
