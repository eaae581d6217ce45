"""The validation that chose a training's checkpoint: what sweeps rank runs by."""

from collections.abc import Mapping
from dataclasses import dataclass

from faithkit.runs.curves import read_curves
from faithkit.runs.run import Run, parts_of
from faithkit.statistics.metric import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The monitored metric of a training at its best validation.

    Args:
        monitor: Its full name, `validation/begin/macro_f1`.
        is_lower_better: Its direction.
        metric: With an interval where it is the mean of several seeds.
    """

    monitor: str
    is_lower_better: bool
    metric: Metric


def chosen_of(run: Run) -> Chosen | None:
    """Finds the figure that chose the checkpoint, in metrics.json or else in the learning curves.

    A run that was cut off has the best of its curves so far.
    """
    told = run.meta.get("chosen")
    if not isinstance(told, Mapping):
        callbacks = run.config.get("callbacks")
        told = callbacks if isinstance(callbacks, Mapping) else {}
    monitor, mode = str(told.get("monitor") or ""), told.get("mode")
    if not monitor:
        return None
    is_lower_better = mode == "min"
    try:
        metric = Metric(**{name: told[name] for name in ("value", "low", "high") if told.get(name) is not None})
    except (TypeError, ValueError):  # no value, or none that is a number
        values = [value for _, value in _curve(run, monitor)]
        if not values:
            return None
        metric = Metric(value=min(values) if is_lower_better else max(values))
    return Chosen(monitor=monitor, is_lower_better=is_lower_better, metric=metric)


def _curve(run: Run, monitor: str) -> list[tuple[int, float]]:
    try:
        return [] if run.curves is None else read_curves(run.curves).get(monitor, [])
    except OSError:
        return []


def tested(run: Run, chosen: Chosen) -> tuple[str, Metric] | None:
    """Finds the test metric of the same name as the one that chose the checkpoint, on the same dataset first."""
    _, dataset, short = parts_of(chosen.monitor)
    found = {name: metric for name, metric in run.metrics.items() if parts_of(name)[::2] == ("test", short)}
    name = f"test/{dataset}/{short}" if f"test/{dataset}/{short}" in found else next(iter(found), None)
    return None if name is None else (name, found[name])
