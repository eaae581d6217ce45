"""The settings that differ between runs, as they would be typed."""

from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.runs.run import Run, differing_settings, flatten

MISSING = "–"


def settings_that_differ(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Finds the keys whose values differ, with the value of each run as the command line would write it."""
    flat = [dict(flatten(run.config)) for run in runs]
    return {key: [written(one[key]) if key in one else MISSING for one in flat] for key in differing_settings(runs)}


def written(value: Any) -> str:
    """Writes a value as a configuration has it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {written(one)}' for key, one in value.items())}}}"
    return str(value)
