"""The settings of runs as flat keys, and those among them that differ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faithkit.runs.run import Run

SCALE = "scale"  # the defaults of all models: those that a run took stand in its own blocks
# Where a run worked and what it showed says nothing of what it did.
LEFT_OUT = ("run_dir", "resume", "debug", "html", "hydra")


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names each value by its full key, `model.max_length`; lists stay whole."""
    for key, value in config.items():
        name = f"{prefix}{key}"
        if name in LEFT_OUT or (prefix == f"{SCALE}." and key != "name"):
            continue
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value


def differing_settings(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Finds the settings that differ, each with the value of every run; None where a run has no such key.

    A key that some runs of a script have and others lack differs; scripts differ in their keys anyway. A value that
    stands under several keys, as `optimizer.lr` does under `model.task.optimizer.lr` too, is told once, under the
    shortest of them.
    """
    flat = [dict(flatten(run.config)) for run in runs]
    found: dict[str, list[Any]] = {}
    told: set[tuple[str, str]] = set()
    for key in sorted({key for one in flat for key in one}, key=lambda key: (key.count("."), key)):
        scripts = {run.script for run, one in zip(runs, flat, strict=True) if key in one}
        compared = {repr(one.get(key)) for run, one in zip(runs, flat, strict=True) if one and run.script in scripts}
        values = [one.get(key) for one in flat]
        same = (key.rpartition(".")[2], repr(values))
        if len(compared) > 1 and same not in told:
            told.add(same)
            found[key] = values
    return found
