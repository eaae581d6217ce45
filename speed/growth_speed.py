"""Measures how time and memory grow: with rows, words of context, rows at a time, and processes.

Each point is `faithkit score` as a process, on a critic of two layers of 32 with random weights, so that the work
around the model shows. The start is measured too, as a run of one row (of one word where contexts grow). The exponent
of time is that of the CPU-seconds beyond the start, the exponent of memory that of the peak.

Needs: Linux, and the tokenizer of `minilm` (fetched once).

python -m speed.growth_speed [--rows 1000000]      a table of more than 100,000 rows is scored once, not every round
"""

import csv
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from data_modules.embedded.corpus import generate
from speed.measure import ROOT, BenchmarkParser, run_process, table, write_results

# Rows of the table, words of a context, rows at a time, and processes that each score the table, where another grows.
FIXED = {"rows": 8_192, "words": 20, "batch": 2_048, "processes": 1}
AXES = {"rows": (10, 1_000), "words": (10, 100), "batch": (4, 1), "processes": (2, 1)}  # a factor, and the first size
LONG_ROWS = {"words": {"rows": 1_024}}  # where contexts grow
STARTS = {"rows": {"rows": 1}, "words": {"words": 1}, "batch": {"rows": 1}}  # each process has a start of its own
START = 0  # in place of a size
MAX_REPEATED = 100_000  # rows of a table that every round scores
Floats = NDArray[np.float64]


def main() -> None:
    """Measures each axis and fits its exponents."""
    parser = BenchmarkParser(__doc__, rounds=3, rows=100_000, words=10_000, batch=1_024, processes=4)
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    options = parser.parse()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # In another process: the peak that Linux counts for a process begins with its parent's.
        code = f"from speed.samples import write_critic; write_critic({str(folder / 'critic')!r})"
        run_process([sys.executable, "-c", code])
        for axis in options.axes:
            factor, first = AXES[axis]
            points = defaultdict[int, list[tuple[float, float]]](list)  # CPU-seconds and peak MiB by size
            sizes = [START] * (axis in STARTS)
            sizes += [size for power in range(20) if (size := first * factor**power) <= getattr(options, axis)]
            for number in range(options.rounds):
                for size in sizes if number % 2 == 0 else sizes[::-1]:
                    if not points[size] or size <= MAX_REPEATED:
                        points[size].append(score(folder, axis, size))
                        print(f"  {axis}: {size:,}: {points[size][-1]}", file=sys.stderr, flush=True)
            rows = [
                [f"{size:,}", *(f"{median(side):.1f}" for side in zip(*points[size], strict=True))] for size in points
            ]
            if axis in STARTS:
                rows[0][0] = "(start)"
            others = {**FIXED, **LONG_ROWS.get(axis, {})}.items()
            fixed = ", ".join(f"{name} {value:,}" for name, value in others if name != axis)
            lines = [
                f"`faithkit score` with a random critic of 2 layers of 32; {fixed}.",
                table([axis, "CPU-seconds", "peak MiB"], rows),
            ]
            grown = [(size, *pair) for size, pairs in points.items() if size != START for pair in pairs]
            if len(grown) > 3:
                counts, seconds, mib = np.array(grown, float).T
                start = median(taken for taken, _ in points[START]) if axis in STARTS else 0.0
                exponents = fit_exponent(counts, seconds, start), fit_exponent(counts, mib)
                lines.append(f"Exponent of time: {exponents[0]}; of memory: {exponents[1]}.")
            write_results(f"Growth: {axis}", *lines, quick=options.quick)


def score(folder: Path, axis: str, size: int) -> tuple[float, float]:
    """Scores a table of a size; returns the CPU-seconds of all processes and the largest peak in MiB."""
    varied = STARTS[axis] if size == START else {axis: size}
    made = {**FIXED, **LONG_ROWS.get(axis, {}), **varied}
    path = folder / "rows.csv"
    write_rows(path, made["rows"], made["words"])
    command = [sys.executable, "-m", "faithkit", "score", str(path), f"checkpoint={folder / 'critic'}"]
    command.append(f"save_every_num_rows={made['batch']}")
    with tempfile.TemporaryDirectory(dir=folder) as runs:
        # All at the same time.
        commands = [[*command, f"run_dir={runs}/{number}"] for number in range(made["processes"])]
        started = [
            subprocess.Popen(one, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for one in commands
        ]
        seconds = peak = 0.0
        for one, process in zip(commands, started, strict=True):
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                sys.exit(f"error: exit code {process.returncode}: {' '.join(one)}")
            seconds, peak = seconds + used.ru_utime + used.ru_stime, max(peak, used.ru_maxrss / 1024)
        return seconds, peak


def fit_exponent(sizes: Floats, values: Floats, start: float = 0.0) -> str:
    """Fits value = start + b * size^exponent, with equal relative errors; returns the exponent with its interval."""
    grown = np.maximum(values - start, values / 1e9)
    # An error of the value is the larger in the logarithm of what has grown, the less has grown.
    slope, covariance = np.polyfit(np.log(sizes), np.log(grown), 1, w=grown / values, cov=True)
    reach = np.sqrt(covariance[0, 0]) * t.ppf(0.975, len(sizes) - 2)
    return f"{slope[0]:.3f} [{slope[0] - reach:.3f}, {slope[0] + reach:.3f}]"


def write_rows(path: Path, rows: int, words: int) -> None:
    """Writes a table of distinct contexts of `words` words."""
    examples = list(generate("test", 1_000))
    text = " ".join(example.knowledge for example in examples).split()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["context", "answer"])
        for number, example in enumerate(islice(cycle(examples), rows)):
            begin = number * words % (len(text) - words)
            writer.writerow([f"Record {number}. {' '.join(text[begin : begin + words])}", example.response])


if __name__ == "__main__":
    main()
