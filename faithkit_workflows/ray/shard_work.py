"""What `faithkit score` and `faithkit generate` do with the rows of a shard, with models that are loaded once."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.inference.text import VLLM
from faithkit_workflows.ray.out_folder import identify, identify_model
from faithkit_workflows.ray.shard_worker import absolute_path, answer_rows, with_absolute_paths
from faithkit_workflows.settings.engines import AnswerRayOptions, RayOptions, single_table
from faithkit_workflows.tables.scored_rows import ADDED, ANSWER, scored_schema, write_scored
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import (
    RESPONSE_COLUMNS,
    UserTable,
    as_list,
    open_table_to_judge,
    open_user_table,
)

if TYPE_CHECKING:
    from faithkit.detector import Detector
    from faithkit.records import Example, Prediction
    from faithkit_workflows.answering.strategies import Answerer

ANSWER_SETTINGS = ("decoding", "control_tokens", "best_of", "precision", "max_length", "save_every_num_rows")
NUM_RESAMPLES = 1000  # of the interval of the hallucinated share


class Answering:
    """Answers rows as `faithkit generate data=pairs data.path=SHARD` does; rows need no response.

    Args:
        config: Of the command.
    """

    done = "answered"
    num_resamples = NUM_RESAMPLES

    def __init__(self, config: Mapping[str, Any]):
        self.config, self.part = with_absolute_paths(config), single_table(config["data"])
        self.data = absolute_path(self.part["path"])
        self.out, self.place = str(self.config["out"]), str(self.config["checkpoint"])
        self.ray: RayOptions = AnswerRayOptions(**config["ray"])
        self.engine = str(config["ray"]["engine"])
        self.num_gpus = max(1, int(self.ray.gpus or 1))
        self.judges = bool(config["detector"])
        self.added = (ANSWER, *ADDED) if self.judges else (ANSWER,)

    def identify(self) -> dict[str, Any]:
        """Collects the models and the settings that answers depend on."""
        detector = self.config["detector"]
        models = {"generator": identify_model(self.place), "detector": identify_model(detector) if detector else None}
        settings = {name: self.config[name] for name in ANSWER_SETTINGS}
        settings |= {name: self.part.get(name) for name in ("columns", "encoding")}
        settings |= {"ray.engine": self.engine, "ray.cpus": self.ray.cpus, "ray.gpus": self.num_gpus}
        return identify(models, settings, vllm=self.engine == VLLM)

    def read(self, file: Path) -> UserTable:
        """Reads the rows to answer, without their responses."""
        options: dict[str, Any] = {"on_bad_row": "skip", "encoding": self.part.get("encoding"), "keys": "data."}
        columns = self.part.get("columns") or {}
        return open_user_table(str(file), columns, join=" ".join, without=RESPONSE_COLUMNS, **options)

    def schema(self, rows: UserTable) -> Any:
        """Adds the response, and the verdict of a detector."""
        return scored_schema(rows, self.added)

    def load(self) -> "AnswerWriter":
        """Loads the generator, and the detector that chooses among its answers."""
        from faithkit.hardware import describe_runner
        from faithkit_workflows.answering.strategies import load_answerer

        generator, answerer = load_answerer(self.config, self.engine, self.num_gpus)
        return AnswerWriter(answerer, describe_runner(generator), self.added, self.config["save_every_num_rows"])


@dataclass(frozen=True)
class AnswerWriter:
    """Answers shards."""

    answerer: "Answerer"
    device: str
    added: tuple[str, ...]
    chunk_size: int

    def write(self, path: Path, rows: UserTable) -> ShareCounter:
        """Writes the rows with their answers."""
        shares = ShareCounter()

        def count(values: Mapping[str, Any], example: "Example | None", answer: "Prediction | None") -> None:
            judged = answer if answer is not None and answer.label is not None else None
            shares.add(values, example, judged)  # an empty answer has no verdict

        write_scored(path, rows, answer_rows(rows, self.answerer, self.chunk_size), count, self.added)
        return shares


SCORE_SETTINGS = (
    *("columns", "encoding", "by", "labels", "precision", "batch_tokens", "max_windows", "save_every_num_rows"),
    *("threshold", "abstain_at"),
)


class Scoring:
    """Judges rows as `faithkit score SHARD on_bad_row=skip` does.

    Args:
        config: Of the command.
    """

    done = "scored"
    judges = True

    def __init__(self, config: Mapping[str, Any]):
        self.config = {**with_absolute_paths(config), "path": absolute_path(config["path"])}
        self.data, self.out, self.place = (str(self.config[key]) for key in ("path", "out", "checkpoint"))
        self.ray = RayOptions(**config["ray"])
        self.num_resamples = int(config["num_resamples"])

    def identify(self) -> dict[str, Any]:
        """Collects the detector and the settings that its verdicts depend on."""
        settings = {**{name: self.config.get(name) for name in SCORE_SETTINGS}, "ray.cpus": self.ray.cpus}
        model = identify_model(self.config["checkpoint"])
        asked = model.get("described", {}).get("engine", {}).get("name")
        return identify(model, settings, vllm=asked == VLLM)

    def read(self, file: Path) -> UserTable:
        """Reads the rows to judge."""
        return open_table_to_judge({**self.config, "path": str(file), "num_rows": None, "on_bad_row": "skip"})

    def schema(self, rows: UserTable) -> Any:
        """Adds label, probability and spans."""
        return scored_schema(rows)

    def load(self) -> "ScoreWriter":
        """Loads the detector."""
        from faithkit_workflows.detectors.loading import load_checkpoint, with_threshold

        loaded = with_threshold(load_checkpoint(self.config), self.config.get("threshold"), self.place)
        return ScoreWriter(loaded.detector, self.config)


@dataclass(frozen=True)
class ScoreWriter:
    """Judges shards."""

    detector: "Detector"
    config: Mapping[str, Any]

    @cached_property
    def device(self) -> str:
        """Names the device that the detector runs on."""
        return str(getattr(self.detector, "device", "none"))

    def write(self, path: Path, rows: UserTable) -> ShareCounter:
        """Writes the rows with their verdicts."""
        from faithkit.calibration.score_calibration import drop_unsure_labels
        from faithkit_workflows.answering.write_answers import DetectorAnswerer

        config, shares = self.config, ShareCounter(as_list(self.config["by"]))
        verdicts = answer_rows(rows, DetectorAnswerer(self.detector), config["save_every_num_rows"])
        write_scored(path, rows, drop_unsure_labels(verdicts, config["abstain_at"]), shares.add)
        return shares
