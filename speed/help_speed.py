"""Times `--help` and refused command lines against `python -c "import hydra"`, each as a whole process.

Needs: nothing more than faithkit.

python -m speed.help_speed
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from speed.measure import Ratio, alternate, report, table

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("train.py", "evaluate.py", "export.py")
TRAIN, EVALUATE, GENERATE = ("train.py", "model=critic"), ("evaluate.py", "benchmark=begin"), ("generate.py",)
REFUSED = {
    "a wrong value, train.py": (*TRAIN, "seed=abc"),
    "a wrong key, train.py": (*TRAIN, "optimizer.lrr=1"),
    "three wrong values and a key, train.py": (*TRAIN, "seed=a", "optimizer.lr=b", "data.num_train=-5", "tainer=cpu"),
    "two wrong values and a key, evaluate.py": (*EVALUATE, "seed=abc", "benchmark.num_rows=-1", "batch_size=-1"),
    "three wrong values, generate.py": (*GENERATE, "checkpoint=x", "batch_size=-1", "seed=a", "num_rows=0"),
    "a wrong value, export.py": ("export.py", "checkpoint=x", "debug=5"),
    "a wrong path, train.py": (*TRAIN, "data=begin", "data.path=/nowhere"),
    "a missing checkpoint, evaluate.py": (*EVALUATE, "checkpoint=/nowhere/run"),
    "a missing extra, generate.py": (*GENERATE, "checkpoint=smollm2-135m", "engine=vllm"),
    "a missing GPU, train.py": (*TRAIN, "trainer=gpu"),
}


def main() -> None:
    """Times them in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    commands = {f"{name} --help": partial(run, [name, "--help"]) for name in SCRIPTS}
    show("Help", commands, options.rounds)
    show("Refused command lines", {name: partial(run, line, 2) for name, line in REFUSED.items()}, options.rounds)


def show(title: str, commands: Mapping[str, Callable[[], None]], rounds: int) -> None:
    """Prints the times of commands beside that of Hydra's import."""
    base = "import hydra"
    taken = alternate({base: partial(run, ["-c", base]), **commands}, rounds, warm_up=True)
    rows = [[name, f"{np.median(seconds):.3f}", Ratio.of(seconds, taken[base])] for name, seconds in taken.items()]
    report(title, table(["process", "CPU-seconds", "times `import hydra`"], rows))


def run(arguments: Sequence[str], wanted: int = 0) -> None:
    """Runs one process to its end, which must have the wanted exit code."""
    ended = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True)
    assert ended.returncode == wanted, ended.stderr.decode()


if __name__ == "__main__":
    main()
