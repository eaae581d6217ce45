"""Compares the start of our scripts (`--help`) with `python -c "import hydra"`, each as a whole process.

Needs: nothing more than faithkit.

python -m speed.help_speed
"""

import argparse
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np

from speed.measure import Ratio, alternate, report, table

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("train.py", "evaluate.py", "export.py")


def main() -> None:
    """Times them in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    commands = {"import hydra": ["-c", "import hydra"]} | {f"{name} --help": [name, "--help"] for name in SCRIPTS}
    taken = alternate(
        {name: partial(run, arguments) for name, arguments in commands.items()},
        options.rounds,
        warm_up=True,
    )
    rows = [
        [name, f"{np.median(seconds):.3f}", Ratio.of(seconds, taken["import hydra"])] for name, seconds in taken.items()
    ]
    report("Help", table(["process", "CPU-seconds", "times `import hydra`"], rows))


def run(arguments: list[str]) -> None:
    """Runs one process to its end."""
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
