"""Measures how time and memory grow: with rows, words of context, rows at a time, and processes.

Each point is `faithkit score` as a process, on a critic of two layers of 32 with random weights, so that the work
around the model shows. Time is fitted as start + b * size^exponent, because the start of a process would hide the
growth of small tables; memory, with the start's, as b * size^exponent.

Needs: Linux, and the tokenizer of `minilm` (fetched once).

python -m speed.growth_speed [--rows 1000000]      a table of more than 100,000 rows is scored once, not every round
"""

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit
from scipy.stats import linregress, t

from data_modules.embedded.corpus import generate
from speed.measure import ROOT, BenchmarkParser, run_process, table, write_results

FEWEST_ROWS, FEWEST_WORDS = 1_000, 100
CONTEXT_ROWS, BATCH_ROWS = 200, 4_096  # of the tables that do not grow
MAX_REPEATED = 100_000  # rows of a table that every round scores
LEVEL = 0.95  # of the intervals
Points = Mapping[int, list[tuple[float, float]]]  # CPU-seconds and peak MiB of each round, by size
Floats = NDArray[np.float64]


def main() -> None:
    """Measures each axis and fits its exponents."""
    options = BenchmarkParser(__doc__, rounds=3, rows=100_000, words=10_000, batch=1_024, processes=4).parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = str(folder / "critic")
        # In another process: the peak that Linux counts for a process begins with its parent's.
        run_process(
            [sys.executable, "-c", f"from speed.growth_speed import write_critic; write_critic({checkpoint!r})"]
        )

        def score(rows: int, words: int = 20, *, batch: int = 2_048, processes: int = 1) -> tuple[float, float]:
            path = folder / f"{rows}-{words}.csv"
            if not path.exists():
                write_rows(path, rows, words)
            command = [sys.executable, "-m", "faithkit", "score", str(path), f"checkpoint={checkpoint}"]
            command.append(f"save_every_num_rows={batch}")
            with tempfile.TemporaryDirectory(dir=folder) as runs:
                return run_measured([[*command, f"run_dir={runs}/{number}"] for number in range(processes)])

        axes: dict[str, tuple[list[int], Callable[[int], tuple[float, float]]]] = {
            "rows": (factors(FEWEST_ROWS, options.rows, 10), score),
            f"words of context, {CONTEXT_ROWS} rows": (
                factors(FEWEST_WORDS, options.words, 10),
                lambda words: score(CONTEXT_ROWS, words),
            ),
            f"rows at a time, {BATCH_ROWS:,} rows": (
                factors(1, options.batch, 4),
                lambda batch: score(BATCH_ROWS, batch=batch),
            ),
            f"processes, {BATCH_ROWS:,} rows each": (
                factors(1, options.processes, 2),
                lambda count: score(BATCH_ROWS, processes=count),
            ),
        }
        lines = []
        for axis, (sizes, run) in axes.items():
            points: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
            for number in range(options.rounds):
                for size in sizes if number % 2 == 0 else sizes[::-1]:
                    if not points[size] or size <= MAX_REPEATED:
                        points[size].append(run(size))
                        print(f"  {axis}: {size:,}: {points[size][-1]}", file=sys.stderr, flush=True)
            lines.append([axis, *describe(points)])
    about = "`faithkit score` of a CSV with a random critic of 2 layers of 32; the peak is of the largest process."
    header = ["growing", "size: CPU-seconds, peak MiB", "exponent of time", "exponent of memory"]
    write_results("Growth", about, table(header, lines), quick=options.quick)


def factors(first: int, last: int, factor: int) -> list[int]:
    """Returns the sizes from the first to the last."""
    sizes = [first]
    while sizes[-1] < last:
        sizes.append(min(last, sizes[-1] * factor))
    return sizes


def describe(points: Points) -> list[str]:
    """Formats the medians of each size and the exponents of time and memory with their 95% intervals."""
    medians = [
        f"{n:,}: {median(s for s, _ in some):.1f}, {median(m for _, m in some):.0f}" for n, some in points.items()
    ]
    sizes = np.array([size for size, some in points.items() for _ in some], float)
    seconds, mib = np.array([pair for some in points.values() for pair in some]).T
    return ["; ".join(medians), fit_growth(sizes, seconds), fit_power(sizes, mib)]


def fit_growth(sizes: Floats, seconds: Floats) -> str:
    """Fits seconds = start + b * size^exponent with equal relative errors, and formats the exponent."""
    if len(sizes) < 4:
        return "-"
    found, covariance = curve_fit(
        lambda size, start, b, exponent: start + b * size**exponent,
        *(sizes, seconds, [seconds.min() / 2, seconds.max() / sizes.max(), 1.0]),
        sigma=seconds,
        maxfev=20_000,
    )
    return _format(found[2], float(np.sqrt(covariance[2, 2])), len(sizes) - 3)


def fit_power(sizes: Floats, values: Floats) -> str:
    """Fits log value = log b + exponent * log size, and formats the exponent."""
    found = linregress(np.log(sizes), np.log(values))
    return _format(found.slope, found.stderr, len(sizes) - 2)


def _format(value: float, error: float, freedom: int) -> str:
    reach = error * float(t.ppf((1 + LEVEL) / 2, freedom)) if freedom > 0 else float("nan")
    return f"{value:.3f} [{value - reach:.3f}, {value + reach:.3f}]"


def run_measured(commands: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Runs processes at the same time; returns the CPU-seconds of all and the largest peak in MiB."""
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen(command, cwd=ROOT, **silent) for command in commands]
    seconds = peak = 0.0
    for process in processes:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"error: exit code {process.returncode}: {' '.join(process.args)}")  # type: ignore[arg-type]
        seconds, peak = seconds + used.ru_utime + used.ru_stime, max(peak, used.ru_maxrss / 1024)
    return seconds, peak


def write_rows(path: Path, rows: int, words: int) -> None:
    """Writes a table whose contexts differ and have so many words."""
    examples = list(generate("test", 1_000))
    text = " ".join(example.knowledge for example in examples).split()[:10_000]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["context", "answer"])
        for number, example in enumerate(islice(cycle(examples), rows)):
            begin = number * words % len(text)
            context = " ".join((text[begin:] + text * (1 + words // len(text)))[:words])
            writer.writerow([f"Record {number}. {context}", example.response])


def write_critic(folder: str) -> None:
    """Writes a critic of 2 layers of 32 with random weights and the words of `minilm`."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    from faithkit.weights.resolve import resolve

    tokenizer = AutoTokenizer.from_pretrained(resolve("minilm"))
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    names = {0: "faithful", 1: "hallucinated"}
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, id2label=names, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
