"""Plans a corpus past this machine: what limits first, and what it costs.

Measured here: what a shard costs the command and Ray, with workers that do nothing. Simulated: what failures and the
last shards add. Assumed, each an option: the GPU, the text and the price.

Needs: pip install -e '.[ray]'.

python -m speed.scale_plan
python -m speed.scale_plan --gpus 1000 --gpu_tflops 400 --price 2.5
"""

import argparse
import heapq
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from faithkit_workflows.ray.cluster import run_on_cluster
from faithkit_workflows.settings.engines import RayOptions
from speed.measure import anonymous_mib, report, require, table
from speed.ray_speed import processes

WORKERS = 2
MODELS = {
    "RoBERTa-large, 303M without its vocabulary": 303e6,
    "ModernBERT-base, 110M": 110e6,
    "7B judge, a verdict": 6.5e9,
}
HOUR = 3600.0


class Idle:
    """A worker that does nothing with its shard."""

    def __init__(self, argument: Any):
        self.argument = argument

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return dict(row)


def main() -> None:
    """Takes the figures, and writes them beside what they were made from."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shards", type=int, nargs="+", default=[1000, 4000], help="through Ray, few and many")
    parser.add_argument("--rows", type=float, default=10e9)
    parser.add_argument("--rows_per_shard", type=float, default=100_000)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--tokens", type=float, default=200, help="of a row")
    parser.add_argument("--bytes", type=float, default=1000, help="of a row as it is stored")
    parser.add_argument("--gpu_tflops", type=float, default=300, help="that a GPU reaches, not its data sheet's")
    parser.add_argument("--python_rows", type=float, default=1594, help="a CPU-second, without the model (ray_speed)")
    parser.add_argument("--price", type=float, default=3.0, help="of a GPU and its share of a host, by the hour")
    parser.add_argument("--days_between_failures", type=float, default=50, help="of one worker")
    parser.add_argument("--restart_minutes", type=float, default=5)
    options = parser.parse_args()
    require("ray", hint="pip install -e '.[ray]'")
    sections = [of_ray(options.shards), on_paper(options), simulated(options)]
    report("A plan past one machine", "\n\n".join(sections))


def of_ray(numbers: list[int]) -> str:
    """Sends shards through workers that do nothing."""
    import ray

    ray.init(address="local", log_to_driver=False, num_cpus=WORKERS, object_store_memory=10**8, include_dashboard=False)
    lines = []
    for number in (100, *numbers):  # the first run pays for starting the workers
        before, begin = processes(), time.monotonic()
        done = sum(
            1 for _ in run_on_cluster(Idle, None, [{"shard": i} for i in range(number)], RayOptions(workers=WORKERS))
        )
        assert done == number
        after, seconds = processes(), time.monotonic() - begin
        own = after[os.getpid()] - before[os.getpid()]
        all_ = sum(after[pid] - spent for pid, spent in before.items() if pid in after)
        lines.append(
            [f"{number:,}", *(f"{1000 * each / number:.1f}" for each in (own, all_, seconds)), f"{anonymous_mib():.0f}"]
        )
        print(*lines[-1], flush=True)
    ray.shutdown()
    head = ["shards", "command, CPU-ms a shard", "with Ray's own, CPU-ms", "wall ms", "MiB of the command"]
    return f"Through Ray {ray.__version__} with {WORKERS} workers that do nothing:\n\n{table(head, lines[1:])}"


def on_paper(options: argparse.Namespace) -> str:
    """Divides what is to be done by what does it."""
    lines = []
    for name, parameters in MODELS.items():
        of_gpu = options.gpu_tflops * 1e12 / (2 * parameters * options.tokens)
        threads = of_gpu / options.python_rows
        rate = of_gpu * options.gpus
        hours = options.rows / rate / HOUR
        shards = rate / options.rows_per_shard
        cells = [f"{of_gpu:,.0f}", f"{threads:.1f}", f"{rate * options.bytes / 1e9:.2f}", f"{shards:.1f}"]
        lines.append([name, *cells, f"{hours:.1f}", f"{hours * options.gpus * options.price:,.0f}"])
    head = [
        "model",
        "rows a GPU-second",
        "worker threads a GPU",
        "GB/s read, and written",
        "shards a second",
        "hours",
        "price",
    ]
    told = (
        f"{options.rows:,.0f} rows of {options.tokens:.0f} tokens and {options.bytes:.0f} bytes in shards of "
        f"{options.rows_per_shard:,.0f} on {options.gpus:,} GPUs, of which each does {options.gpu_tflops:.0f} TFLOP/s "
        f"and costs {options.price:g} an hour. Two operations a parameter and token; attention is left out. A worker "
        f"is one process, whose reading, tokenising and writing take {options.python_rows:,.0f} rows a CPU-second: "
        "where a GPU does more it needs several workers (`ray.gpus` below 1)."
    )
    return f"{told}\n\n{table(head, lines)}"


def simulated(options: argparse.Namespace) -> str:
    """Gives what failures and the last shards add to the time of workers that never fail and end together."""
    lines = []
    for minutes in (1.0, 5.0, 20.0, 60.0):
        for per_worker in (10, 100):
            runs = [simulate(options, minutes, per_worker, seed) for seed in range(3)]
            over, redone = np.median([run[0] for run in runs]), np.median([run[1] for run in runs])
            lines.append([f"{minutes:g}", per_worker, f"{100 * over:.1f}", f"{100 * redone:.2f}"])
    head = ["minutes a shard", "shards a worker", "longer, percent", "scored twice, percent"]
    told = (
        f"{options.gpus:,} workers, each lost every {options.days_between_failures:g} days on average and back after "
        f"{options.restart_minutes:g} minutes; its shard begins anew. Shards take log-normal times (sigma 0.3). Median "
        "of three simulations, against as many minutes spread evenly:"
    )
    return f"{told}\n\n{table(head, lines)}"


def simulate(options: argparse.Namespace, minutes: float, per_worker: int, seed: int) -> tuple[float, float]:
    """Hands each shard to the worker that is free first; gives the share of time and of work that comes on top."""
    rng = np.random.default_rng(seed)
    times = rng.lognormal(0, 0.3, options.gpus * per_worker)
    times *= minutes / times.mean()
    mean = options.days_between_failures * 24 * 60
    free = [0.0] * options.gpus
    failures = rng.exponential(mean, options.gpus)
    workers = [(at, worker) for worker, at in enumerate(free)]
    heapq.heapify(workers)
    queue, lost, end = list(times[::-1]), 0.0, 0.0
    while queue:
        at, worker = heapq.heappop(workers)
        needed = queue.pop()
        if at + needed > failures[worker]:
            fails = max(at, failures[worker])
            lost += fails - at
            queue.append(needed)  # it is given out again first
            failures[worker] = fails + options.restart_minutes + rng.exponential(mean)
            heapq.heappush(workers, (fails + options.restart_minutes, worker))
            continue
        end = max(end, at + needed)
        heapq.heappush(workers, (at + needed, worker))
    ideal = times.sum() / options.gpus
    return float(end / ideal - 1), float(lost / times.sum())


if __name__ == "__main__":
    main()
