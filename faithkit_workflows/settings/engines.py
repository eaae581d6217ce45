"""The blocks of models that are asked (`engine`, `judge`, `cascade`, baselines, `ray`), and files that describe a
detector.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from data_modules.data_options import USER_TABLE
from data_modules.reading.files import is_address, is_glob
from faithkit.detector import JUDGE, detector_kinds, kind_in_name
from faithkit.errors import UserError, nearest
from faithkit.files.run_folder import read_config
from faithkit.inference.openai_server import check_client
from faithkit.inference.text import AUTO, OPENAI, TRANSFORMERS, VLLM
from faithkit.inference.text_engines import LOCAL_OPTIONS, EngineOptions
from faithkit.packages import missing
from faithkit.published.known_detectors import KnownLanguageModel, known_detectors
from faithkit.settings import types
from faithkit.settings.check import check_settings, options
from faithkit.targets import check_names
from faithkit.weights.resolve import HUB_NAME, LOCAL, PATH_STARTS, TYPO, hub_file
from faithkit_workflows.settings import preflight
from faithkit_workflows.settings.preflight import check_output_folder
from judge.options import AskOptions

RAY = "ray"
GENERATOR_ENGINES = (AUTO, TRANSFORMERS, VLLM, RAY)
LOCAL_KEYS = tuple(f"engine.{key}" for key in LOCAL_OPTIONS)
SERVER_KEYS = tuple(
    f"engine.{key}"
    for key in (
        *("base_url", "api_key_variable", "concurrency", "max_retries", "timeout_seconds", "max_tokens_field"),
        "price",
    )
)
SUFFIXES = (".yaml", ".yml")  # of a file that describes a detector
FILE_HINT = "its keys are those of evaluate.py: checkpoint, engine, judge, cascade"


class GeneratorEngine(types.Block):
    """`engine` of generate.py."""

    name: Annotated[str, types.OneOf(GENERATOR_ENGINES)]


class ScoreEngine(types.OpenBlock):
    """`engine` of `faithkit score`: the other choices of the group are for scripts that ask language models."""

    name: Annotated[
        Annotated[str, types.OneOf((RAY,))] | None,
        types.Hint("use ray, or leave it out; checkpoint=FILE.yaml names a language model"),
    ] = None


@options("cascade")
class CascadeOptions:
    """The block `cascade` of evaluate.py: which rows of a cheap detector an expensive one judges again.

    Args:
        budget: The share of rows that the expensive detector judges.
        precision: The cheap one decides alone where it is right this often.
        band: The scores of the cheap one, lowest and highest, at which the expensive one judges.
        max_budget: The table compares budgets up to this share, and judges as many rows; None takes `budget`.
    """

    budget: types.PositiveShare | None = None
    precision: types.PositiveShare | None = None
    band: Annotated[
        Annotated[list[types.Share], Field(min_length=2, max_length=2)] | None,
        types.Hint("use two scores from 0 to 1: [0.2,0.8]"),
    ] = None
    max_budget: types.PositiveShare | None = None

    conflicts: ClassVar[tuple[types.Conflict, ...]] = (
        types.Conflict(
            lambda s: len(s.given) > 1, "{s.given_names} are given, and one of them chooses", "leave out one"
        ),
        types.Conflict(
            lambda s: s.band is not None and s.band[0] > s.band[1],
            "cascade.band is {s.band}",
            "the lower score first: [{s.band[1]}, {s.band[0]}]",
        ),
        types.Conflict(
            lambda s: s.max_budget is not None and not s.given,
            "cascade.max_budget without a cascade",
            "set cascade.budget=0.2 too",
        ),
    )

    @property
    def given(self) -> list[str]:
        """The keys that switch the cascade on."""
        return [name for name in ("budget", "precision", "band") if getattr(self, name) is not None]

    @property
    def given_names(self) -> str:
        """The same as one text."""
        return " and ".join(f"cascade.{name}" for name in self.given)

    @property
    def is_on(self) -> bool:
        """Whether there is a cascade."""
        return bool(self.given)


@options("retrieval")
class RetrievalOptions:
    """The block `retrieval` of evaluate.py; without a path nothing is retrieved.

    Args:
        path: A folder of texts, one text, or `embedded`.
        num_passages: Passages that an example gets, at most.
    """

    path: types.PathText | None = None
    num_passages: types.Count = 3


@options()
class RayOptions:
    """The block `ray`.

    Args:
        address: HOST:PORT of a cluster, `auto` on one of its nodes; None takes RAY_ADDRESS, or starts Ray here.
        workers: Maximum number; None takes all that there is room for.
        cpus: Threads of a worker.
        gpus: Of a worker; None takes one where the cluster has any.
        memory_gb: Memory reserved for a worker; None reserves none.
        timeout_seconds: How long a cluster may take to answer.
    """

    address: types.Text | None = None
    workers: Annotated[types.Count | None, types.OrNull("for all that there is room for")] = None
    cpus: types.Count = 1
    gpus: Annotated[Annotated[float, types.Range(ge=0, le=1000)] | None, types.OrNull("where there are any")] = None
    memory_gb: types.Positive | None = None
    timeout_seconds: types.Seconds = 60.0


@options()
class AnswerRayOptions(RayOptions):
    """The block `ray` of generate.py, where `engine=ray` replaces the engine that decodes.

    Args:
        engine: Decodes in each worker; explicit, since a head node without a GPU would choose for all nodes.
    """

    engine: Annotated[str, types.OneOf((TRANSFORMERS, VLLM))] = TRANSFORMERS


# With defaults: a file that describes a detector has some of these blocks.
Engine = Annotated[EngineOptions, Field(default_factory=EngineOptions)]
Ask = Annotated[AskOptions, Field(default_factory=AskOptions)]
Cascade = Annotated[CascadeOptions, Field(default_factory=CascadeOptions)]


class DetectorFile(types.Block):
    """The keys of a file that describes a detector which no folder holds.

        engine: {name: openai, model: NAME, base_url: URL}
        judge: {ask: steps}

    They are those of evaluate.py. Every key that takes a detector takes such a file.
    """

    checkpoint: types.PathText | None = None
    engine: Engine
    judge: Ask
    cascade: Cascade

    conflicts = (
        types.Conflict(
            lambda s: any(value is not None for value in (s.cascade.budget, s.cascade.precision, s.cascade.max_budget)),
            "a file of a cascade gives its band: a budget or a precision is chosen on rows",
            "evaluate.py cascade.budget=0.2 writes such a file into its run's folder",
        ),
        types.Conflict(
            lambda s: s.cascade.band is not None and not (s.checkpoint and s.engine.name),
            "a cascade needs a checkpoint and a language model",
            "name both: checkpoint, engine",
        ),
        types.Conflict(
            lambda s: s.cascade.band is None and s.checkpoint and s.engine.name,
            "checkpoint and engine are both named",
            "leave one out, or cascade: {{band: [LOW, HIGH]}}",
        ),
        types.Conflict(lambda s: not s.checkpoint and not s.engine.name, "the file names no detector", FILE_HINT),
        types.Conflict(
            lambda s: s.checkpoint and Path(s.checkpoint).suffix in SUFFIXES,
            "checkpoint is another such file",
            "name a run, a folder or a hub name",
        ),
    )


def is_detector_file(path: str) -> bool:
    """Distinguishes a file that describes a detector from a run, a folder or a hub name."""
    return Path(path).suffix in SUFFIXES and Path(path).expanduser().is_file()


def read_detector_file(path: str) -> dict[str, Any]:
    """Reads a file that describes a detector as the keys of a configuration.

    Raises:
        UserError: It is not plain data, a key is wrong, or it names no detector, or two that are no cascade.
    """
    try:
        config = read_config(Path(path).expanduser())
        check_names(config, (), place=path)
        found = check_settings(config, DetectorFile)
    except UserError as error:
        hint = error.hint if error.hint and "config.yaml" not in error.hint else FILE_HINT
        raise UserError(error.problem, place=error.place or path, hint=hint) from error
    return dict(found.model_dump())


def check_checkpoint(key: str, path: str | None, *kinds: str) -> Iterator[UserError]:
    """Yields a problem for a checkpoint that is missing, holds no model, or is of none of these kinds.

    Where a judge is accepted, every other kind of detector is too, and a file that describes one.
    """
    if path is None:
        return
    if JUDGE in kinds and kind_in_name(path):
        name, _, address = path.partition(":")
        if (known := known_detectors().get(name)) is not None:
            if isinstance(known, KnownLanguageModel) and "://" in address:
                yield from missing("engine=openai", f"{key}={path}")
                yield from check_client()
            if known.divides_sentences:
                yield from missing("a detector that divides texts into sentences", f"{key}={name}")
        return
    place, is_detector = Path(path).expanduser(), JUDGE in kinds and "generator" not in kinds
    if is_detector and path in LOCAL and LOCAL[path].kind != "causal":  # known before it is downloaded
        problem = f"{key}={path} is no detector: {LOCAL[path].description}"
        yield UserError(problem, hint="`faithkit models` lists detectors")
        return
    if not place.exists():
        if is_detector and "/" not in path and (close := nearest(path, detector_kinds(), 1, alike=TYPO)):
            if hub_file(path) is None:
                yield UserError(f"{key}: there is no detector {path!r}", hint=f"did you mean {close[0]}?")
            return
        has_neighbours = place.parent != Path() and place.parent.is_dir()  # runs/typo is not a hub name if runs/ exists
        if path.startswith(PATH_STARTS) or not HUB_NAME.fullmatch(path) or has_neighbours:
            hint = preflight.suggest_path(key, place, "a run's folder or a hub name")
            if near := nearest(path.partition(":")[0], known_detectors()):  # NAME:FOLDER with a mistyped name
                hint = f"did you mean {' or '.join(near)}?"
            yield UserError("no such run or folder", place=path, hint=hint)
        return
    try:
        if JUDGE in kinds and is_detector_file(path):
            read_detector_file(path)
            return
        kind = preflight.read_kind(path)
    except UserError as error:
        yield error
        return
    is_other_detector = JUDGE in kinds and kind in detector_kinds()
    if kind is not None and kind not in kinds and not is_other_detector:
        expected = " or ".join(f"a {one}" for one in kinds)
        yield UserError(f"{key} is a {kind}, not {expected}", place=path, hint=f"set {key} to a run of {expected}")


def check_engine(name: str | None) -> Iterator[UserError]:
    """Yields a problem for an engine whose package is not installed."""
    if name in (VLLM, OPENAI):
        yield from missing(f"engine={name}")
    if name == OPENAI:
        yield from check_client()


def check_model(key: str, engine: str | None, model: str | None) -> Iterator[UserError]:
    """Yields problems for an engine and the model that it asks."""
    yield from check_engine(engine)
    if engine != OPENAI:
        yield from preflight.check_weights(key, model)


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
        path = getattr(settings, key, None)
        if path is None or not is_detector_file(path):
            continue
        try:
            file = read_detector_file(path)
        except UserError:
            continue  # reported with the checkpoint
        engine, judge = file["engine"], file["judge"]
        model = engine["model"] if engine["name"] != OPENAI else None
        paths = {"checkpoint": file["checkpoint"], "engine.model": model}
        paths |= {f"judge.{name}": judge[name] for name in ("prompts", "examples")}
        for name, value in paths.items():
            if isinstance(value, str) and not value.startswith(("/", "~")) and Path(value).exists():
                problem = f"{key} names {value}, and workers run in another folder"
                yield UserError(problem, place=path, hint=f"write {name}: {Path(value).absolute()}")
    yield from missing("engine=ray")
    address = settings.ray.address
    host, _, port = (address or "").rpartition(":")
    if address is not None and address.startswith("ray://"):
        hint = "run the command on a node of the cluster with ray.address=auto, or name HOST:6379"
        yield UserError(f"ray.address={address} is for the Ray client, which is not supported", hint=hint)
    elif address not in (None, "auto", "local") and not (host and port.isdecimal() and int(port) < 2**16):
        yield UserError(f"ray.address is {address!r}", hint="ray.address=HOST:PORT, or auto on a node of the cluster")


def is_sharded(data: str) -> bool:
    """Distinguishes shards from a single file."""
    return is_address(data) or is_glob(data) or Path(data).expanduser().is_dir()


def single_table(data: Mapping[str, Any]) -> dict[str, Any]:
    """Gives the only part of a block `data` that reads a table of the user; empty for other data."""
    parts = list(data["parts"].values() if isinstance(data["parts"], Mapping) else data["parts"])
    return dict(parts[0]) if len(parts) == 1 and parts[0].get("dataset") == USER_TABLE else {}
