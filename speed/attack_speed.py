"""Attacks the service in every way in turn, while a well-behaved client with a key goes on asking.

Each attack is a process of its own, with a key of its own where it needs one. The client sends a short row every 50 ms;
a second one asks `/health/live`, which waits for nothing but the event loop.

Needs: the `serve` extra.

python -m speed.attack_speed --seconds 600      in all, of which the same share goes to each attack
"""

import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from speed.measure import ROOT, BenchmarkParser, require, table, write_results
from speed.servers import SERVE, memory_mib, quantile, run_server, wait_for

HOST, PORT = "127.0.0.1", 8476
PAUSE = 0.05  # seconds between two requests of the well-behaved client
ROW = {"knowledge": "The warranty lasts 24 months.", "response": "It lasts 36 months."}
HEAD = f"POST /v1/check HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 99\r\n".encode()
TEXTS = [f"Sentence {number} is about the pump and its {number % 7} parts. " for number in range(40_000)]


def begin(body: bytes, key: str, *, path: str = "/v1/check", length: int | None = None, kind: str = "json") -> Any:
    """Opens a connection and sends a request, the body as far as it is given."""
    connection = socket.create_connection((HOST, PORT), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/{kind}\r\n"
    head += f"Content-Length: {len(body) if length is None else length}\r\n"
    connection.sendall(f"{head}{f'Authorization: Bearer {key}' if key else 'X-No: key'}\r\n\r\n".encode() + body)
    return connection


def finish(connection: Any) -> None:
    """Reads a reply to its first part, and leaves."""
    connection.recv(65536)
    connection.close()


def hold(connections: int, data: bytes, seconds: float) -> None:
    """Holds connections open that send a byte a second."""
    with ExitStack() as opened, suppress(OSError):
        held = [opened.enter_context(socket.create_connection((HOST, PORT), timeout=60)) for _ in range(connections)]
        for one in held:
            one.sendall(data)
        end = time.monotonic() + min(seconds, 8)
        while time.monotonic() < end:
            time.sleep(1)
            for one in held if data else ():
                with suppress(OSError):
                    one.sendall(b" ")


def flood(key: str, seconds: float) -> None:
    """Sends rows of mixed lengths from 32 clients."""
    end = time.monotonic() + seconds

    def send(number: int) -> None:
        while time.monotonic() < end:
            number += 7
            row = {**ROW, "knowledge": "".join(TEXTS[number : number + (5, 50, 200)[number % 3]])}
            with suppress(OSError):
                finish(begin(json.dumps(row).encode(), key))

    threads = [threading.Thread(target=send, args=(100 * number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def stream_letters(key: str) -> None:
    """Sends a response of 40,000 pieces of one letter."""
    lines = [{"knowledge": ROW["knowledge"]}, *({"response": "a"} for _ in range(40_000))]
    body = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    finish(begin(body, key, path="/v1/check/stream", kind="x-ndjson"))


def leave(key: str) -> None:
    """Sends the longest response that is taken, and leaves after a moment."""
    row = {"knowledge": "".join(TEXTS[:2_000]), "response": "".join(TEXTS)[:50_000]}
    connection = begin(json.dumps(row).encode(), key)
    time.sleep(0.3)
    connection.close()


def send_raw(data: bytes) -> None:
    """Sends bytes that are not HTTP."""
    with socket.create_connection((HOST, PORT), timeout=60) as connection:
        connection.sendall(data)
        connection.recv(65536)


# Each is called again until its time is over; it gets a key and the seconds that are left.
ATTACKS: dict[str, Callable[[str, float], Any]] = {
    "none": lambda key, seconds: time.sleep(seconds),
    "500 idle connections": lambda key, seconds: hold(500, b"", seconds),
    "200 slow bodies": lambda key, seconds: hold(200, HEAD + f"Authorization: Bearer {key}\r\n\r\n".encode(), seconds),
    "16 MB without a key": lambda key, seconds: finish(begin(b" " * (1 << 24), "")),
    "16 MB of white space": lambda key, seconds: finish(begin(b" " * (1 << 24), key)),
    "400,000 empty rows": lambda key, seconds: finish(begin(b'{"rows": [' + b"{}," * 400_000 + b"{}]}", key)),
    "400,000 unknown keys": lambda key, seconds: finish(
        begin(json.dumps({str(n): 0 for n in range(400_000)}).encode(), key)
    ),
    "nested a million deep": lambda key, seconds: finish(begin(b"[" * 1_000_000, key)),
    "40,000 pieces of a stream": lambda key, seconds: stream_letters(key),
    "long responses, left": lambda key, seconds: leave(key),
    "not HTTP": lambda key, seconds: send_raw(b"hello\r\n\r\n"),
    "addresses of 60 KB": lambda key, seconds: send_raw(
        b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ),
    "32 clients, mixed rows": flood,
}


def attack(name: str, key: str, seconds: float) -> None:
    """Attacks for some seconds."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        with suppress(OSError):  # the service may close the connection, which is its right
            ATTACKS[name](key, left)


@contextmanager
def ask(path: str, body: bytes | None, key: str) -> Iterator[tuple[list[float], Counter[str]]]:
    """Asks again and again in a thread while the block runs; gives the seconds and the statuses."""
    seconds, statuses, ended = list[float](), Counter[str](), threading.Event()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def run() -> None:
        while not ended.wait(PAUSE):
            began = time.perf_counter()
            try:
                connection = http.client.HTTPConnection(HOST, PORT, timeout=120)
                connection.request("POST" if body else "GET", path, body, headers)
                reply = connection.getresponse()
                reply.read()
                statuses[str(reply.status)] += 1
            except OSError as error:
                statuses[type(error).__name__] += 1
            seconds.append(time.perf_counter() - began)
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seconds, statuses
    finally:
        ended.set()
        thread.join()


def main() -> None:
    """Measures the well-behaved client under each attack."""
    options = BenchmarkParser(__doc__, seconds=600).parse()
    require("fastapi", "uvicorn", hint="pip install -e '.[serve]'")
    share, rows = max(2.0, options.seconds / len(ATTACKS)), list[list[str]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "faithkit_workflows.serve.keys", str(folder / "keys.txt")]
        good, bad = (
            subprocess.run([*command, who], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for who in ("good", "bad")
        )
        with run_server([*SERVE, f"port={PORT}", f"keys_path={folder / 'keys.txt'}"], folder / "log") as process:
            wait_for(f"http://{HOST}:{PORT}/health/ready", process)
            for kind in ATTACKS:
                attacker = get_context("spawn").Process(target=attack, args=(kind, bad, share))
                attacker.start()
                time.sleep(1)  # in which it starts
                peak = memory_mib(process)
                with (
                    ask("/v1/check", json.dumps(ROW).encode(), good) as (taken, statuses),
                    ask("/health/live", None, good) as (loop, _),
                ):
                    while attacker.is_alive():
                        peak = max(peak, memory_mib(process))
                        attacker.join(0.1)
                shown = ", ".join(f"{status}: {number:,}" for status, number in sorted(statuses.items()))
                figures = [quantile(taken, 0.5), quantile(taken, 0.99), quantile(loop, 0.5), quantile(loop, 0.99)]
                rows.append([kind, shown, *(f"{one:,.0f}" for one in figures), f"{peak:,.0f}"])
                print("  ", *rows[-1], sep=" | ", file=sys.stderr, flush=True)
    about = f"{options.seconds} seconds in all; `default`, keys; a short row every {1000 * PAUSE:.0f} ms. Milliseconds."
    header = ["attack", "statuses of the client", "p50", "p99", "event loop p50", "p99", "largest resident MiB"]
    write_results("HTTP service under attack", about, table(header, rows), quick=options.quick)


if __name__ == "__main__":
    main()
