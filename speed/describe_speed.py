"""Times `construct.py pipeline=describe`, plots and page included, as a whole process, with its peak memory.

Needs: the `construction` extra. The corpus is the embedded one in HalluDial's layout: as the JSON list of the official
files, whose reader holds the whole text, and as JSON lines.

python -m speed.describe_speed --rows 15000 150000
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from data_modules.embedded.layouts import WRITERS
from speed.measure import report, require, table

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Describes each size in both forms."""
    require("matplotlib", hint="pip install -e '.[construction]'")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[15_000, 150_000])
    rows = []
    for num_rows in parser.parse_args().rows:
        with tempfile.TemporaryDirectory() as folder:
            for form in ("JSON list", "JSON lines"):
                with ProcessPoolExecutor(1) as other:  # a child's peak is never told below its parent's memory
                    other.submit(write, folder, num_rows, form).result()
                rows.append([f"{num_rows:,}", form, *describe(folder)])
    head = ["rows", "file", "CPU-seconds", "seconds", "peak MiB"]
    report("Describing a corpus", f"Embedded corpus in HalluDial's layout; tables, plots, page.\n\n{table(head, rows)}")


def write(folder: str, num_rows: int, form: str) -> None:
    """Writes the corpus in one of the two forms."""
    WRITERS["halludial"](Path(folder), {"test": num_rows}, seed=0)
    for file in Path(folder).rglob("*.json") if form == "JSON lines" else ():
        items = json.loads(file.read_text(encoding="utf-8"))
        file.write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")


def describe(path: str) -> list[str]:
    """Describes a folder in a process of its own; returns CPU-seconds, seconds and peak MiB."""
    with tempfile.TemporaryDirectory() as run:
        arguments = ["pipeline=describe", "pipeline.dataset=halludial", f"pipeline.path={path}", f"run_dir={run}/run"]
        begin = time.monotonic()
        process = subprocess.Popen([sys.executable, "construct.py", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, "describe failed"
    seconds = time.monotonic() - begin
    return [f"{usage.ru_utime + usage.ru_stime:.1f}", f"{seconds:.1f}", f"{usage.ru_maxrss / 1024:,.0f}"]


if __name__ == "__main__":
    main()
