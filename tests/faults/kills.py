"""Kills a run at a file event, resumes it, and compares what it leaves with an undisturbed run."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.running import ROOT

KILLED = -9


class Warm:
    """A process that has imported everything, whose children run the scripts."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.faults.warm"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None and self._process.stdin is not None
        assert self._process.stdout.readline() == "ready\n"
        self._in, self._out = self._process.stdin, self._process.stdout

    def run(
        self, script: str, *overrides: str, folder: Path, kill_at: int | None = None, is_plain_user: bool = False
    ) -> tuple[int, list[str]]:
        """Runs a script, its cache and its temporary files in `folder`; gives its exit code and its file events.

        Args:
            kill_at: Kills it before this event.
            is_plain_user: Runs it without the rights of root.
        """
        folder.mkdir(parents=True, exist_ok=True)
        log = folder.parent / f"{folder.name}.events"
        log.unlink(missing_ok=True)
        how = {"kill_at": kill_at, "is_plain_user": is_plain_user}
        job = {"script": script, "overrides": overrides, "folder": str(folder), "log": str(log), **how}
        print(json.dumps(job), file=self._in, flush=True)
        code = int(self._out.readline())
        return code, log.read_text().splitlines()

    def close(self) -> None:
        self._in.close()
        self._process.wait(timeout=60)


@dataclass(frozen=True)
class Command:
    """A script with its options; `run_dir` is added to them."""

    script: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Undisturbed:
    """What a command does when nothing happens: its file events, and what it leaves."""

    command: Command
    events: list[str]
    results: dict[str, bytes]


def results(run: Path) -> dict[str, bytes]:
    """What must be equal: the predictions, and the figures of metrics.json."""
    found = {path.name: path.read_bytes() for path in sorted((run / "predictions").glob("*.jsonl"))}
    if (run / "metrics.json").exists():
        found["metrics"] = json.dumps(json.loads((run / "metrics.json").read_text())["metrics"]).encode()
    return found


def undisturbed(warm: Warm, command: Command, folder: Path) -> Undisturbed:
    """Runs the command once to its end."""
    code, events = warm.run(command.script, f"run_dir={folder / 'run'}", *command.overrides, folder=folder)
    assert code == 0, output(folder)
    found = results(folder / "run")
    assert found and all(found.values())
    return Undisturbed(command, events, found)


def kill_and_resume(warm: Warm, whole: Undisturbed, number: int, folder: Path) -> None:
    """Kills a run of the command before its event with this number, and checks what follows.

    Nothing lies in TMPDIR, and resuming ends in the same results; where there is nothing to resume, the command itself.
    """
    command, run = whole.command, folder / "run"
    first = (f"run_dir={run}", *command.overrides)
    code, events = warm.run(command.script, *first, folder=folder, kill_at=number)
    at = f"killed at event {number}: {(events or ['none'])[-1]}"
    assert code == KILLED, f"{at}: exit code {code}\n{output(folder)}"
    left = [path for path in (folder / "tmp").rglob("*") if path.is_file()]
    assert not left, f"{at}: left in TMPDIR: {left}"
    again = (f"resume={run}",) if (run / "config.yaml").exists() else first
    code, _ = warm.run(command.script, *again, folder=folder)
    assert code == 0, f"{at}: resuming ended with {code}\n{output(folder)}"
    found = results(run)
    different = [name for name in whole.results.keys() | found.keys() if found.get(name) != whole.results.get(name)]
    assert not different, f"{at}: other results: {different}\n{output(folder)}"
    shutil.rmtree(folder)


def sample(whole: Undisturbed, count: int, seed: int) -> Sequence[int]:
    """Numbers of events, the same for the same seed; spread, so that each part of the run has its share."""
    rng, total = random.Random(seed), len(whole.events)
    return [rng.randint(part * total // count + 1, (part + 1) * total // count) for part in range(count)]


def output(folder: Path) -> str:
    return (folder / "output.txt").read_text()[-3000:]
