"""Runs servers, sends them requests from another process, and reads their memory."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speed.measure import ROOT

CLIENT = Path(__file__).with_name("serve_client.py")
SERVE = (sys.executable, "-m", "faithkit", "serve")


def write_bodies(path: Path, bodies: Sequence[tuple[dict[str, Any], int]]) -> Path:
    """Writes the bodies of requests, and the words of each, as the client reads them."""
    path.write_text("".join(json.dumps({"body": body, "words": words}) + "\n" for body, words in bodies))
    return path


@contextmanager
def run_server(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a server until the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Waits until an address answers."""
    for _ in range(600):
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            if process.poll() is not None:
                sys.exit(f"error: the server has ended with {process.returncode}")
            time.sleep(0.1)
    sys.exit(f"error: no answer from {url}")


def send(url: str, path: Path, clients: int, seconds: float) -> dict[str, Any]:
    """Sends rows from another process, and returns its figures."""
    command = [sys.executable, str(CLIENT), url, str(path), str(clients), str(seconds)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def memory_mib(process: subprocess.Popen[bytes], what: str = "VmRSS") -> float:
    """Returns the resident memory of a process, or its peak (VmHWM)."""
    found = re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
