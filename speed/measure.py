"""The harness of the benchmarks: options, alternating rounds, processes, and results with their conditions."""

import argparse
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "research" / "speed.md"
Side = Callable[[], object]  # does the work; may return its CPU-seconds (a float) if only a part of the work counts
OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # none of our packages


class BenchmarkParser(argparse.ArgumentParser):
    """Parses the options of a benchmark: `--rounds`, `--quick` and one integer option for each size.

    `--quick` divides the sizes by 16, runs one round and leaves research/speed.md alone.
    """

    def __init__(self, description: str | None, *, rounds: int = 3, **sizes: int):
        super().__init__(description=(description or "").splitlines()[0])
        self.sizes = sizes
        self.add_argument("--quick", action="store_true", help="small sizes and one round; changes no file")
        self.add_argument("--rounds", type=int, default=rounds)
        for name, default in sizes.items():
            self.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"default: {default}")

    def parse(self) -> argparse.Namespace:
        """Parses the command line."""
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # processes that are started write it, as an installation does
        options = self.parse_args()
        if options.quick:
            vars(options).update({name: max(2, getattr(options, name) // 16) for name in self.sizes}, rounds=1)
        return options


@dataclass(frozen=True)
class Ratio:
    """The CPU-seconds of one side divided by those of another: median, lowest and highest round."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, slow: Sequence[float], fast: Sequence[float]) -> "Ratio":
        """Divides round by round, because other load of the machine slows both sides of a round."""
        ratios = [a / b for a, b in zip(slow, fast, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.low:.2f} to {self.high:.2f})"


def require(*modules: str, hint: str = "pip install -e '.[bench]'") -> None:
    """Ends the program with a hint if a package is missing; called before any work."""
    missing = [name.replace("_", "-") for name in modules if find_spec(name) is None]
    if missing:
        print(f"error: not installed: {', '.join(missing)}; hint: {hint}", file=sys.stderr)
        sys.exit(2)


def cpu_seconds() -> float:
    """Returns the CPU-seconds of this process and of its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def synchronize(device: str) -> None:
    """Waits until a GPU has done its work."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def gpu_name(device: str) -> str:
    """Returns the name of a GPU, empty for a CPU."""
    if device != "cuda":
        return ""
    import torch

    return torch.cuda.get_device_name()


def clock_of(device: str) -> Callable[[], float]:
    """Returns the clock of a device: CPU-seconds, or wall time, when a GPU has done its work."""

    def read() -> float:
        synchronize(device)
        return time.perf_counter()

    return cpu_seconds if device == "cpu" else read


def alternate(
    sides: Mapping[str, Side],
    num_rounds: int,
    *,
    warm_up: bool = False,
    apart: bool = False,
    clock: Callable[[], float] = cpu_seconds,
) -> dict[str, list[float]]:
    """Times each side once a round, after a warm-up that does not count; every other round reverses the order.

    Args:
        apart: Runs each side in a forked process, so that one does not profit from what another sets (the allocator).

    Returns:
        The seconds of each side, round by round.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    fork = get_context("fork")

    def measure(side: Side) -> float:
        begin = clock()
        returned = side()
        return returned if isinstance(returned, float) else clock() - begin

    for number in range(-warm_up, num_rounds):
        names = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for name in names:
            if apart:
                receiver, sender = fork.Pipe(duplex=False)
                process = fork.Process(target=lambda to, side: to.send(measure(side)), args=(sender, sides[name]))
                process.start()
                sender.close()
                seconds = float(receiver.recv())
                process.join()
            else:
                seconds = measure(sides[name])
            if number >= 0:
                taken[name].append(seconds)
                print(f"  round {number + 1} of {num_rounds}: {name} {seconds:.2f} s", file=sys.stderr, flush=True)
    return taken


def rates(taken: Mapping[str, Sequence[float]], sizes: int | Mapping[str, int], *, digits: int = 1) -> list[list[str]]:
    """Makes a row of each side: its name, items a CPU-second (`sizes`: of a round), and the ratio to the first side."""
    size = sizes if isinstance(sizes, Mapping) else dict.fromkeys(taken, sizes)
    per_item = {name: [second / size[name] for second in seconds] for name, seconds in taken.items()}
    first = next(iter(per_item.values()))
    return [
        [name, f"{1 / statistics.median(seconds):,.{digits}f}", str(Ratio.of(first, seconds))]
        for name, seconds in per_item.items()
    ]


def run_process(command: Sequence[str], exit_code: int = 0) -> None:
    """Runs a process to its end and checks its exit code."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != exit_code:
        sys.exit(f"error: exit code {done.returncode}, expected {exit_code}: {' '.join(command)}\n{done.stderr}")


def machine() -> str:
    """Describes the processor, the memory and the packages, without names of hosts or paths."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", facts, re.MULTILINE)
    flags = set((re.search(r"^flags\s*:\s*(.+)$", facts, re.MULTILINE) or ["", ""])[1].split())
    widest = next((name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags), "no AVX2")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "tokenizers"))
    cpu = f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, {widest}, {memory:.0f} GiB"
    return f"{cpu}; Python {platform.python_version()}, {packages}"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Formats a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def write_results(title: str, *parts: str, quick: bool = False, device: str = "", path: Path = RESULTS) -> None:
    """Prints a section and, unless the run is quick, replaces the section with the same title in research/speed.md."""
    arguments = [re.sub(r"(^|=)/.*", r"\1PATH", argument) for argument in sys.argv[1:]]
    command = " ".join(["python -m", f"speed.{Path(sys.argv[0]).stem}", *arguments])
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    commit, device = git.stdout.strip() or "unknown", f"{device}; " if device else ""
    origin = f"{date.today().isoformat()}, `{command}`, commit {commit}\n{device}{machine()}"
    section = "\n\n".join([f"## {title}", *parts, origin]) + "\n"
    print(section, flush=True)
    if not quick:
        sections = re.split(r"(?m)^(?=## )", path.read_text() if path.exists() else "# Results\n")
        titles = [one.splitlines()[0] for one in sections[1:]]
        if f"## {title}" in titles:
            sections[1 + titles.index(f"## {title}")] = section
        else:
            sections.append(section)
        path.write_text("\n".join(one.strip() + "\n" for one in sections))


@contextmanager
def start_worker(command: Sequence[str], **environment: str) -> Iterator[Callable[..., Any]]:
    """Starts a process; yields a function that sends it one line of words and returns its answer, a line of JSON."""
    with tempfile.TemporaryFile("w+") as log:
        pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
        process = subprocess.Popen(command, env=OUTSIDE | environment, **pipes)

        def ask(*words: object) -> Any:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):  # it has ended, and its log says why
                print(*words, file=process.stdin, flush=True)
            if not (line := process.stdout.readline()):
                log.seek(0)
                sys.exit(f"error: the worker ended: {' '.join(command)}\n{log.read()[-3000:]}")
            return json.loads(line)

        try:
            yield ask
        finally:
            process.kill()
            process.wait()
