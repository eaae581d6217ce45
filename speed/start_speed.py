"""Times starts as processes: the first verdict, `faithkit score` on 40 rows, the first training step, commands.

Verdict and score are those of the detector `default`. The training is that of `train.py model=critic` on a CPU, with
its encodings in the cache; it ends after its first step. `--help` and refused command lines are compared with
`import hydra`.

Needs: the weights `minilm` in the cache (`python -m faithkit.weights fetch minilm`).

python -m speed.start_speed
"""

import csv
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from data_modules.embedded.corpus import generate
from speed.measure import BenchmarkParser, Ratio, alternate, cpu_seconds, run_process, table, write_results

TRAIN = ("train.py", "model=critic")
REFUSED = {
    "a wrong value, train.py": (*TRAIN, "seed=abc"),
    "a wrong key, train.py": (*TRAIN, "optimizer.lrr=1"),
    "three wrong values and a key, train.py": (*TRAIN, "seed=a", "optimizer.lr=b", "data.num_train=-5", "tainer=cpu"),
    "a wrong value, export.py": ("export.py", "checkpoint=x", "debug=5"),
    "a wrong path, train.py": (*TRAIN, "data=begin", "data.path=/nowhere"),
    "a missing checkpoint, evaluate.py": ("evaluate.py", "benchmark=begin", "checkpoint=/nowhere/run"),
    "a missing extra, generate.py": ("generate.py", "checkpoint=smollm2-135m", "engine=vllm"),
    "a missing GPU, train.py": (*TRAIN, "trainer=gpu"),
}
VERDICT = "from faithkit import check; check(knowledge='It was built in 1889.', response='It was built in 1899.')"
# Replaces Lightning's loop over batches by one that ends the process after the first.
STEP = """
import os, runpy, sys
from importlib import abc, machinery

NAME = "pytorch_lightning.loops.training_epoch_loop"


class Finder(abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec = machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def load_changed(module):
            load(module)
            advance = module._TrainingEpochLoop.advance

            def end(*arguments):
                advance(*arguments)
                os._exit(0)

            module._TrainingEpochLoop.advance = end

        spec.loader.exec_module = load_changed
        return spec


sys.meta_path.insert(0, Finder())
runpy.run_path("train.py", run_name="__main__")
sys.exit("no step was made")
"""


def main() -> None:
    """Times each start in turns."""
    options = BenchmarkParser(__doc__, rounds=5, rows=40).parse()
    with tempfile.TemporaryDirectory() as name:
        folder, number = Path(name), count()
        path = folder / "rows.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["context", "answer"])
            examples = list(generate("test", 8 * options.rows))[: options.rows]
            writer.writerows((one.knowledge, one.response) for one in examples)
        commands = {
            "import torch": ["-c", "import torch"],
            "import and first verdict": ["-c", VERDICT],
            f"faithkit score, {options.rows} rows": ["-m", "faithkit", "score", str(path)],
            "first step of train.py model=critic": ["-c", STEP, "model=critic", "trainer=cpu"],
        }
        wall: dict[str, list[float]] = {side: [] for side in commands}

        def start(side: str, command: Sequence[str]) -> float:
            begin, cpu = time.perf_counter(), cpu_seconds()
            extra = [] if command[1] in ("import torch", VERDICT) else [f"run_dir={folder / str(next(number))}"]
            run_process([sys.executable, *command, *extra])
            wall[side].append(time.perf_counter() - begin)
            return cpu_seconds() - cpu

        starts = {side: partial(start, side, command) for side, command in commands.items()}
        taken = alternate(starts, options.rounds, warm_up=True)
    lines = [
        [side, f"{median(seconds):.2f}", f"{median(wall[side][1:]):.2f} ({min(wall[side][1:]):.2f})"]
        for side, seconds in taken.items()
    ]
    about = "The files are in the disk's cache, and the encodings of the training in ours."
    write_results("Starts", about, table(["process", "CPU-seconds", "seconds (least)"], lines), quick=options.quick)
    helped: dict[str, tuple[str, ...]] = {
        f"{name} --help": (name, "--help") for name in ("train.py", "evaluate.py", "export.py")
    }
    base = "import hydra"
    for title, tried, exit_code in (("Help", helped, 0), ("Refused command lines", REFUSED, 2)):
        sides = {base: partial(run_process, [sys.executable, "-c", base])}
        for name, arguments in tried.items():
            sides[name] = partial(run_process, [sys.executable, *arguments], exit_code)
        taken = alternate(sides, options.rounds, warm_up=True)
        rows = [[name, f"{median(seconds):.3f}", Ratio.of(seconds, taken[base])] for name, seconds in taken.items()]
        write_results(title, table(["process", "CPU-seconds", "times `import hydra`"], rows), quick=options.quick)


if __name__ == "__main__":
    main()
