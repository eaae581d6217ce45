"""The end of a training or an evaluation as its loggers get it, and the protocol of a place to log to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytorch_lightning.loggers import Logger

from faithkit.files.run_folder import RunFolder
from faithkit.statistics.metric import Metric

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The end of a training or an evaluation, as its loggers get it.

    Args:
        step: The optimiser's step that training ended at; 0 of an evaluation.
        metrics: The test metrics by their full names.
        samples: Of each test set a few predictions as plain rows; all rows of a set have the same columns.
        data: What the model was trained on, with the fingerprint of each dataset.
    """

    run: RunFolder
    step: int
    metrics: Mapping[str, Metric]
    samples: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)

    def numbers(self) -> dict[str, float]:
        """The metrics with the ends of their intervals, as `NAME`, `NAME/low` and `NAME/high`."""
        found: dict[str, float] = {}
        for name, metric in self.metrics.items():
            parts = {name: metric.value, f"{name}/low": metric.low, f"{name}/high": metric.high}
            found |= {key: value for key, value in parts.items() if value is not None}
        return found


class RunLogger(Protocol):
    """One place that a training logs to."""

    @property
    def lightning(self) -> Logger:
        """The logger that Lightning writes to while it trains."""
        ...

    def log_results(self, finished: Finished) -> None:
        """Adds test metrics, a sample of predictions and the model, as far as this place can hold them."""
        ...

    def close(self, exit_code: int) -> None:
        """Ends it; called once, also after an error or an interruption."""
        ...
