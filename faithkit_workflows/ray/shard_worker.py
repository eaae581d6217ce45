"""Does one shard per call with models that are loaded once: the class that runs in each worker, independent of Ray."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from data_modules.reading.files import is_address
from data_modules.reading.shards import Shard, hash_of, opened, shown
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import set_by
from faithkit_workflows.ray.out_folder import FinishedShard, OutFolder, check_same, job_hash
from faithkit_workflows.settings.engines import RayOptions
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import UserTable

if TYPE_CHECKING:
    from faithkit.records import Prediction
    from faithkit_workflows.answering.strategies import Answerer

Columns = Sequence[tuple[str, str]]  # names with their types
PATHS = ("checkpoint", "detector", "out")  # keys of a command that may name files
SAME_VERSION = "install the same faithkit and copy the same model to every node"


class ShardWriter(Protocol):
    """Loaded models that make a new shard from the rows of an old one."""

    @property
    def device(self) -> str:
        """Names the device that the models run on."""
        ...

    def write(self, path: Path, rows: UserTable) -> ShareCounter:
        """Writes the rows with the added columns; returns the counted verdicts, if there are any."""
        ...


class Work(Protocol):
    """What a command does with shards. It is sent to the workers, so it contains settings only.

    Args:
        done: Names it in messages: scored, answered.
        judges: It gives verdicts, whose share is reported.
        data: The folder, glob or address of the shards.
        out: The folder of the new ones.
        place: The checkpoint, as errors name it.
        num_resamples: Bootstrap resamples of an interval.
    """

    done: str
    judges: bool
    data: str
    out: str
    place: str
    ray: RayOptions
    num_resamples: int

    def identify(self) -> dict[str, Any]:
        """Collects what the results depend on, as plain values that two processes can compare."""
        ...

    def read(self, file: Path) -> UserTable:
        """Reads the rows of a shard; a bad one is kept without a result.

        Raises:
            UserError: No row can be used.
        """
        ...

    def schema(self, rows: UserTable) -> Any:
        """Gives the columns of a new shard and their types."""
        ...

    def load(self) -> ShardWriter:
        """Loads the models."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The settings that all workers get.

    Args:
        identity: Of the command that started them; workers compare it with theirs.
    """

    work: Work
    identity: Mapping[str, Any]


class ShardWorker:
    """Does shards; returns the record of each, or the reason why it failed."""

    def __init__(self, job: Job):
        self.job = job
        self.folder = OutFolder(job.work.out)

    @set_by("out")
    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Does a shard unless it is finished, as when a worker died after its last write."""
        shard, is_ready = Shard(**row), False
        result = {"shard": shard.name, "bytes": shard.size, "stops": False, "problem": "", "place": "", "hint": ""}
        try:
            record = self.folder.record(shard)
            if record is None:
                writer, is_ready = self.writer, True
                record = self._do(shard, writer)
        except UserError as error:
            place = error.place or shown(self.job.work.data)
            problem = {"problem": error.problem, "place": place, "hint": error.hint or ""}
            return {**result, "record": None, "stops": not is_ready, **problem}
        return {**result, "record": record.model_dump_json()}

    @cached_property
    def writer(self) -> ShardWriter:
        """Loads the models.

        Raises:
            UserError: They or the code differ from those of the command.
        """
        import torch

        work = self.job.work
        torch.set_num_threads(work.ray.cpus)
        here = work.identify()
        wanted = {name: self.job.identity[name] for name in here}
        check_same(here, wanted, "a worker", place=work.place, hint=SAME_VERSION)
        return work.load()

    def _do(self, shard: Shard, writer: ShardWriter) -> FinishedShard:
        work, begun = self.job.work, time.process_time()
        with self.folder.scratch(shard) as scratch:
            made = Path(scratch, "made.parquet")
            with opened(work.data, shard) as file:
                digest = hash_of(file)
                rows = work.read(file)
                check_columns(columns_of(work, rows), self.job.identity["columns"], shard)
                shares = writer.write(made, rows)
            record = FinishedShard(
                job=job_hash(work.data, self.job.identity),
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
            self.folder.commit(shard, made, rejects, record)
        return record


def columns_of(work: Work, rows: UserTable) -> Columns:
    """Gives the columns of a new shard with their types."""
    return [(field.name, str(field.type)) for field in work.schema(rows)]


def check_columns(found: Columns, wanted: Columns, shard: Shard) -> None:
    """Refuses a shard whose columns differ from those of the first: together they would be no table."""
    here, first = dict(found), dict(wanted)
    for name in {**first, **here}:
        if here.get(name) != first.get(name):
            kinds = f"{here.get(name, 'missing')} here, and {first.get(name, 'missing')} in the first shard"
            hint = "write all shards with the same columns, as Parquet where types differ"
            raise UserError(f"column {shorten(name)} is {kinds}", place=shard.name, hint=hint)


def answer_rows(rows: UserTable, answerer: "Answerer", chunk_size: int) -> "Iterator[Prediction]":
    """Answers or judges the usable rows, chunk by chunk."""
    from faithkit_workflows.answering.write_answers import answer_in_chunks

    for _, answers in answer_in_chunks(rows.examples, answerer, chunk_size=chunk_size):
        yield from answers


def with_absolute_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the paths of a command absolute, since workers run in another folder."""
    return {**config, **{key: absolute_path(config[key], key) for key in PATHS if config.get(key)}}


def absolute_path(path: str, key: str = "") -> str:
    """Makes a path absolute, but not an address or the name of a model on the hub."""
    place = Path(path).expanduser()
    if is_address(path) or (key in ("checkpoint", "detector") and not place.exists()):
        return path
    return str(place.absolute())
