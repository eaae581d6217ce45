"""Training in stages within one run, and the results that loggers get at its end.

Each stage starts from the best weights of the previous one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder, write_config
from faithkit.statistics.metric import Metric

TRAIN, STAGE = "train", "stage"  # job types: a training without stages, and the prefix of a stage
LAST_STAGE = f"{STAGE}2"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """A training within a run: its folder, its configuration, and its job type."""

    run: RunFolder
    config: dict[str, Any]
    job: str = TRAIN


def stages(run: RunFolder, config: Mapping[str, Any]) -> Iterator[Stage]:
    """Yields the unfinished stages of a run.

    If the data block has `first`, its values replace those of the block in a first stage, in a subfolder of the run.
    The second stage starts from the best weights of the first one, with a new schedule.
    """
    data = dict(config["data"])
    first = data.pop("first", None)
    if first is None:
        yield Stage(run, dict(config))
        return
    values = dict(first)
    job = f"{STAGE}1-{values.pop('stage')}"
    stage = run.stage(job)
    if not stage.metrics.exists():
        first_config = {**config, "data": {**data, **values}}
        stage.checkpoints.mkdir(parents=True, exist_ok=True)
        write_config(stage.config, first_config)
        yield Stage(stage, first_config, job)
    model = {**config["model"], "weights": str(stage.hf)}
    yield Stage(run, {**config, "data": data, "model": model}, LAST_STAGE)


def check_parts(config: Mapping[str, Any]) -> None:
    """Checks that objective and control tokens are only set for generators.

    Raises:
        UserError: One is set for another model.
    """
    for group in ("objective", "control"):
        if config.get(group) and group not in config["model"]["task"]:
            problem = f"{group}={part_name(config[group])} does not work with model={config['model']['name']}"
            raise UserError(problem, hint=f"leave {group} out, or choose a generator: model=t5, gpt2, ...")


def part_name(block: Mapping[str, Any]) -> str:
    """Returns the name of an objective or of control tokens, such as `infonce`: that of the file of its class."""
    return str(block["_target_"]).split(".")[-2]


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The results of a training or an evaluation for its loggers.

    Args:
        step: The last optimiser step; 0 for an evaluation.
        metrics: The test metrics by their full names.
        samples: A few predictions of each test set as plain rows with the same columns.
        data: The training data, with the fingerprint of each dataset.
    """

    run: RunFolder
    step: int
    metrics: Mapping[str, Metric]
    samples: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)

    def numbers(self) -> dict[str, float]:
        """Returns the metrics and their intervals as `NAME`, `NAME/low` and `NAME/high`."""
        found: dict[str, float] = {}
        for name, metric in self.metrics.items():
            parts = {name: metric.value, f"{name}/low": metric.low, f"{name}/high": metric.high}
            found |= {key: value for key, value in parts.items() if value is not None}
        return found
