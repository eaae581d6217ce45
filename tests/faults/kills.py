"""Kills a run at a file event, resumes it, and compares what it leaves with an undisturbed run."""

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.forked import run_forked

KILLED = -9


@dataclass(frozen=True)
class Command:
    """A script with its options; `run_dir` is added to them."""

    script: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Undisturbed:
    """A command to which nothing happened: its file events, and what it left."""

    command: Command
    events: list[str]
    results: dict[str, bytes]


def results(run: Path) -> dict[str, bytes]:
    """Reads what must be equal: the predictions, and the figures of metrics.json."""
    found = {path.name: path.read_bytes() for path in sorted((run / "predictions").glob("*.jsonl"))}
    if (run / "metrics.json").exists():
        found["metrics"] = json.dumps(json.loads((run / "metrics.json").read_text())["metrics"]).encode()
    return found


def run_watched(script: str, *overrides: str, folder: Path, kill_at: int | None = None) -> tuple[int, str, list[str]]:
    """Runs a script in a folder of its own; gives its exit code, the end of what it printed and its file events."""
    log = folder.parent / f"{folder.name}.events"
    log.unlink(missing_ok=True)
    code, output = run_forked(script, *overrides, folder=folder, events=log, kill_at=kill_at)
    return code, output[-3000:], log.read_text().splitlines()


def undisturbed(command: Command, folder: Path) -> Undisturbed:
    """Runs the command once to its end."""
    code, output, events = run_watched(command.script, f"run_dir={folder / 'run'}", *command.overrides, folder=folder)
    assert code == 0, output
    found = results(folder / "run")
    assert found and all(found.values())
    return Undisturbed(command, events, found)


def kill_and_resume(whole: Undisturbed, number: int, folder: Path) -> None:
    """Kills a run of the command before its event with this number, and checks what follows.

    Nothing lies in TMPDIR, and resuming ends in the same results; where there is nothing to resume, the command itself.
    """
    command, run = whole.command, folder / "run"
    first = (f"run_dir={run}", *command.overrides)
    code, output, events = run_watched(command.script, *first, folder=folder, kill_at=number)
    at = f"killed at event {number}: {(events or ['none'])[-1]}"
    assert code == KILLED, f"{at}: exit code {code}\n{output}"
    left = [path for path in (folder / "tmp").rglob("*") if path.is_file()]
    assert not left, f"{at}: left in TMPDIR: {left}"
    again = (f"resume={run}",) if (run / "config.yaml").exists() else first
    code, output, _ = run_watched(command.script, *again, folder=folder)
    assert code == 0, f"{at}: resuming ended with {code}\n{output}"
    found = results(run)
    different = [name for name in whole.results.keys() | found.keys() if found.get(name) != whole.results.get(name)]
    assert not different, f"{at}: other results: {different}\n{output}"
    shutil.rmtree(folder)


def sample(whole: Undisturbed, count: int, seed: int) -> Sequence[int]:
    """Numbers of events, the same for the same seed; spread, so that each part of the run has its share."""
    rng, total = random.Random(seed), len(whole.events)
    return [rng.randint(part * total // count + 1, (part + 1) * total // count) for part in range(count)]
