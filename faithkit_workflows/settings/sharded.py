"""The block `ray` of commands with `engine=ray`, and what is wrong or missing beside it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from data_modules.reading.shards import is_address, is_glob
from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError
from faithkit.inference.text_engines import OPENAI, TRANSFORMERS, VLLM
from faithkit.settings.types import Count, Hint, OneOf, OpenBlock, Positive, Seconds, Text
from faithkit_workflows.settings import preflight as around

RAY, PAIRS = "ray", "pairs"
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
    timeout_seconds: Seconds = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRayOptions(RayOptions):
    """The block `ray` of generate.py, where `engine=ray` stands in the place of the engine that decodes.

    Args:
        engine: Decodes in each worker; never chosen by itself, since a head without a GPU would choose for all nodes.
    """

    engine: Annotated[str, OneOf((TRANSFORMERS, VLLM))] = TRANSFORMERS


def answering_problems(settings: Any) -> Iterator[UserError]:
    """Finds what `faithkit generate engine=ray` lacks, or has too much."""
    from data_modules.datasets.pairs import Pairs
    from data_modules.reading.files import HUB

    part = only_part(settings.data.model_dump(by_alias=True))
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
    if settings.resample is not None:
        hint = "best_of=8 detector=PATH chooses among answers; or leave engine=ray out"
        yield UserError("resample is of one machine, and engine=ray asks many", hint=hint)
    if settings.ray.engine == VLLM:
        yield from around.package_problems("ray.engine=vllm", VLLM, VLLM)
    gpus = settings.ray.gpus or 1
    if gpus > 1 and gpus != int(gpus):
        yield UserError(f"ray.gpus={gpus:g} is no whole number of GPUs", hint=f"ray.gpus={int(gpus)}")
    elif gpus > 1 and settings.ray.engine != VLLM:
        hint = "ray.gpus=1, or ray.engine=vllm, where GPUs share a model"
        yield UserError(f"ray.gpus={gpus:g} and ray.engine={settings.ray.engine}, which runs on one", hint=hint)
    yield from ray_problems(settings, part["path"])


def evaluating_problems(settings: Any, *, takes: bool) -> Iterator[UserError]:
    """Finds what `evaluate.py engine=ray` has too much, or cannot do.

    Args:
        takes: A cluster can predict for the benchmark.
    """
    yield from around.package_problems("engine=ray", "ray", "ray")
    yield from address_problems(settings.ray.address)
    yield from own_paths("checkpoint", settings.checkpoint)
    name = settings.benchmark.name
    if not takes:
        hint = "leave engine=ray out; it judges benchmarks of labelled responses, and answers for a generator"
        yield UserError(f"benchmark={name} does not run with engine=ray", hint=hint)
    if settings.predictions:
        yield UserError("engine=ray and predictions are given: nothing is left to predict", hint="leave one out")
    elif takes and not settings.checkpoint:
        hint = "checkpoint=PATH of a run, an hf/ folder, a hub name, or FILE.yaml of a language model"
        yield UserError("engine=ray without a checkpoint", hint=hint)
    beside = {
        "engine.model": settings.engine.model,
        "cascade": settings.cascade.is_on,
        "selfcheck": settings.selfcheck.measure,
        "examiner": settings.examiner.turns,
    }
    for key, value in beside.items():
        if value:
            hint = "leave engine=ray out" if key in ("selfcheck", "examiner") else "checkpoint=FILE.yaml describes it"
            yield UserError(f"{key} is set, and engine=ray judges with checkpoint alone", hint=hint)


def is_sharded(data: str) -> bool:
    """Tells shards from a single file."""
    return is_address(data) or is_glob(data) or Path(data).expanduser().is_dir()


def only_part(data: Mapping[str, Any]) -> dict[str, Any]:
    """Gives the one part of a block `data` of pairs of one's own; nothing of other data."""
    parts = list(data["parts"].values() if isinstance(data["parts"], Mapping) else data["parts"])
    return dict(parts[0]) if len(parts) == 1 and parts[0].get("dataset") == PAIRS else {}


def ray_problems(settings: Any, data: str) -> Iterator[UserError]:
    """Finds what `engine=ray` lacks, or has too much.

    Args:
        data: The folder, glob or address of the shards.
    """
    yield from around.package_problems("engine=ray", "ray", "ray")
    if settings.out is None:
        yield UserError("engine=ray without out", hint="out=FOLDER, which all nodes see")
    else:
        yield from around.run_dir_problems(settings.out, "out")
        yield from _inside(data, settings.out)
    for key, hint in OF_ONE_FILE.items():
        if getattr(settings, key, None) is not None:
            yield UserError(f"{key} is of a single file, and engine=ray takes many", hint=hint)
    for key in ("checkpoint", "detector"):
        yield from own_paths(key, getattr(settings, key, None))
    yield from address_problems(settings.ray.address)


def address_problems(address: str | None) -> Iterator[UserError]:
    """Finds an address that is of no cluster."""
    if address is not None and address.startswith(CLIENT):
        hint = "run the command on a node of the cluster with ray.address=auto, or name HOST:6379"
        yield UserError(f"ray.address={address} is of the Ray client, which this is none of", hint=hint)
    elif address is not None and address not in ("auto", "local") and not _is_host(address):
        yield UserError(f"ray.address is {address!r}", hint="ray.address=HOST:PORT, or auto on a node of the cluster")


def own_paths(key: str, path: str | None) -> Iterator[UserError]:
    """Finds paths in the file of a detector that a worker, which stands in another folder, would not find."""
    from faithkit_workflows.settings.detector_file import is_detector_file, read_detector_file

    if path is None or not is_detector_file(path):
        return
    try:
        file = read_detector_file(path)
    except UserError:
        return  # told with the checkpoint
    engine, judge = file["engine"], file["judge"]
    paths = {"checkpoint": file["checkpoint"], "engine.model": engine["model"] if engine["name"] != OPENAI else None}
    paths |= {f"judge.{name}": judge[name] for name in ("prompts", "examples")}
    for name, value in paths.items():
        if isinstance(value, str) and not value.startswith(("/", "~")) and Path(value).exists():
            hint = f"write {name}: {Path(value).absolute()}"
            yield UserError(f"{key} names {value}, and workers stand in another folder", place=path, hint=hint)


def _is_host(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) < 2**16


def _inside(data: str, out: str) -> Iterator[UserError]:
    """A folder of results among its own shards, where the next launch would score them."""
    folder, target = Path(data).expanduser().absolute(), Path(out).expanduser().absolute()
    if folder == target or folder in target.parents:
        yield UserError("out lies in the data: results would be read as shards", place=out, hint="choose another out")
