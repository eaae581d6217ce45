"""Times the start of commands, `--help` and refused command lines, against `import hydra`.

Needs: nothing more than faithkit.

python -m speed.command_speed
"""

import sys
from functools import partial
from statistics import median

from speed.measure import BenchmarkParser, Ratio, alternate, run_process, table, write_results

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


def main() -> None:
    """Times each group of commands."""
    options = BenchmarkParser(__doc__, rounds=5).parse()
    helped: dict[str, tuple[str, ...]] = {
        f"{name} --help": (name, "--help") for name in ("train.py", "evaluate.py", "export.py")
    }
    base = "import hydra"
    for title, commands, exit_code in (("Help", helped, 0), ("Refused command lines", REFUSED, 2)):
        sides = {base: partial(run_process, [sys.executable, "-c", base])}
        for name, command in commands.items():
            sides[name] = partial(run_process, [sys.executable, *command], exit_code)
        taken = alternate(sides, options.rounds, warm_up=True)
        rows = [[name, f"{median(seconds):.3f}", Ratio.of(seconds, taken[base])] for name, seconds in taken.items()]
        write_results(title, table(["process", "CPU-seconds", "times `import hydra`"], rows), quick=options.quick)


if __name__ == "__main__":
    main()
