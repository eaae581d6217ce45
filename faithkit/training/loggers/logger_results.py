"""The results that loggers get at the end of a training or an evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faithkit.files.run_folder import RunFolder
from faithkit.statistics.metric import Metric

Row = Mapping[str, Any]


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
