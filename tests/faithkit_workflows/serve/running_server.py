"""A real server as a process, and requests to it."""

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.running import ROOT, reset_signals

PATIENCE = 90.0
CONTEXT = "The device holds 1.7 litres. The warranty lasts 24 months. Adults take 20 mg and children take 10 mg."
ROW = {"knowledge": CONTEXT, "response": "The warranty lasts 36 months.", "question": "How long is the warranty?"}


class RunningServer:
    """A server process; `reply` sends a request and returns status, headers and JSON."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path):
        self.process, self.log = process, log
        self.port = int(self.wait_for(r"http://[\w.]+:(\d+) serves"))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, pattern: str) -> str:
        """Waits for a line of the log, and returns its first group."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := re.search(pattern, self.log.read_text()):
                return found[1] if found.groups() else found[0]
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise AssertionError(f"no line {pattern} in\n{self.log.read_text()}")

    def wait_until_ready(self) -> None:
        end = time.monotonic() + PATIENCE
        while self.reply("/health/ready")[0] != 200:
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def reply(
        self, path: str, body: Any = None, *, method: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """Sends a request; a body that is not bytes goes as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Content_Type": "application/json"} | headers
        given = {name.replace("_", "-"): value for name, value in named.items()}
        request = urllib.request.Request(self.url + path, data=data, headers=given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                status, found, content = answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            status, found, content = error.code, dict(error.headers), error.read()
        lower = {name.lower(): value for name, value in found.items()}
        is_json = lower.get("content-type", "").startswith("application/json")
        return status, lower, json.loads(content) if is_json else content

    def connect(self) -> socket.socket:
        """Opens a bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal, and returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def run_server(*arguments: str, waits: bool = True) -> Iterator[RunningServer]:
    """Runs `faithkit serve` on a free port, and waits until its models are ready."""
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        line = [sys.executable, "-m", "faithkit", "serve", "port=0", *arguments]
        pipes: Any = {"stdout": log, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(line, cwd=ROOT, preexec_fn=reset_signals, **pipes)
        try:
            server = RunningServer(process, Path(log.name))
            if waits:
                server.wait_until_ready()
            yield server
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE)


def stream_check(connection: socket.socket) -> bytes:
    """Sends a response in pieces, waits for the first verdict before the last piece, and returns the reply."""

    def send(line: dict[str, str] | None) -> None:
        data = b"" if line is None else json.dumps(line).encode() + b"\n"
        connection.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    head = "POST /v1/check/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    send({"knowledge": CONTEXT})
    send({"response": "The warranty lasts 36"})
    send({"response": " months. It"})
    received = b""
    while b"event: sentence" not in received:
        received += connection.recv(65536)
    send({"response": " holds 1.7 litres."})
    send(None)
    while b"event: verdict" not in received or not received.endswith(b"0\r\n\r\n"):
        received += connection.recv(65536)
    return received
