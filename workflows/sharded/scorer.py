"""Scores one shard a call with a detector that is loaded once: what a worker does, which knows nothing of Ray."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_modules.reading.shards import Shard, hash_of, opened, shown
from faithkit.errors import UserError, shorten
from workflows.sharded.identity import check_same, identify
from workflows.sharded.out_folder import Entry, OutFolder, job_of

if TYPE_CHECKING:
    from faithkit.detector import Detector
    from faithkit.records import Prediction
    from workflows.own_rows import OwnRows

Columns = Sequence[tuple[str, str]]  # names with their types
SAME_VERSION = "install the same faithkit and copy the same model to every node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all workers are told.

    Args:
        config: That of `faithkit score`.
        identity: What the command that launched them has; workers compare.
    """

    config: Mapping[str, Any]
    identity: Mapping[str, Any]

    @property
    def data(self) -> str:
        """The folder, glob or address of the shards."""
        return str(self.config["path"])


class ShardScorer:
    """Scores shards: gives of each what it came to, and of one that cannot be scored the reason."""

    def __init__(self, job: Job):
        self.job = job
        self.folder = OutFolder(job.config["out"])

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Scores a shard unless it is finished, as after a worker's death that came behind the last write."""
        shard, is_ready = Shard(**row), False
        try:
            entry = self.folder.entry(shard)
            if entry is None:
                detector, is_ready = self.detector, True
                entry = self._score(shard, detector)
        except UserError as error:
            place = error.place or shown(self.job.data)
            problem = {"problem": error.problem, "place": place, "hint": error.hint or ""}
            return {"shard": shard.name, "bytes": shard.size, "entry": None, "stops": not is_ready, **problem}
        nothing = {"stops": False, "problem": "", "place": "", "hint": ""}
        return {"shard": shard.name, "bytes": shard.size, "entry": entry.model_dump_json(), **nothing}

    @cached_property
    def detector(self) -> "Detector":
        """Loads the detector.

        Raises:
            UserError: The model or the code are not those of the command.
        """
        import torch

        from workflows.detectors import load_checkpoint

        config = self.job.config
        torch.set_num_threads(config["ray"]["cpus"])
        here = identify(config)
        wanted = {name: self.job.identity[name] for name in here}
        check_same(here, wanted, "a worker", place=config["checkpoint"], hint=SAME_VERSION)
        return load_checkpoint(config).detector

    def _score(self, shard: Shard, detector: "Detector") -> Entry:
        from faithkit.evaluation.selective import without_unsure
        from workflows.own_rows import listed
        from workflows.scored_rows import write_scored
        from workflows.shares import Shares

        config, begun = self.job.config, time.process_time()
        with self.folder.scratch(shard) as scratch:
            scored, shares = Path(scratch, "scored.parquet"), Shares(listed(config["by"]))
            with opened(self.job.data, shard) as file, _named(shard, file):
                digest = hash_of(file)
                rows = read_shard(file, config)
                check_columns(columns_of(rows), self.job.identity["columns"], shard)
                verdicts = without_unsure(_verdicts(rows, detector, config), config["abstain_at"])
                write_scored(scored, rows, verdicts, shares.add)
            entry = Entry(
                job=job_of(self.job.data, self.job.identity),
                shard=shard.name,
                bytes=shard.size,
                stamp=shard.stamp,
                sha256=digest,
                output_bytes=scored.stat().st_size,
                rows=rows.num_read,
                rejected=rows.report.counts["rejected: bad row"],
                unsure=shares.num_unsure,
                grouped_by=rows.grouped_by,
                kinds=shares.kinds(),
                device=str(getattr(detector, "device", "none")),
                cpu_seconds=round(time.process_time() - begun, 3),
            )
            rejects = [{**reject, "file": shard.name} for reject in rows.report.rejects]
            self.folder.commit(shard, scored, rejects, entry)
        return entry


def read_shard(file: Path, config: Mapping[str, Any]) -> "OwnRows":
    """Reads the rows of a shard as `faithkit score FILE on_bad_row=skip` does: a bad one stays without a verdict."""
    from workflows.own_rows import read_to_judge

    return read_to_judge({**config, "path": str(file), "num_rows": None, "on_bad_row": "skip"})


def columns_of(rows: "OwnRows") -> Columns:
    """Gives the columns of a scored shard with their types."""
    from workflows.scored_rows import scored_schema

    return [(field.name, str(field.type)) for field in scored_schema(rows)]


def check_columns(found: Columns, wanted: Columns, shard: Shard) -> None:
    """Refuses a shard with other columns than the first: together they would be no table."""
    here, first = (dict(columns) for columns in (found, wanted))
    for name in {**first, **here}:
        if here.get(name) != first.get(name):
            kinds = f"{here.get(name, 'missing')} here, and {first.get(name, 'missing')} in the first shard"
            hint = "write all shards with the same columns, as Parquet where types differ"
            raise UserError(f"column {shorten(name)} is {kinds}", place=shard.name, hint=hint)


def _verdicts(rows: "OwnRows", detector: "Detector", config: Mapping[str, Any]) -> Iterator["Prediction"]:
    from workflows.write_answers import DetectorAnswerer, answered_portions

    answerer = DetectorAnswerer(detector)
    for _, portion in answered_portions(rows.examples, answerer, at_a_time=config["save_every_num_rows"]):
        yield from portion


@contextmanager
def _named(shard: Shard, file: Path) -> Iterator[None]:
    """Names the shard in errors, whose file may be a copy for a moment."""
    try:
        yield
    except UserError as error:
        place = (error.place or shard.name).replace(str(file), shard.name)
        raise UserError(error.problem, place=place, hint=error.hint) from error
