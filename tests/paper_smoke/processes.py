"""Runs a command as a user does, and watches it: its seconds, the memory of each of its processes, its steps."""

import csv
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

KIB_IN_GIB = 1 << 20
EVERY = 0.05  # seconds between two looks
EVERY_MEMORY = 10  # looks between two at the memory


@dataclass(slots=True)
class Watched:
    """A command that has ended.

    Args:
        code: Its exit code; below 0 the signal that ended it.
        memory: The peak of each of its processes in GiB, the largest first.
    """

    code: int
    seconds: float
    memory: list[float]
    output: str
    step_seconds: list[float] = field(default_factory=list)

    @property
    def last_line(self) -> str:
        """Gives the last line that it printed."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error:")]
        return (errors or lines or ["nothing was said"])[-1]


class Process(Protocol):
    """A process that leads a session of its own: a `subprocess.Popen` or a `Fork`."""

    pid: int
    returncode: Any

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


def watch(
    process: Process,
    *,
    log: Path,
    run: Path | None = None,
    kill_when: Callable[[], bool] | None = None,
    limit: float,
) -> Watched:
    """Waits for a command's end, and gives what it took.

    Args:
        log: Has what it prints.
        run: Its folder, where it trains: the curves tell when a step begins and ends.
        kill_when: Ends the command and all its processes by SIGKILL as soon as it is true.
        limit: Seconds after which it is ended.
    """
    begin = time.monotonic()
    peaks: dict[int, float] = {}
    clock = StepClock(run)
    looks = 0
    try:
        while process.poll() is None:
            clock.look()
            if looks % EVERY_MEMORY == 0:
                for pid, peak in memory_of(process.pid).items():
                    peaks[pid] = max(peak, peaks.get(pid, 0.0))
            looks += 1
            if (kill_when is not None and kill_when()) or time.monotonic() - begin > limit:
                end_group(process.pid)
            time.sleep(EVERY)
    finally:
        end_group(process.pid)  # whatever it left
        process.wait()
    memory = sorted(peaks.values(), reverse=True)
    return Watched(process.returncode, time.monotonic() - begin, memory, log.read_text(), clock.seconds)


def end_group(group: int) -> None:
    """Kills a process and all that it started; its session is its own."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def memory_of(group: int) -> dict[int, float]:
    """The peak resident memory in GiB of each process of a group, up to now."""
    peaks = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if os.getpgid(int(folder.name)) != group:
                continue
            lines = (folder / "status").read_text().splitlines()
        except (ProcessLookupError, FileNotFoundError):
            continue
        kib = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
        peaks[int(folder.name)] = kib / KIB_IN_GIB
    return peaks


class StepClock:
    """Times training steps by the curves of a run: the learning rate is written before a step, the loss behind it."""

    def __init__(self, run: Path | None):
        self.run = run
        self._seen: dict[tuple[Path, str, str], float] = {}

    def look(self) -> None:
        """Notes which lines are new; a resumed run takes those out that it will write again."""
        if self.run is None:
            return
        now, before, self._seen = time.monotonic(), self._seen, {}
        for path in self.run.glob("**/csv/metrics.csv"):
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    for name in ("rate", "loss"):
                        if any(value for key, value in row.items() if key and key.startswith(COLUMNS[name])):
                            key = (path, row["step"], name)
                            self._seen[key] = before.get(key, now)

    @property
    def seconds(self) -> list[float]:
        """Gives the time of each step whose beginning and end were seen."""
        ends = [(key, seen) for key, seen in self._seen.items() if key[2] == "loss"]
        begins = [(self._seen.get((path, step, "rate"), seen), seen) for (path, step, _), seen in ends]
        return [end - begin for begin, end in begins if end > begin]


COLUMNS = {"rate": "lr-", "loss": "train/loss"}
