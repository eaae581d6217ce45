"""Judges the rows of a shard for `faithkit score engine=ray`, with a detector that is loaded once."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.inference.text_engines import VLLM
from faithkit_workflows.ray.identity import identify, identify_model
from faithkit_workflows.ray.work import answered, whole_path, with_whole_paths
from faithkit_workflows.settings.engines import RayOptions
from faithkit_workflows.tables.scored_rows import scored_schema, write_scored
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import UserTable, as_list, open_table_to_judge

if TYPE_CHECKING:
    from faithkit.detector import Detector

SETTINGS = (
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
        self.config = {**with_whole_paths(config), "path": whole_path(config["path"])}
        self.data, self.out, self.place = (str(self.config[key]) for key in ("path", "out", "checkpoint"))
        self.ray = RayOptions(**config["ray"])
        self.num_resamples = int(config["num_resamples"])

    def identify(self) -> dict[str, Any]:
        """Names the detector and the settings that its verdicts depend on."""
        settings = {**{name: self.config.get(name) for name in SETTINGS}, "ray.cpus": self.ray.cpus}
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
        verdicts = answered(rows, DetectorAnswerer(self.detector), config["save_every_num_rows"])
        write_scored(path, rows, drop_unsure_labels(verdicts, config["abstain_at"]), shares.add)
        return shares
