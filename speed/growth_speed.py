"""Measures how time and memory grow: with rows, words of context, rows at a time, and processes.

Each point is `faithkit score` as a process, on a critic of two layers of 32 with random weights, so that the work
around the model shows. Time is fitted as start + b * size^exponent, memory as b * size^exponent.

Needs: Linux, and the tokenizer of `minilm` (fetched once).

python -m speed.growth_speed [--rows 1000000]      a table of more than 100,000 rows is scored once, not every round
"""

import csv
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit
from scipy.stats import linregress, t

from data_modules.embedded.corpus import generate
from speed.measure import BenchmarkParser, measure_processes, run_process, table, write_results

# Rows of the table, words of a context, rows at a time, and processes that each score the table, where another grows.
FIXED = {"rows": 2_048, "words": 20, "batch": 2_048, "processes": 1}
AXES = {"rows": (10, 1_000), "words": (10, 100), "batch": (4, 1), "processes": (2, 1)}  # a factor, and the first size
LONG_ROWS = {"words": {"rows": 64}}  # where contexts grow
MAX_REPEATED = 100_000  # rows of a table that every round scores
Pairs = list[tuple[float, float]]  # CPU-seconds and peak MiB
Floats = NDArray[np.float64]


def main() -> None:
    """Measures each axis and fits its exponents."""
    parser = BenchmarkParser(__doc__, rounds=2, rows=100_000, words=10_000, batch=1_024, processes=4)
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    options = parser.parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = str(folder / "critic")
        # In another process: the peak that Linux counts for a process begins with its parent's.
        run_process([sys.executable, "-c", f"from speed.samples import write_critic; write_critic({checkpoint!r})"])

        def score(axis: str, size: int) -> tuple[float, float]:
            made = {**FIXED, **LONG_ROWS.get(axis, {}), axis: size}
            path = folder / "rows.csv"
            write_rows(path, made["rows"], made["words"])
            command = [
                "faithkit",
                "score",
                str(path),
                f"checkpoint={checkpoint}",
                f"save_every_num_rows={made['batch']}",
            ]
            with tempfile.TemporaryDirectory(dir=folder) as runs:
                run_dirs = [f"run_dir={runs}/{number}" for number in range(made["processes"])]
                return measure_processes([[sys.executable, "-m", *command, run_dir] for run_dir in run_dirs])

        for axis in options.axes:
            (factor, first), points = AXES[axis], defaultdict[int, Pairs](list)
            sizes = [size for power in range(20) if (size := first * factor**power) <= getattr(options, axis)]
            for number in range(options.rounds):
                for size in sizes if number % 2 == 0 else sizes[::-1]:
                    if not points[size] or size <= MAX_REPEATED:
                        points[size].append(score(axis, size))
                        print(f"  {axis}: {size:,}: {points[size][-1]}", file=sys.stderr, flush=True)
            write_axis(axis, points, quick=options.quick)


def write_axis(axis: str, points: Mapping[int, Pairs], *, quick: bool = False) -> None:
    """Writes the medians of each size, and the exponents of time and memory with their 95% intervals."""
    sizes = np.array([size for size, some in points.items() for _ in some], float)
    seconds, mib = np.array([pair for some in points.values() for pair in some]).T
    medians = [[f"{size:,}", *(f"{median(side):.1f}" for side in zip(*points[size], strict=True))] for size in points]
    others = {**FIXED, **LONG_ROWS.get(axis, {})}.items()
    fixed = ", ".join(f"{name} {value:,}" for name, value in others if name != axis)
    lines = [f"`faithkit score` with a random critic of 2 layers of 32; {fixed}."]
    lines.append(table([axis, "CPU-seconds", "peak MiB"], medians))
    if len(sizes) > 3:
        line = linregress(np.log(sizes), np.log(mib))
        memory = format_interval(line.slope, line.stderr, len(sizes) - 2)
        lines.append(f"Exponent of time: {fit_growth(sizes, seconds)}; of memory: {memory}.")
    write_results(f"Growth: {axis}", *lines, quick=quick)


def fit_growth(sizes: Floats, seconds: Floats) -> str:
    """Fits seconds = start + b * size^exponent with equal relative errors, and formats the exponent."""

    def model(size: Floats, start: float, b: float, exponent: float) -> Floats:
        return start + b * size**exponent

    guess = [seconds.min() / 2, seconds.max() / sizes.max(), 1.0]
    found, covariance = curve_fit(model, sizes, seconds, guess, sigma=seconds, maxfev=20_000)
    return format_interval(found[2], float(np.sqrt(covariance[2, 2])), len(sizes) - 3)


def format_interval(value: float, error: float, freedom: int) -> str:
    """Formats a fitted value with its 95% interval, if the sizes determine it."""
    reach = error * float(t.ppf(0.975, freedom))
    if not reach < 1:
        return "not determined by these sizes"
    return f"{value:.3f} [{value - reach:.3f}, {value + reach:.3f}]"


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
