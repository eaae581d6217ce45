"""The settings that differ between runs, as a reader wants them: of runs of one script, and as they would be typed."""

from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.runs.reading import Run
from faithkit.runs.settings import differing_settings, flatten

MISSING = "–"


def settings_that_differ(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Finds the keys whose values differ, with the value of each run as the command line would write it.

    A key that runs of one script have and others of it lack differs; scripts differ in their keys anyway.
    """
    flat = [dict(flatten(run.config)) for run in runs]
    found = {}
    for key in differing_settings(runs):
        told = [written(one[key]) if key in one else MISSING for one in flat]
        scripts = {run.script for run, one in zip(runs, flat, strict=True) if key in one}
        compared = {value for run, value in zip(runs, told, strict=True) if run.config and run.script in scripts}
        if len(compared) > 1:
            found[key] = told
    return found


def written(value: Any) -> str:
    """Writes a value as a configuration has it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {written(one)}' for key, one in value.items())}}}"
    return str(value)
