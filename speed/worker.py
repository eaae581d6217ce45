"""Runs a peer's code as a process in an environment of its own, asked line by line."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # none of our packages


@contextmanager
def start_worker(command: Sequence[str], **environment: str) -> Iterator[Callable[..., Any]]:
    """Starts a process; yields a function that sends it one line of words and returns its answer, a line of JSON."""
    with tempfile.TemporaryFile("w+") as log:
        pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
        process = subprocess.Popen(command, env=OUTSIDE | environment, **pipes)

        def ask(*words: object) -> Any:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):  # it has ended, and its log says why
                print(*words, file=process.stdin, flush=True)
            if not (line := process.stdout.readline()):
                log.seek(0)
                sys.exit(f"error: the worker ended: {' '.join(command)}\n{log.read()[-3000:]}")
            return json.loads(line)

        try:
            yield ask
        finally:
            process.kill()
            process.wait()
