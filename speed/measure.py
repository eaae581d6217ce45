"""Takes figures (CPU-seconds in alternating rounds) and writes them, with the machine, to a section of RESULTS.md."""

import os
import platform
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = """# Results

Written by the files of this folder. A ratio is the median over rounds in which the two sides took turns, in CPU-seconds
of one thread; the lowest and highest round stand behind it.
"""
Side = Callable[[], object]  # does the work; returns its CPU-seconds, a float, where only a part of the work counts


@dataclass(frozen=True)
class Ratio:
    """The CPU-seconds of one side over those of another: median, lowest and highest round."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, slow: Sequence[float], fast: Sequence[float]) -> "Ratio":
        """Divides round by round: whatever else the machine does in a round slows both sides."""
        ratios = [a / b for a, b in zip(slow, fast, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.low:.2f} to {self.high:.2f})"


def require(*modules: str, hint: str = "pip install -e '.[bench]'") -> None:
    """Ends the program with a hint where a package is missing; to be called before any work."""
    missing = [name.replace("_", "-") for name in modules if find_spec(name) is None]
    if missing:
        print(f"error: not installed: {', '.join(missing)}; hint: {hint}", file=sys.stderr)
        sys.exit(2)


def cpu_seconds() -> float:
    """Returns the CPU-seconds of this process and of its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def alternate(
    sides: Mapping[str, Side], num_rounds: int, *, warm_up: bool = False, clock: Callable[[], float] = cpu_seconds
) -> dict[str, list[float]]:
    """Times each side once a round; every other round goes through the sides backwards.

    Args:
        sides: What is timed, by name.
        warm_up: First runs each side once without counting it.
        clock: Tells the seconds.

    Returns:
        The CPU-seconds of each side, round by round.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-warm_up, num_rounds):
        names = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for name in names:
            begin = clock()
            returned = sides[name]()
            seconds = returned if isinstance(returned, float) else clock() - begin
            if number >= 0:
                taken[name].append(seconds)
                print(f"  round {number + 1} of {num_rounds}: {name} {seconds:.2f} s", file=sys.stderr, flush=True)
    return taken


def anonymous_mib(pid: int | str = "self") -> float:
    """Returns the MiB of a process that are not mapped from files; of this one where none is named."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, "smaps_rollup always has the line"
    return int(found[1]) / 1024


def machine() -> str:
    """Describes the processor, the memory and the packages, without names of hosts or paths."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", facts, re.MULTILINE)
    flags = set((re.search(r"^flags\s*:\s*(.+)$", facts, re.MULTILINE) or ["", ""])[1].split())
    widest = next((name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags), "no AVX2")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {_version(name)}" for name in ("torch", "transformers", "tokenizers"))
    cpu = f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, {widest}, {memory:.0f} GiB"
    return f"{cpu}; Python {platform.python_version()}, {packages}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Formats a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def report(title: str, body: str, *, device: str = "", path: Path = RESULTS) -> None:
    """Prints a section and writes it to RESULTS.md, in the place of the one with the same title."""
    name = Path(sys.argv[0]).stem
    command = " ".join(["python -m", f"speed.{name}", *sys.argv[1:]])
    origin = f"{date.today().isoformat()}, `{command}`\n{device + '; ' if device else ''}{machine()}"
    section = f"## {title}\n\n{body.strip()}\n\n{origin}\n"
    print(section, flush=True)
    path.write_text(replace_section(path.read_text() if path.exists() else HEAD, title, section))


def replace_section(text: str, title: str, section: str) -> str:
    """Replaces the section with this title, or adds it at the end."""
    parts = re.split(r"(?m)^(?=## )", text)
    titles = [part.splitlines()[0] for part in parts[1:]]
    if f"## {title}" in titles:
        parts[1 + titles.index(f"## {title}")] = section
    else:
        parts.append(section)
    return "\n".join(part.strip() + "\n" for part in parts)
