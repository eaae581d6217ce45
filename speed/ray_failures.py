"""Scores many embedded rows by `faithkit score engine=ray`: the memory by the rows done, and what failures cost.

Two workers of one thread. One launch does all rows. Of the first shards three launches more: one that nothing disturbs,
one of which a worker is killed with -9, and one that is killed itself and started again. A small critic (BERT, 2 layers
of 64) is trained first, once.

    python -m speed.ray_failures [--rows 1000000] [--rows_per_shard 10000] [--disturbed 20]

Needs: pip install -e '.[ray]'.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from data_modules.embedded.corpus import generate
from faithkit_workflows.ray.out_folder import OWN
from speed.measure import anonymous_mib, report, require, table
from speed.ray_speed import processes

WORKERS, EVERY = 2, 0.2
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Takes the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rows_per_shard", type=int, default=10_000)
    parser.add_argument("--disturbed", type=int, default=20, help="shards of each launch that is disturbed")
    options = parser.parse_args()
    require("ray", hint="pip install -e '.[ray]'")

    from faithkit.files.home import cache_dir

    checkpoint = small_critic(cache_dir("speed"))
    with TemporaryDirectory() as folder:
        data, part = Path(folder, "data"), Path(folder, "part")
        write_shards(data, options.rows, options.rows_per_shard)
        part.mkdir()
        for path in sorted(data.iterdir())[: options.disturbed]:
            (part / path.name).hardlink_to(path)
        whole = Launch(data, Path(folder, "whole"), checkpoint)
        whole.watch()
        lines = failures(part, Path(folder), checkpoint, options)
    report("Many rows through Ray, and failures", f"{of_memory(whole, options)}\n\n{lines}")


class Launch:
    """A running command, and what was seen of it."""

    def __init__(self, data: Path, out: Path, checkpoint: str):
        self.out, self.begun = out, time.monotonic()
        self.seen: dict[str, float] = {}  # when the folder of each shard in work was first seen
        self.history: dict[str, tuple[float, float]] = {}  # when each finished one began, and what it took
        self.memory: list[tuple[int, float, float]] = []  # shards finished, MiB of the command, of its largest worker
        arguments = [f"path={data}", f"checkpoint={checkpoint}", f"out={out}", "engine=ray", f"ray.workers={WORKERS}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "faithkit", "score", *arguments, "num_resamples=20"],
            cwd=ROOT,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )

    @property
    def num_finished(self) -> int:
        return len(list((self.out / OWN / "shards").glob("*")))

    def in_work(self) -> set[str]:
        """Gives the folders of the shards in work, and notes when each came and went."""
        folder, now = self.out / OWN / "unfinished", time.monotonic()
        found = {path.name for path in folder.glob("*")}
        for name in found:
            self.seen.setdefault(name, now)
        for name in [name for name in self.seen if name not in found]:
            began = self.seen.pop(name)
            self.history[name] = (began, now - began)
        return found

    @property
    def taken(self) -> list[float]:
        return [taken for _, taken in self.history.values()]

    @property
    def began(self) -> list[float]:
        return [began for began, _ in self.history.values()]

    def watch(self, until: Callable[[], bool] = lambda: False) -> float:
        """Waits for the end of the command, or for something before; gives the seconds since it was begun."""
        last = 0.0
        while self.process.poll() is None and not until():
            self.in_work()
            if time.monotonic() - last > 1:
                last = time.monotonic()
                self._note_memory()
            time.sleep(EVERY)
        if self.process.poll() not in (None, 0):
            sys.exit(f"the command ended with {self.process.returncode}")
        return time.monotonic() - self.begun

    def _note_memory(self) -> None:
        with suppress(OSError):  # one ends meanwhile
            workers = [anonymous_mib(pid) for pid in self.workers()]
            self.memory.append((self.num_finished, anonymous_mib(self.process.pid), max(workers, default=0.0)))

    def workers(self) -> list[int]:
        """Gives the processes that score, the busiest first."""
        spent = processes()
        titles = {pid: Path(f"/proc/{pid}/cmdline") for pid in spent}
        named = [pid for pid, path in titles.items() if path.exists() and b"ray::MapWorker" in path.read_bytes()]
        return sorted(named, key=lambda pid: -spent[pid])

    def at_once(self, moment: float) -> int:
        """Counts the shards in work just after a moment, those of dead workers left out."""
        ended = {name: began + taken for name, (began, taken) in self.history.items()}
        return sum(began <= moment < ended[name] for name, (began, _) in self.history.items())

    def is_amid(self) -> bool:
        """Tells whether every worker is in the middle of a shard, and a third of the time of one has gone by."""
        if self.num_finished < WORKERS or len(self.in_work()) < WORKERS:
            return False
        return min(time.monotonic() - began for began in self.seen.values()) > median(self.taken) / 3


def failures(data: Path, folder: Path, checkpoint: str, options: argparse.Namespace) -> str:
    """Kills a worker of one launch, and another launch as a whole; compares with one that is left in peace."""
    size = options.rows_per_shard
    plain = Launch(data, folder / "plain", checkpoint)
    first = plain.watch(until=lambda: bool(plain.in_work()))
    undisturbed = plain.watch()
    of_shard = median(plain.taken)

    worker = Launch(data, folder / "worker", checkpoint)
    worker.watch(until=worker.is_amid)
    before, killed = dict(worker.seen), time.monotonic()
    os.kill(worker.workers()[0], signal.SIGKILL)
    with_killed_worker = worker.watch()
    [left] = [began for name, began in before.items() if name in worker.seen]  # the dead worker's folder stays
    anew = [began for began in sorted(worker.began) if began > killed and worker.at_once(began) == WORKERS]
    back = f"{anew[0] - killed:.0f}" if anew else "not before the end"

    command = Launch(data, folder / "command", checkpoint)
    until_killed = command.watch(until=command.is_amid)
    lost = [time.monotonic() - began for began in command.seen.values()]
    command.process.kill()
    command.process.wait()
    again = Launch(data, folder / "command", checkpoint)
    first_again = again.watch(until=lambda: bool(again.in_work() - command.seen.keys()))
    resumed = again.watch()
    for launch in (worker, command):
        if not equal(plain.out, launch.out):
            sys.exit("a launch that was disturbed has written other bytes")

    def twice(*seconds: float) -> str:
        return f"{sum(min(1.0, each / of_shard) for each in seconds) * size:,.0f}"

    rows = [
        ["nothing", f"{undisturbed:.0f}", "", f"{first:.0f}"],
        ["a worker, -9", f"{with_killed_worker:.0f}", twice(killed - left), back],
        ["the command, -9, and started again", f"{until_killed + resumed:.0f}", twice(*lost), f"{first_again:.0f}"],
    ]
    head = ["killed", "seconds in all", "rows scored twice, about", "seconds until all workers, or the first, scored"]
    return (
        f"{options.disturbed} shards of {size:,} rows, each {of_shard:.0f} seconds of a worker; the scored shards of "
        "the three launches are the same bytes. Rows scored twice are those of the shards in work, by the time that "
        f"they had had. The last figure of the first line is that of a launch from nothing.\n\n{table(head, rows)}"
    )


def of_memory(launch: Launch, options: argparse.Namespace) -> str:
    """Shows what the command and its largest worker held by the shards that were finished."""
    shards = options.rows // options.rows_per_shard
    rows = []
    for label, least in (("a tenth", shards // 10), ("a half", shards // 2), ("nine tenths", 9 * shards // 10)):
        done, command, worker = next(one for one in launch.memory if one[0] >= least)
        rows.append([label, f"{done * options.rows_per_shard:,}", f"{command:.0f}", f"{worker:.0f}"])
    most = [max(one[place] for one in launch.memory) for place in (1, 2)]
    rows.append(["most at any time", "", *(f"{one:.0f}" for one in most)])
    return (
        f"{options.rows:,} embedded rows in {shards} Parquet shards, {WORKERS} workers of one thread, a critic of 2 "
        "layers of 64. MiB that are not mapped from files, looked at every second:\n\n"
        f"{table(['done', 'rows', 'the command', 'its largest worker'], rows)}"
    )


def small_critic(home: Path) -> str:
    """Trains a small critic once, keeps it in the cache, and returns its run folder."""
    from transformers import BertConfig, BertModel

    from data_modules.encoding.tokens import load_tokenizer
    from faithkit.weights.resolve import resolve

    run, weights = home / "small-critic", home / "small-bert"
    if not (run / "hf").exists():
        shutil.rmtree(run, ignore_errors=True)  # left by an interrupted training
        tokenizer = load_tokenizer(str(resolve("minilm")))
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=2,
        )
        BertModel(config).save_pretrained(weights)
        tokenizer.save_pretrained(weights)
        arguments = ["model=critic", f"model.weights={weights}", "trainer=cpu", "callbacks.progress_bar=false"]
        command = [sys.executable, "train.py", *arguments, f"run_dir={run}"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    return str(run)


def write_shards(folder: Path, count: int, size: int) -> None:
    """Writes embedded rows as Parquet."""
    folder.mkdir()
    for number, start in enumerate(range(0, count, size)):
        rows = list(generate("train", min(size, count - start), start=start))
        columns = {"knowledge": [row.knowledge for row in rows], "response": [row.response for row in rows]}
        pq.write_table(pa.table(columns), folder / f"part-{number:05d}.parquet")


def equal(first: Path, second: Path) -> bool:
    """Compares the scored shards of two folders byte for byte."""
    names = [sorted(path.name for path in each.glob("*.parquet")) for each in (first, second)]
    return names[0] == names[1] and all((first / n).read_bytes() == (second / n).read_bytes() for n in names[0])


if __name__ == "__main__":
    main()
