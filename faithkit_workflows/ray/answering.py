"""Answers the rows of a shard for `faithkit generate engine=ray`, with a generator that is loaded once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.inference.text_engines import VLLM
from faithkit_workflows.ray.identity import identify, identify_model
from faithkit_workflows.ray.work import answered, whole_path, with_whole_paths
from faithkit_workflows.settings.engines import AnswerRayOptions, RayOptions
from faithkit_workflows.settings.ray import single_table
from faithkit_workflows.tables.scored_rows import ADDED, ANSWER, scored_schema, write_scored
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import RESPONSE_COLUMNS, UserTable, open_user_table

if TYPE_CHECKING:
    from faithkit.records import Example, Prediction
    from faithkit_workflows.answering.strategies import Answerer

SETTINGS = ("decoding", "control_tokens", "best_of", "precision", "max_length", "save_every_num_rows")
NUM_RESAMPLES = 1000  # behind the interval of the share that the detector calls hallucinated


class Answering:
    """Answers rows as `faithkit generate data=pairs data.path=SHARD` does; rows need no response of their own.

    Args:
        config: Of the command.
    """

    done = "answered"
    num_resamples = NUM_RESAMPLES

    def __init__(self, config: Mapping[str, Any]):
        self.config, self.part = with_whole_paths(config), single_table(config["data"])
        self.data = whole_path(self.part["path"])
        self.out, self.place = str(self.config["out"]), str(self.config["checkpoint"])
        self.ray: RayOptions = AnswerRayOptions(**config["ray"])
        self.engine = str(config["ray"]["engine"])
        self.num_gpus = max(1, int(self.ray.gpus or 1))
        self.judges = bool(config["detector"])
        self.added = (ANSWER, *ADDED) if self.judges else (ANSWER,)

    def identify(self) -> dict[str, Any]:
        """Names the models and the settings that answers depend on."""
        detector = self.config["detector"]
        models = {"generator": identify_model(self.place), "detector": identify_model(detector) if detector else None}
        settings = {name: self.config[name] for name in SETTINGS}
        settings |= {name: self.part.get(name) for name in ("columns", "encoding")}
        settings |= {"ray.engine": self.engine, "ray.cpus": self.ray.cpus, "ray.gpus": self.num_gpus}
        return identify(models, settings, vllm=self.engine == VLLM)

    def read(self, file: Path) -> UserTable:
        """Reads the rows to answer: a response that they have is neither needed nor looked at."""
        options: dict[str, Any] = {"on_bad_row": "skip", "encoding": self.part.get("encoding"), "keys": "data."}
        columns = self.part.get("columns") or {}
        return open_user_table(str(file), columns, join=" ".join, without=RESPONSE_COLUMNS, **options)

    def schema(self, rows: UserTable) -> Any:
        """Adds the response, and what the detector says of it where there is one."""
        return scored_schema(rows, self.added)

    def load(self) -> "AnswerWriter":
        """Loads the generator, and the detector that chooses."""
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
    at_a_time: int

    def write(self, path: Path, rows: UserTable) -> ShareCounter:
        """Writes the rows with their answers."""
        shares = ShareCounter()

        def count(values: Mapping[str, Any], example: "Example | None", answer: "Prediction | None") -> None:
            judged = answer if answer is not None and answer.label is not None else None
            shares.add(values, example, judged)  # an empty answer has nothing to judge

        write_scored(path, rows, answered(rows, self.answerer, self.at_a_time), count, self.added)
        return shares
