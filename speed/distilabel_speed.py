"""Measures the same sampling by construct.py's chain and by distilabel: seconds, and what a fault or a kill costs.

Needs: distilabel in an environment of its own (speed/peers/README.md), the `openai` extra, and Linux.

python -m speed.distilabel_speed --requests 1000
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from construction.chain.chain_rows import KEY
from construction.chain.runner import Chain
from faithkit.files.jsonl import read_jsonl
from faithkit.inference.text_engines import EngineOptions
from speed.construct_speed import KNOWLEDGE, SECONDS, chain_steps
from speed.measure import report, require, table
from speed.peer import DISTILABEL, SCRIPTS, environment

AT_ONCE = 8  # requests; of distilabel the rows of a batch, which it sends together
REFUSED = range(100, 101)  # rows that the server refuses in the second part
KILLED_AT = 0.5  # of the requests
MOST_SECONDS = 300.0  # of a run: what has not ended by then has hung
_NUMBER = re.compile(rb"What is it, (\d+)\?")


@dataclass(frozen=True)
class Outcome:
    """Counts what a run left.

    Args:
        lost: Rows that the server answers and that have no reply, or are not there.
        shifted: Rows with the reply of another one.
        again: Requests beyond one for each row.
    """

    seconds: float
    cpu: float
    lost: int
    shifted: int
    again: int


def main() -> None:
    """Takes the figures of both, in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", nargs=2, metavar=("URL", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        run_ours(*options.ours, number=options.requests)
        return
    require("openai", hint="pip install -e '.[openai]'")
    versions = DISTILABEL.versions()
    rows = []
    for name in ("ours", "distilabel"):
        rows += [[name, *part] for part in compare(name, options.requests, options.rounds)]
    rows.sort(key=lambda row: row[1])
    header = ["", "part", "seconds", "CPU-seconds", "rows lost", "rows with another's reply", "asked more than once"]
    body = (
        f"{options.requests:,} rows, a reply sampled to each, from a server that answers {SECONDS * 1000:.0f} ms after "
        f"a request came, {AT_ONCE} at a time (ideal: {options.requests / AT_ONCE * SECONDS:.2f} s). Whole processes, "
        "start and imports included; the best of the rounds. Refused: the server answers one row with status 400. "
        "Killed: kill -9 of the whole process group once half of the requests were answered, then the same command "
        f"again; seconds of the second run alone, which is stopped after {MOST_SECONDS:.0f} s.\n\n"
        f"{table(header, rows)}\n\ndistilabel's environment: {versions}."
    )
    report(f"Constructing: {options.requests:,} rows beside distilabel", body)


def compare(name: str, number: int, rounds: int) -> list[list[str]]:
    """Takes the three parts of one of both."""
    parts = []
    for part in ("1 plain", "2 refused", "3 killed"):
        runs = [run(name, number, part) for _ in range(rounds if part == "1 plain" else 1)]
        best = min(runs, key=lambda one: one.seconds)
        print(f"  {name} {part}: {runs}", flush=True)
        cpu = f"{min(one.cpu for one in runs):.1f}"
        parts.append([part, f"{best.seconds:.1f}", cpu, *map(str, (best.lost, best.shifted, best.again))])
    return parts


def run(name: str, number: int, part: str) -> Outcome:
    """Runs one part against a server of its own."""
    asked: Any = multiprocessing.Array("i", number)
    answered: Any = multiprocessing.Value("i", 0)
    ours, theirs = multiprocessing.Pipe()
    refused = REFUSED if part == "2 refused" else range(0)
    context = multiprocessing.get_context("fork")
    server = context.Process(target=serve, args=(theirs, asked, answered, refused), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{ours.recv()}/v1"
        with tempfile.TemporaryDirectory() as folder:
            if part == "3 killed":
                process = start(name, url, number, Path(folder))
                while answered.value < KILLED_AT * number and process.poll() is None:
                    time.sleep(0.005)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            begin = time.monotonic()
            process = start(name, url, number, Path(folder))
            ended, usage = 0, resource.getrusage(resource.RUSAGE_SELF)
            while not ended:
                ended, _, usage = os.wait4(process.pid, os.WNOHANG)
                if not ended and time.monotonic() - begin > MOST_SECONDS:
                    os.killpg(process.pid, signal.SIGKILL)
                    ended, _, usage = os.wait4(process.pid, 0)
                time.sleep(0.01)
            seconds = time.monotonic() - begin
            said = read(name, Path(folder))
        wanted = {i: f"It is {i}." for i in range(number) if i not in refused}
        lost = sum(said.get(i) is None for i in wanted)
        shifted = sum(text is not None and text != f"It is {i}." for i, text in said.items())
        again = sum(max(0, count - 1) for i, count in enumerate(asked) if i not in refused)
        return Outcome(seconds, usage.ru_utime + usage.ru_stime, lost, shifted, again)
    finally:
        server.kill()


def start(name: str, url: str, number: int, folder: Path) -> "subprocess.Popen[bytes]":
    """Starts a run in a process group of its own."""
    rows, silent = folder / "rows.jsonl", subprocess.DEVNULL
    prompts = (f"Reply by this knowledge:\n\n{KNOWLEDGE}{i}\n\nWhat is it, {i}?" for i in range(number))
    rows.write_text("".join(json.dumps({"id": i, "instruction": text}) + "\n" for i, text in enumerate(prompts)))
    command = [sys.executable, "-m", "speed.distilabel_speed", "--ours", url, str(folder), "--requests", str(number)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    if name == "distilabel":
        script, places = str(SCRIPTS / "distilabel_sample.py"), [str(folder / "cache"), str(folder / "out.jsonl")]
        command, environ = [DISTILABEL.python(), script, url, str(number), str(AT_ONCE), *places], environment()
    with rows.open() as given:
        return subprocess.Popen(command, stdin=given, stdout=silent, stderr=silent, env=environ, start_new_session=True)


def run_ours(url: str, folder: str, *, number: int) -> None:
    """Runs the chain, in this process."""
    cache = f"{folder}/replies.sqlite"
    options = EngineOptions(name="openai", model="m", base_url=url, concurrency=AT_ONCE, cache=cache, max_retries=1)
    Chain(Path(folder), "speed", chain_steps(number, {"m": (options, None)})).run(progress=False)


def read(name: str, folder: Path) -> dict[int, str | None]:
    """Reads the reply of each row that a run left."""
    if name == "distilabel":
        path = folder / "out.jsonl"
        return {row["id"]: row["said"] for row in read_jsonl(path)} if path.exists() else {}
    rows = read_jsonl(next((folder / "steps").glob("*sample-m.jsonl")))
    return {5 * int(row[KEY].partition(":")[0]) + int(row[KEY].partition(":")[2]): row.get("response") for row in rows}


def serve(pipe: Any, asked: Any, answered: Any, refused: Sequence[int]) -> None:
    """Answers each row with its number, a while after it came; counts what it is asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next((int(h[15:]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:")), 0)
            sent, status = await reader.readexactly(length), b"200 OK"
            body: dict[str, Any] = {"object": "list", "data": [{"id": "m", "object": "model"}]}
            if found := _NUMBER.search(sent):
                number = int(found[1])
                asked[number] += 1
                await asyncio.sleep(SECONDS)
                if number in refused:
                    status, body = b"400 Bad Request", {"error": {"message": "not this one", "type": "error"}}
                else:
                    body = _reply(number)
            content = json.dumps(body).encode()
            writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n" % status)
            writer.write(b"Content-Length: %d\r\n\r\n" % len(content) + content)
            await writer.drain()
            answered.value += bool(found)

    async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run_server() -> None:
        server = await asyncio.start_server(quiet, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run_server())


def _reply(number: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": f"It is {number}."}
    usage = {"prompt_tokens": 100, "completion_tokens": 4, "total_tokens": 104}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


if __name__ == "__main__":
    main()
