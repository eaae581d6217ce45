"""Runs tests in children of one process that has imported what they import, in a copy of the project.

`python -m tests.mutation.worker` reads one job a line and answers each: {path, source, tests, seconds} runs tests with
a file changed, and tells how they ended; {watch, tests, seconds} runs them unchanged, and tells which lines of the
watched files each of them runs. A mutant costs its tests alone: a process of its own would import torch first.
"""

import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

HEAVY = ("pytest", "hypothesis", "numpy", "scipy.optimize", "sklearn.ensemble", "torch", "pytorch_lightning", "hydra")
MODELS = ("bert", "llama", "t5", "modernbert", "bart")
PASSED, FAILED, ENDLESS = "passed", "failed", "endless"
ENDS = {0: PASSED, 5: PASSED}  # 5: no tests


def main() -> None:
    """Imports, then takes jobs until its input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit())
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for name in [*HEAVY, *(f"transformers.models.{model}.modeling_{model}" for model in MODELS)]:
        importlib.import_module(name)
    gc.freeze()  # else each child looks through all that is imported, twice
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(watch(**job) if "watch" in job else run_changed(**job)), file=answers)


def run_changed(path: str, source: str, tests: Sequence[str], seconds: float) -> str:
    """Runs tests with a file changed, up to the first that fails; tells how they ended."""
    file = Path(path)
    original = file.read_bytes()
    try:
        file.write_text(source, encoding="utf-8")
        return in_child(lambda: run_chosen(tests), seconds)
    finally:
        file.write_bytes(original)


def watch(watch: Sequence[str], test_file: str, seconds: float) -> dict[str, Any]:
    """Runs unchanged tests and tells what each that passes takes and runs, and what code was imported.

    After some seconds no further test is begun. A single test that takes twice as long leaves nothing known.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "reached.json")
        in_child(lambda: run_watched(test_file, watch, report, seconds), 2 * seconds)
        found: dict[str, Any] = {"tests": [], "code": []}
        return json.loads(report.read_text()) if report.is_file() else found


def in_child(run: Callable[[], int], seconds: float) -> str:
    """Runs tests in a child that has a process group and so can be ended with all that it started.

    Args:
        run: Runs the tests and gives pytest's exit code.
        seconds: CPU-seconds that it may take: on a busy machine the clock tells nothing. What waits forever is ended
            when ten times as much has passed.
    """
    begin, process = time.monotonic(), os.fork()
    if process == 0:
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 1))
            os._exit(run())
        finally:
            os._exit(1)
    try:
        while time.monotonic() - begin < 10 * seconds:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return ENDLESS if code == -signal.SIGXCPU else ENDS.get(code, FAILED)
            time.sleep(0.02)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return ENDLESS
    finally:  # also where the worker is told to end: what the tests started ends with them
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)


def run_chosen(tests: Sequence[str]) -> int:
    """Runs tests by their names, up to the first that fails."""
    from tests.mutation.reach import Chosen

    return _pytest(["-x", *sorted({test.partition("::")[0] for test in tests})], Chosen(tests))


def run_watched(test_file: str, watch: Sequence[str], report: Path, seconds: float) -> int:
    """Runs a test file and writes which lines of the watched files each of its tests runs."""
    from tests.mutation.reach import Recorder

    recorder = Recorder(watch, seconds)
    recorder.start()
    code = _pytest([test_file], recorder)
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    own = [str(Path(file).relative_to(Path.cwd())) for file in files if file and Path(file).is_relative_to(Path.cwd())]
    report.write_text(json.dumps({"tests": [asdict(test) for test in recorder.reached], "code": sorted(own)}))
    return code


def _pytest(arguments: Sequence[str], plugin: object) -> int:
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    import pytest

    unused = [part for name in ("cacheprovider", "xdist", "anyio") for part in ("-p", f"no:{name}")]
    return int(pytest.main(["-q", "--assert=plain", *unused, *arguments], plugins=[plugin]))


if __name__ == "__main__":
    main()
