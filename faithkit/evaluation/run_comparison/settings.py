"""The settings of runs, and among them those that differ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faithkit.runs.reading import Run

# Where a run worked and what it showed says nothing of what it did.
LEFT_OUT = ("run_dir", "resume", "resumed", "debug", "html", "hydra")
MISSING = "–"


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names each value of a configuration by its full key, `model.max_length`; lists stay whole."""
    for key, value in config.items():
        name = f"{prefix}{key}"
        if name in LEFT_OUT:
            continue
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value


def differing(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Finds the keys whose values differ, with the value of each run as the command line would write it.

    A key that runs of one script have and others of it lack differs; scripts differ in their keys anyway.
    """
    flat = [dict(flatten(run.config)) for run in runs]
    found: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for one in flat for key in one):
        having = {run.script for run, one in zip(runs, flat, strict=True) if key in one}
        told = [written(one[key]) if key in one else MISSING for one in flat]
        compared = {
            value
            for run, one, value in zip(runs, flat, told, strict=True)
            if key in one or (run.script in having and one)
        }
        if len(compared) > 1:
            found[key] = told
    return found


def written(value: Any) -> str:
    """Writes a value as a configuration has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {written(one)}' for key, one in value.items())}}}"
    return str(value)
