"""Tells the state that a run is in by what its folder holds; a run that was killed has no word to say of its own."""

import json
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from faithkit.files.run_folder import RunFolder
from faithkit.files.run_lock import is_locked

TRAIN, EVALUATE, GENERATE, CONSTRUCT, SCORE = "train", "evaluate", "generate", "construct", "score"


class State(StrEnum):
    """The state that a run is in."""

    FINISHED = "finished"
    RESUMABLE = "resumable"  # cut off: `resume=` goes on with it
    WORKING = "working"  # a command works in the folder now
    BROKEN = "broken"  # neither finished nor to be resumed


def state_of(run: RunFolder, script: str, predictions: Iterable[Path], *, has_results: bool, has_config: bool) -> State:
    """Finds the state of a run.

    Args:
        predictions: Its predictions files.
        has_results: Whether its metrics.json could be read.
        has_config: Whether its config.yaml could be read, without which nothing is resumed.
    """
    if is_locked(run.path):
        return State.WORKING
    if has_results or _has_ended(run, script, predictions):
        return State.FINISHED
    return State.RESUMABLE if has_config else State.BROKEN


def _has_ended(run: RunFolder, script: str, predictions: Iterable[Path]) -> bool:
    """Tells whether a script that writes no metrics.json has come to its end."""
    if script in (GENERATE, SCORE):  # an origin stands beside a file once all its rows are there
        files = list(predictions)
        return bool(files) and all(path.with_suffix(".origin.json").exists() for path in files)
    if script == EVALUATE:
        return (run.path / "corpus.json").exists()  # benchmark=analysis
    return script == CONSTRUCT and _chain_has_ended(run.path / "manifest.json")


def _chain_has_ended(manifest: Path) -> bool:
    try:
        found = json.loads(manifest.read_bytes())
        steps = [step["state"] for step in found["steps"]]
        return bool(found["result"]) and all(state == "done" for state in steps)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return False
