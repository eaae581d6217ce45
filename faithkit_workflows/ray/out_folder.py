"""Keeps the folder of new shards: what is finished, what began it, and the rows that were no rows.

    NAME.parquet                   a shard that was scored or answered, under the name of the shard it is made of
    _faithkit/job.json             the model, the settings, the code and the columns that all shards share
    _faithkit/shards/NAME.json     written last: this shard is finished, and was this file
    _faithkit/rejects/NAME.jsonl   its rows that cannot be used, each with its place

Names that begin with `_` are left out by what reads folders of Parquet.
"""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from data_modules.reading.shards import Shard, hash_of, opened, shown, some_names
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import disk_errors, make_folder, sync_entry, write_json
from faithkit.files.jsonl import read_strict_json, write_jsonl
from faithkit.settings.types import Block, NonNegative, NonNegativeInt, Text
from faithkit_workflows.ray.identity import check_same, hash_of_identity

OWN = "_faithkit"
MAX_DEATHS = 3
ANOTHER = "choose another out, or go on with what began here"


class Entry(Block):
    """The account of a finished shard.

    Args:
        job: Names the model, the settings and the code, which job.json tells in full.
        sha256: Of the shard.
        output_bytes: Size of the new shard.
        rows: Rows that were read.
        rejected: Rows that cannot be used.
        unsure: Rows that the detector cannot tell.
        kinds: Of each value of each column, how many groups there are with so many rows, so many hallucinated.
        device: What it was computed on.
        cpu_seconds: Of the worker.
    """

    job: Text
    shard: Text
    bytes: NonNegativeInt
    stamp: str
    sha256: Text
    output_bytes: NonNegativeInt
    rows: NonNegativeInt
    rejected: NonNegativeInt
    unsure: NonNegativeInt
    grouped_by: Text
    kinds: dict[str, dict[str, list[list[int]]]]
    device: Text
    cpu_seconds: NonNegative


class OutFolder:
    """A folder of new shards; one that does not exist yet is made by `begin`."""

    def __init__(self, path: str | Path):
        self.path = Path(path).expanduser().absolute()
        self.own = self.path / OWN
        self.unfinished = self.own / "unfinished"
        self.job = self.own / "job.json"

    def begin(self, data: str, identity: Mapping[str, Any]) -> None:
        """Writes what begins the folder; refuses another model, other settings or data than those that began it.

        Raises:
            UserError: Something differs, or files of someone else are in the folder.
        """
        wanted = {"data": shown(data), **identity}
        if self.job.exists():
            found = read_strict_json(self.job, hint=ANOTHER)
            if not isinstance(found, Mapping):
                raise UserError("broken: no mapping of names to values", place=str(self.job), hint=ANOTHER)
            check_same(wanted, found, "this command", place=str(self.path), hint=ANOTHER)
        elif self.path.is_dir() and (names := [each.name for each in self.path.iterdir() if each.name != OWN]):
            problem = f"out is not empty: {some_names(sorted(names))}"
            raise UserError(problem, place=str(self.path), hint="choose a new folder")
        else:
            write_json(self.job, wanted)
        with disk_errors(self.unfinished):  # what a killed worker began
            shutil.rmtree(self.unfinished, ignore_errors=True)
        make_folder(self.unfinished)

    def columns(self) -> Any:
        """Reads the columns that all shards share; None where nothing has begun."""
        found = read_strict_json(self.job, hint=ANOTHER) if self.job.exists() else {}
        return found.get("columns") if isinstance(found, Mapping) else None

    def entry(self, shard: Shard) -> Entry | None:
        """Reads the account of a shard; None where it is not finished, or what was made is gone.

        Raises:
            UserError: The account is broken.
        """
        path, output = self._entry(shard), self.path / shard.output
        if not path.exists() or not output.is_file():
            return None
        hint = "delete this file: the shard is done again"
        try:
            entry = Entry.model_validate(read_strict_json(path, hint=hint))
        except ValidationError as error:
            raise UserError(f"no account of a shard: {error.errors()[0]['msg']}", place=str(path), hint=hint) from error
        return entry if entry.output_bytes == output.stat().st_size else None

    def finished(self, shards: Sequence[Shard], data: str) -> Iterator[Entry]:
        """Yields the accounts of what is finished; a shard is read again only where its date has changed.

        Raises:
            UserError: One has changed since it was finished, or is no longer there.
        """
        if gone := self._names() - {shard.name for shard in shards}:
            problem = f"shards that are finished are gone: {some_names(sorted(gone))}"
            raise UserError(problem, place=shown(data), hint=f"put them back, or choose another out than {self.path}")
        for shard in shards:
            entry = self.entry(shard)
            if entry is None:
                continue
            if entry.stamp != shard.stamp:
                self._check_unchanged(shard, entry, data)
            yield entry

    def _check_unchanged(self, shard: Shard, entry: Entry, data: str) -> None:
        with opened(data, shard) as file:
            if hash_of(file) != entry.sha256:
                problem = f"the shard {shorten(shard.name)} has changed since it was finished"
                hint = f"put the old one back, or delete {self.path / shard.output}: it is done again"
                raise UserError(problem, place=shown(data), hint=hint)

    def scratch(self, shard: Shard) -> TemporaryDirectory[str]:
        """Makes a folder on the same disk for a shard that is not finished; that of a killed worker stays behind.

        Raises:
            UserError: This machine sees another disk than the command; or the shard has ended worker after worker,
                which Ray would start anew without end.
        """
        if not self.unfinished.is_dir():
            hint = "out must be a folder that all nodes share"
            raise UserError("a worker does not see out", place=str(self.path), hint=hint)
        prefix = f"{hashlib.sha256(shard.name.encode()).hexdigest()[:16]}-"
        if len(list(self.unfinished.glob(f"{prefix}*"))) >= MAX_DEATHS:
            hint = "write smaller shards, or give a worker more memory: ray.memory_gb=..."
            raise UserError(f"{MAX_DEATHS} workers have died of this shard", place=shard.name, hint=hint)
        return TemporaryDirectory(dir=self.unfinished, prefix=prefix)

    def commit(self, shard: Shard, made: Path, rejects: Sequence[Mapping[str, Any]], entry: Entry) -> None:
        """Gives a new shard its place, then writes its account: from then on it is finished."""
        target = self.path / shard.output
        make_folder(target.parent)
        if rejects:
            write_jsonl(self.own / "rejects" / f"{shard.name}.jsonl", rejects)
        with disk_errors(target):
            made.replace(target)
            sync_entry(target)
        write_json(self._entry(shard), entry.model_dump())

    def _entry(self, shard: Shard) -> Path:
        return self.own / "shards" / f"{shard.name}.json"

    def _names(self) -> set[str]:
        folder = self.own / "shards"
        return {str(path.relative_to(folder))[: -len(".json")] for path in folder.rglob("*.json")}


def job_of(data: str, identity: Mapping[str, Any]) -> str:
    """Names what began a folder."""
    return hash_of_identity({"data": shown(data), **identity})
