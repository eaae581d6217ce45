"""The block `ray` of `faithkit score engine=ray`, and what is wrong or missing beside it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from faithkit.errors import UserError
from faithkit.settings.types import Count, Hint, OneOf, OpenBlock, Positive, Text
from workflows.settings import surroundings as around

RAY = "ray"
CLIENT = "ray://"
OF_ONE_FILE = {"output": "out=FOLDER", "num_rows": "leave it out", "run_dir": "out=FOLDER", "resume": "out=FOLDER"}
Gpus = Annotated[float, Field(ge=0, le=1000), Hint("use 0, 1 or a share of one, such as 0.5; null where there are any")]


class ScoreEngine(OpenBlock):
    """`engine` of `faithkit score`: the other choices of the group are of scripts that ask language models."""

    name: Annotated[
        Annotated[str, OneOf((RAY,))] | None,
        Hint("use ray, or leave it out; checkpoint=FILE.yaml names a language model"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    """The block `ray`.

    Args:
        address: HOST:PORT of a cluster, `auto` on one of its nodes; None takes RAY_ADDRESS, or starts Ray here.
        workers: At most so many; None takes all that there is room for.
        cpus: Threads of a worker.
        gpus: Of a worker; None takes one where the cluster has any.
        memory_gb: That a worker is given room for; None asks for none.
        timeout_seconds: How long a cluster may take to answer.
    """

    address: Text | None = None
    workers: Annotated[Count | None, Hint("use 1 or more workers, or null for all that there is room for")] = None
    cpus: Count = 1
    gpus: Gpus | None = None
    memory_gb: Positive | None = None
    timeout_seconds: Positive = 60.0


def ray_problems(settings: Any) -> Iterator[UserError]:
    """Finds what `engine=ray` lacks, or has too much."""
    yield from around.package_problems("engine=ray", "ray", "ray")
    if settings.out is None:
        yield UserError("engine=ray without out", hint="out=FOLDER, which all nodes see")
    else:
        yield from around.run_dir_problems(settings.out, "out")
        yield from _inside(settings.path, settings.out)
    for key, hint in OF_ONE_FILE.items():
        if getattr(settings, key) is not None:
            yield UserError(f"{key} is of a single file, and engine=ray scores many", hint=hint)
    address = settings.ray.address
    if address is not None and address.startswith(CLIENT):
        hint = "run the command on a node of the cluster with ray.address=auto, or name HOST:6379"
        yield UserError(f"ray.address={address} is of the Ray client, which this is none of", hint=hint)
    elif address is not None and address not in ("auto", "local") and not _is_host(address):
        yield UserError(f"ray.address is {address!r}", hint="ray.address=HOST:PORT, or auto on a node of the cluster")


def _is_host(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) < 2**16


def _inside(data: str, out: str) -> Iterator[UserError]:
    """A folder of results among its own shards, where the next launch would score them."""
    folder, target = Path(data).expanduser().absolute(), Path(out).expanduser().absolute()
    if folder == target or folder in target.parents:
        yield UserError("out lies in path: results would be read as shards", place=out, hint="choose another out")


def ray_block(config: Mapping[str, Any]) -> RayOptions:
    """Reads the block."""
    return RayOptions(**config["ray"])
