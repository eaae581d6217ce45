"""Runs tests in children of one process that has imported what they import, in a copy of the project.

`python -m tests.mutation.worker` reads one job a line (JSON: path, source, tests, seconds) and answers each with how
the tests ended. A mutant costs its tests alone: a process of its own would import torch first.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

HEAVY = ("pytest", "hypothesis", "numpy", "scipy.optimize", "sklearn.ensemble", "torch", "pytorch_lightning", "hydra")
MODELS = ("bert", "llama", "t5", "modernbert", "bart")
PASSED, FAILED, ENDLESS, NO_TESTS = "passed", "failed", "endless", "no tests"
ENDS = {0: PASSED, 5: NO_TESTS}


def main() -> None:
    """Imports, then takes jobs until its input ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for name in [*HEAVY, *(f"transformers.models.{model}.modeling_{model}" for model in MODELS)]:
        importlib.import_module(name)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(run_changed(job["path"], job["source"], job["tests"], job["seconds"])), file=answers)


def run_changed(path: str | None, source: str, tests: Sequence[str], seconds: float) -> tuple[str, float]:
    """Runs tests with a file changed, up to the first that fails; gives how they ended and the seconds they took."""
    if path is None:
        return run_tests(tests, seconds)
    file = Path(path)
    original = file.read_bytes()
    try:
        file.write_text(source, encoding="utf-8")
        return run_tests(tests, seconds)
    finally:
        file.write_bytes(original)


def run_tests(tests: Sequence[str], seconds: float) -> tuple[str, float]:
    """Runs test files in a child that has a process group and so can be ended with all that it started."""
    begin, process = time.monotonic(), os.fork()
    if process == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os._exit(_pytest(tests))
    end = ENDLESS
    try:
        while time.monotonic() - begin < seconds:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                end = ENDS.get(os.waitstatus_to_exitcode(status), FAILED)
                break
            time.sleep(0.02)
    finally:  # also where the worker is told to end: what the tests started ends with them
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    if end == ENDLESS:
        os.waitpid(process, 0)
    return end, time.monotonic() - begin


def _pytest(tests: Sequence[str]) -> int:
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    import pytest

    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", *tests]))


if __name__ == "__main__":
    main()
