"""Checks of commands with `engine=ray`: what a cluster needs, and the keys that it does not take."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data_modules.reading.shards import is_address, is_glob
from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError
from faithkit.inference.text import OPENAI, VLLM
from faithkit_workflows.settings.engines import RAY, is_detector_file, read_detector_file
from faithkit_workflows.settings.preflight import check_output_folder, check_package

PAIRS = "pairs"
CLIENT = "ray://"
def check_answering(settings: Any) -> Iterator[UserError]:
    """Yields problems for `faithkit generate engine=ray`."""
    from data_modules.datasets.pairs import Pairs
    from data_modules.reading.files import HUB

    part = single_table(settings.data.model_dump(by_alias=True))
    if not part:
        problem = f"engine=ray answers tables of your own, and data is {settings.data.name}"
        yield UserError(problem, hint="data=pairs data.path=FOLDER")
        return
    if part["path"] in (None, EMBEDDED, HUB):
        yield UserError("engine=ray without data.path", hint="data.path=FOLDER, 'FOLDER/*.parquet' or an address")
        return
    try:
        Pairs(path=part["path"], columns=part.get("columns") or {}, encoding=part.get("encoding"))
    except UserError as error:
        yield error
    if settings.ray.engine == VLLM:
        yield from check_package("ray.engine=vllm", VLLM, VLLM)
    yield from check_shards(settings, part["path"])


def check_shards(settings: Any, data: str) -> Iterator[UserError]:
    """Yields problems for a command that works through shards with `engine=ray`.

    Args:
        data: The folder, glob or address of the shards.
    """
    if settings.out is not None:
        yield from check_output_folder("out", settings.out)
        folder, target = Path(data).expanduser().absolute(), Path(settings.out).expanduser().absolute()
        if folder == target or folder in target.parents:
            problem = "out lies in the data: results would be read as shards"
            yield UserError(problem, place=settings.out, hint="choose another out")
    for key in ("checkpoint", "detector"):
        yield from check_worker_paths(key, getattr(settings, key, None))
    yield from check_cluster(settings.ray.address)


def check_cluster(address: str | None) -> Iterator[UserError]:
    """Yields problems for a missing Ray, and for an address that is not one of a cluster."""
    yield from check_package("engine=ray", RAY, RAY)
    if address is None or address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if address.startswith(CLIENT):
        hint = "run the command on a node of the cluster with ray.address=auto, or name HOST:6379"
        yield UserError(f"ray.address={address} is for the Ray client, which is not supported", hint=hint)
    elif not (host and port.isdecimal() and int(port) < 2**16):
        yield UserError(f"ray.address is {address!r}", hint="ray.address=HOST:PORT, or auto on a node of the cluster")


def check_worker_paths(key: str, path: str | None) -> Iterator[UserError]:
    """Yields problems for relative paths in a detector's file: workers run in another folder."""
    if path is None or not is_detector_file(path):
        return
    try:
        file = read_detector_file(path)
    except UserError:
        return  # reported with the checkpoint
    engine, judge = file["engine"], file["judge"]
    paths = {"checkpoint": file["checkpoint"], "engine.model": engine["model"] if engine["name"] != OPENAI else None}
    paths |= {f"judge.{name}": judge[name] for name in ("prompts", "examples")}
    for name, value in paths.items():
        if isinstance(value, str) and not value.startswith(("/", "~")) and Path(value).exists():
            hint = f"write {name}: {Path(value).absolute()}"
            yield UserError(f"{key} names {value}, and workers run in another folder", place=path, hint=hint)


def is_sharded(data: str) -> bool:
    """Distinguishes shards from a single file."""
    return is_address(data) or is_glob(data) or Path(data).expanduser().is_dir()


def single_table(data: Mapping[str, Any]) -> dict[str, Any]:
    """Gives the only part of a block `data` that reads a table of the user; empty for other data."""
    parts = list(data["parts"].values() if isinstance(data["parts"], Mapping) else data["parts"])
    return dict(parts[0]) if len(parts) == 1 and parts[0].get("dataset") == PAIRS else {}
