"""How figures are taken and kept: CPU-seconds in alternating rounds, the machine, and a section of RESULTS.md."""

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
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = """# Results

Written by the files of this folder. A ratio is the median over rounds in which the two sides took turns, in CPU-seconds
of one thread; the lowest and highest round stand behind it.
"""
Side = Callable[[], object]  # does the work; where a part must not count it gives its own CPU-seconds, a float


@dataclass(frozen=True)
class Ratio:
    """How many times more CPU-seconds one side took than the other."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, slow: Sequence[float], fast: Sequence[float]) -> "Ratio":
        """Round by round: what disturbs the machine in a round disturbs both sides."""
        ratios = [a / b for a, b in zip(slow, fast, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.low:.2f} to {self.high:.2f})"


def cpu_seconds() -> float:
    """Of this process and of the children that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def alternate(
    sides: Mapping[str, Side], num_rounds: int, *, warm_up: bool = False, clock: Callable[[], float] = cpu_seconds
) -> dict[str, list[float]]:
    """CPU-seconds of each side in each round; every other round goes through the sides backwards.

    Args:
        warm_up: Runs each side once before it counts.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-warm_up, num_rounds):
        names = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for name in names:
            begin = clock()
            own = sides[name]()
            seconds = own if isinstance(own, float) else clock() - begin
            if number >= 0:
                taken[name].append(seconds)
                print(f"  round {number + 1} of {num_rounds}: {name} {seconds:.2f} s", file=sys.stderr, flush=True)
    return taken


def anonymous_mib() -> float:
    """Memory of this process that no file stands behind."""
    text = Path("/proc/self/smaps_rollup").read_text()
    found = re.search(r"^Anonymous:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, "smaps_rollup always has the line"
    return int(found[1]) / 1024


def machine() -> str:
    """What a figure depends on; no names of hosts, no paths."""
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
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def report(title: str, body: str, *, device: str = "", path: Path = RESULTS) -> None:
    """Prints a section and puts it into RESULTS.md, in place of the one of the same title."""
    name = Path(sys.argv[0]).stem
    command = " ".join(["python -m", f"speed.{name}", *sys.argv[1:]])
    origin = f"{date.today().isoformat()}, `{command}`\n{device + '; ' if device else ''}{machine()}"
    section = f"## {title}\n\n{body.strip()}\n\n{origin}\n"
    print(section, flush=True)
    path.write_text(replace_section(path.read_text() if path.exists() else HEAD, title, section))


def replace_section(text: str, title: str, section: str) -> str:
    """The text with this section in place of the one of its title, or at its end."""
    parts = re.split(r"(?m)^(?=## )", text)
    titles = [part.splitlines()[0] for part in parts[1:]]
    if f"## {title}" in titles:
        parts[1 + titles.index(f"## {title}")] = section
    else:
        parts.append(section)
    return "\n".join(part.strip() + "\n" for part in parts)
