"""Runs servers, sends them requests from another process, and reads their memory.

python -m speed.servers URL ROWS CLIENTS SECONDS      is that process: it prints a line of JSON with figures

ROWS are JSON lines {"body", "words"}; each client goes through them.
"""

import asyncio
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from speed.measure import ROOT

SHORT, LONG = 200, 1000  # words: up to SHORT is short, from LONG on is long
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
    command = [sys.executable, "-m", "speed.servers", url, str(path), str(clients), str(seconds)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    return found


def memory_mib(process: subprocess.Popen[bytes], what: str = "VmRSS") -> float:
    """Returns the resident memory of a process, or its peak (VmHWM)."""
    found = re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def quantile(seconds: list[float], share: float) -> float:
    """Returns a quantile in milliseconds."""
    return round(1000 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))], 2)


async def send_rows(url: str, rows: list[dict[str, object]], clients: int, seconds: float) -> dict[str, object]:
    """Sends requests for some seconds."""
    times: dict[str, list[float]] = {}
    statuses: Counter[str] = Counter()
    end = time.perf_counter() + seconds

    async def work(session: aiohttp.ClientSession, number: int) -> None:
        for place in itertools.count(number * len(rows) // clients):
            row = rows[place % len(rows)]
            began = time.perf_counter()
            if began >= end:
                return
            try:
                async with session.post(url, json=row["body"]) as reply:
                    await reply.read()
                    statuses[str(reply.status)] += 1
            except aiohttp.ClientError as error:
                statuses[type(error).__name__] += 1
            taken, words = time.perf_counter() - began, int(str(row["words"]))
            size = "short" if words <= SHORT else "long" if words >= LONG else "middle"
            times.setdefault(size, []).append(taken)

    began = time.perf_counter()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=300)
    ) as session:
        await asyncio.gather(*(work(session, number) for number in range(clients)))
    taken = time.perf_counter() - began
    quantiles = {name: [quantile(found, 0.5), quantile(found, 0.99), len(found)] for name, found in times.items()}
    every = [one for found in times.values() for one in found]
    return {"rate": len(every) / taken, "mean": statistics.mean(every), "statuses": statuses, "quantiles": quantiles}


def main() -> None:
    """Reads the arguments, and prints the figures."""
    url, path, clients, seconds = sys.argv[1:]
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    print(json.dumps(asyncio.run(send_rows(url, rows, int(clients), float(seconds)))))


if __name__ == "__main__":
    main()
