"""Does one shard per call with models that are loaded once: the class that runs in each worker, independent of Ray.

`Scoring` and `Answering` are what `faithkit score` and `faithkit generate` do with the rows of a shard.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_modules.reading.files import is_address
from data_modules.reading.shards import Shard, opened, shown
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import hash_file, set_by
from faithkit.inference.text import VLLM
from faithkit_workflows.ray.out_folder import FinishedShard, OutFolder, check_same, identify, identify_model
from faithkit_workflows.settings.engines import AnswerRayOptions, RayOptions, single_table
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import (
    ADDED,
    ANSWER,
    RESPONSE_COLUMNS,
    UserTable,
    as_list,
    open_table_to_judge,
    open_user_table,
    scored_schema,
    write_scored,
)

if TYPE_CHECKING:
    from faithkit_workflows.answering.strategies import Answerer

Columns = Sequence[tuple[str, str]]  # names with their types


class Work(ABC):
    """What a command does with shards. It is sent to the workers, so it contains settings only.

    Attributes:
        done: Names it in messages: scored, answered.
        judges: It gives verdicts, whose share is reported.
        added: The columns of a new shard that the old one lacks.
        num_resamples: Bootstrap resamples of an interval.
        data: The folder, glob or address of the shards.
        out: The folder of the new ones.
        place: The checkpoint, as errors name it.
        identity: Of the command that started the workers, which they compare with theirs.
    """

    done: str
    judges: bool = True
    added: Sequence[str] = ADDED
    num_resamples: int = 1000

    def __init__(self, config: Mapping[str, Any], data: str, ray: RayOptions):
        # Workers run in another folder.
        keys = ("checkpoint", "detector", "out")
        paths = {key: absolute_path(config[key], key) for key in keys if config.get(key)}
        self.config, self.data, self.ray = {**config, **paths}, absolute_path(data), ray
        self.out, self.place = str(self.config["out"]), str(self.config["checkpoint"])
        self.identity: dict[str, Any] = {}

    @abstractmethod
    def identify(self) -> dict[str, Any]:
        """Collects what the results depend on, as plain values that two processes can compare."""

    @abstractmethod
    def read(self, file: Path) -> UserTable:
        """Reads the rows of a shard; a bad one is kept without a result.

        Raises:
            UserError: No row can be used.
        """

    @abstractmethod
    def load(self) -> "Answerer":
        """Loads the models."""

    def write(self, path: Path, rows: UserTable, answerer: "Answerer") -> ShareCounter:
        """Writes the rows with the added columns to a path; returns the counted verdicts, if there are any."""
        from faithkit.calibration import drop_unsure_labels
        from faithkit.records import Example, Prediction
        from faithkit_workflows.answering.write_answers import answer_in_chunks

        shares = ShareCounter(as_list(self.config.get("by")))

        def count(values: Mapping[str, Any], example: Example | None, found: Prediction | None) -> None:
            # An empty answer has no verdict; a detector without a label abstains.
            is_empty = ANSWER in self.added and found is not None and found.label is None
            shares.add(values, example, None if is_empty else found)

        chunks = answer_in_chunks(rows.examples, answerer, chunk_size=self.config["save_every_num_rows"])
        answers = chain.from_iterable(answers for _, answers in chunks)
        labelled = drop_unsure_labels(answers, self.config.get("abstain_at"))
        escapes = self.config.get("escape_formulas", False)
        write_scored(path, rows, labelled, count, self.added, escape_formulas=escapes)
        return shares

    def columns(self, rows: UserTable) -> Columns:
        """Gives the columns of a new shard with their types."""
        return [(field.name, str(field.type)) for field in scored_schema(rows, self.added)]


class Answering(Work):
    """Answers rows as `faithkit generate data=pairs data.path=SHARD` does; rows need no response.

    Args:
        config: Of the command.
    """

    done = "answered"

    def __init__(self, config: Mapping[str, Any]):
        self.part = single_table(config["data"])
        super().__init__(config, self.part["path"], AnswerRayOptions(**config["ray"]))
        self.engine = str(config["ray"]["engine"])
        self.num_gpus = max(1, int(self.ray.gpus or 1))
        self.judges = bool(config["detector"])
        self.added = (ANSWER, *ADDED) if self.judges else (ANSWER,)

    def identify(self) -> dict[str, Any]:
        detector = self.config["detector"]
        models = {"generator": identify_model(self.place), "detector": identify_model(detector) if detector else None}
        names = ("decoding", "control_tokens", "best_of", "precision", "max_length", "save_every_num_rows")
        settings = {name: self.config[name] for name in names}
        settings |= {name: self.part.get(name) for name in ("columns", "encoding")}
        settings |= {"ray.engine": self.engine, "ray.cpus": self.ray.cpus, "ray.gpus": self.num_gpus}
        return identify(models, settings, vllm=self.engine == VLLM)

    def read(self, file: Path) -> UserTable:
        options: dict[str, Any] = {"on_bad_row": "skip", "encoding": self.part.get("encoding"), "keys": "data."}
        columns = self.part.get("columns") or {}
        return open_user_table(str(file), columns, join=" ".join, without=RESPONSE_COLUMNS, **options)

    def load(self) -> "Answerer":
        from faithkit_workflows.answering.strategies import load_answerer

        return load_answerer(self.config, self.engine, self.num_gpus)[1]


class Scoring(Work):
    """Judges rows as `faithkit score SHARD on_bad_row=skip` does.

    Args:
        config: Of the command.
    """

    done = "scored"

    def __init__(self, config: Mapping[str, Any]):
        super().__init__(config, config["path"], RayOptions(**config["ray"]))
        self.num_resamples = int(config["num_resamples"])

    def identify(self) -> dict[str, Any]:
        names = (
            *("columns", "encoding", "by", "labels", "precision", "batch_tokens", "max_windows"),
            *("save_every_num_rows", "threshold", "abstain_at", "escape_formulas"),
        )
        settings = {**{name: self.config.get(name) for name in names}, "ray.cpus": self.ray.cpus}
        model = identify_model(self.place)
        asked = model.get("described", {}).get("engine", {}).get("name")
        return identify(model, settings, vllm=asked == VLLM)

    def read(self, file: Path) -> UserTable:
        return open_table_to_judge({**self.config, "path": str(file), "num_rows": None, "on_bad_row": "skip"})

    def load(self) -> "Answerer":
        from faithkit_workflows.answering.write_answers import DetectorAnswerer
        from faithkit_workflows.detectors.loading import load_checkpoint, with_threshold

        loaded = with_threshold(load_checkpoint(self.config), self.config.get("threshold"), self.place)
        return DetectorAnswerer(loaded.detector)


class ShardWorker:
    """Does shards; returns the record of each, or the reason why it failed."""

    def __init__(self, work: Work):
        self.work, self.folder = work, OutFolder(work.out)

    @set_by("out")
    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Does a shard unless it is finished, as when a worker died after its last write."""
        shard, is_ready = Shard(**row), False
        result = {"shard": shard.name, "bytes": shard.size, "stops": False, "problem": "", "place": "", "hint": ""}
        try:
            record = self.folder.record(shard)
            if record is None:
                answerer, is_ready = self.answerer, True
                record = self._do(shard, answerer)
        except UserError as error:
            place = error.place or shown(self.work.data)
            problem = {"problem": error.problem, "place": place, "hint": error.hint or ""}
            return {**result, "record": None, "stops": not is_ready, **problem}
        return {**result, "record": record.model_dump_json()}

    @cached_property
    def answerer(self) -> "Answerer":
        """Loads the models.

        Raises:
            UserError: They or the code differ from those of the command.
        """
        import torch

        work = self.work
        torch.set_num_threads(work.ray.cpus)
        here = work.identify()
        wanted = {name: work.identity[name] for name in here}
        hint = "install the same faithkit and copy the same model to every node"
        check_same(here, wanted, "a worker", place=work.place, hint=hint)
        return work.load()

    def _do(self, shard: Shard, answerer: "Answerer") -> FinishedShard:
        work = self.work
        with self.folder.scratch(shard) as scratch:
            made = Path(scratch, "made.parquet")
            with opened(work.data, shard) as file:
                digest = hash_file(file)
                rows = work.read(file)
                here, first = dict(work.columns(rows)), dict(work.identity["columns"])
                for name in {**first, **here}:
                    if here.get(name) != first.get(name):  # together they would be no table
                        kinds = f"{here.get(name, 'missing')} here, and {first.get(name, 'missing')} in the first shard"
                        hint = "write all shards with the same columns, as Parquet where types differ"
                        raise UserError(f"column {shorten(name)} is {kinds}", place=shard.name, hint=hint)
                shares = work.write(made, rows, answerer)
            record = FinishedShard(
                shard=shard.name,
                stamp=shard.stamp,
                sha256=digest,
                output_bytes=made.stat().st_size,
                rows=rows.num_read,
                rejected=rows.report.counts["rejected: bad row"],
                unsure=shares.num_unsure,
                grouped_by=rows.grouped_by,
                kinds=shares.kinds(),
            )
            rejects = [{**reject, "file": shard.name} for reject in rows.report.rejects]
            self.folder.commit(shard, made, rejects, record)
        return record


def absolute_path(path: str, key: str = "") -> str:
    """Makes a path absolute, but not an address or the name of a model on the hub."""
    place = Path(path).expanduser()
    if is_address(path) or (key in ("checkpoint", "detector") and not place.exists()):
        return path
    return str(place.absolute())
