"""Compares the HTTP service with `score` and with Python calls, and measures its memory while it scores a table.

Rows are everyday answers; a tenth have a context of about 500 words, a twentieth one of about 2,000. The clients run on
the same cores. Each side runs once a round, in turns.

Needs: the `serve` and `openai` extras.

python -m speed.serve_speed --seconds 60 [--job-rows 1000000]
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch

from faithkit_workflows.detectors.loading import load_checkpoint
from faithkit_workflows.serve.schemas import Row
from speed.growth_speed import write_rows
from speed.measure import ROOT, BenchmarkParser, require, run_process, table, write_results
from speed.servers import SERVE, memory_mib, run_server, send, wait_for, write_bodies

ANSWERS = ROOT / "data_modules/everyday_answers/development.jsonl"
NUM_ROWS, SHORT_WORDS = 400, 200
NUM_SINGLE = 60  # requests and calls one after the other
PORT = 8471
URL = f"http://127.0.0.1:{PORT}"


def main() -> None:
    """Measures the service."""
    options = BenchmarkParser(__doc__, rounds=3, seconds=60, clients=200, job_rows=100_000).parse()
    require("fastapi", "uvicorn", "aiohttp", hint="pip install -e '.[serve,openai]'")
    detector: Any = load_checkpoint({"checkpoint": "default", "precision": "32-true"}).detector
    rows = make_rows()
    examples = [Row(**body).to_example(str(place), " ".join) for place, (body, _) in enumerate(rows)]
    short = [place for place, (_, words) in enumerate(rows) if words <= SHORT_WORDS][:NUM_SINGLE]
    scored, calls, singles, loads = list[float](), list[float](), list[float](), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = write_bodies(folder / "rows.jsonl", rows)
        single = write_bodies(folder / "single.jsonl", [(rows[place][0], 1) for place in short])
        with run_server([*SERVE, f"port={PORT}"], folder / "log") as process:
            wait_for(f"{URL}/health/ready", process)
            memory = [memory_mib(process)]
            for _ in range(options.rounds):
                # With all cores; contexts are kept from a first pass, as the service keeps them.
                torch.set_num_threads(os.cpu_count() or 1)
                list(detector.predict_examples(examples))
                began = time.perf_counter()
                list(detector.predict_examples(examples))
                scored.append(len(examples) / (time.perf_counter() - began))
                loads.append(send(f"{URL}/v1/check", every, options.clients, options.seconds))
                torch.set_num_threads(1)  # for calls with one row
                taken = []
                for place in short:
                    began = time.perf_counter()
                    list(detector.predict_examples([examples[place]]))
                    taken.append(1000 * (time.perf_counter() - began))
                calls.append(statistics.median(taken))
                seconds = 2 + NUM_SINGLE * calls[-1] / 1000
                singles.append(send(f"{URL}/v1/check", single, 1, seconds)["quantiles"]["short"][0])
                memory.append(memory_mib(process))
    about = f"{options.clients} clients for {options.seconds} seconds, {len(rows)} rows of mixed lengths, `default`."
    statuses = sum((Counter(one["statuses"]) for one in loads), Counter[str]())
    ratios = (f"{one['rate'] / rate:.2f}x" for one, rate in zip(loads, scored, strict=True))
    lines = [
        ["requests a second", ", ".join(f"{one['rate']:.1f}" for one in loads)],
        ["rows a second of `score`", ", ".join(f"{one:.1f}" for one in scored)],
        ["the first against the second", ", ".join(ratios)],
        ["statuses", ", ".join(f"{name}: {number:,}" for name, number in statuses.items())],
        *(
            [f"{name} rows, last round: p50, p99 (requests)", f"{a:,.0f} ms, {b:,.0f} ms ({n:,})"]
            for name, (a, b, n) in sorted(loads[-1]["quantiles"].items())
        ),
        ["a short row alone, p50: request", ", ".join(f"{one:.1f} ms" for one in singles)],
        ["a short row alone, p50: Python call", ", ".join(f"{one:.1f} ms" for one in calls)],
        ["resident MiB: at the start, after each round", ", ".join(f"{one:.0f}" for one in memory)],
    ]
    write_results("HTTP service", about, table(["figure", "value, all rounds"], lines), quick=options.quick)
    measure_job(options)


def make_rows() -> list[tuple[dict[str, Any], int]]:
    """Makes the bodies of requests of mixed lengths, in a random order, with the words of their context."""
    source = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
    chosen, draw = random.Random(0).sample(source, NUM_ROWS), random.Random(1)
    rows = []
    for number, row in enumerate(chosen):
        others = 19 if number % 20 == 0 else 4 if number % 10 == 0 else 0
        parts = [row["knowledge"], *(one["knowledge"] for one in draw.sample(source, others))]
        body = {"knowledge": parts, "response": row["response"], "question": row["question"] or None}
        rows.append((body, sum(len(part.split()) for part in parts)))
    return rows


def measure_job(options: argparse.Namespace) -> None:
    """Measures the memory of a service that scores a table in a job, from the upload to the end of the download."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        critic, sent = str(folder / "critic"), folder / "rows.csv"
        run_process([sys.executable, "-c", f"from speed.samples import write_critic; write_critic({critic!r})"])
        write_rows(sent, options.job_rows, 20)
        command = [*SERVE, f"port={PORT}", f"checkpoint={critic}", f"jobs_dir={folder / 'jobs'}"]
        with run_server(command, folder / "log") as process:
            wait_for(f"{URL}/health/ready", process)
            memory, began = [memory_mib(process)], time.perf_counter()
            headers = {"Content-Type": "text/csv", "Content-Length": str(sent.stat().st_size)}
            with sent.open("rb") as file:
                request = urllib.request.Request(f"{URL}/v1/jobs", data=file, headers=headers)
                job = json.load(urllib.request.urlopen(request))
            while job["state"] in ("queued", "running"):
                time.sleep(5)
                job = json.load(urllib.request.urlopen(f"{URL}/v1/jobs/{job['id']}"))
            if job["state"] != "done" or job["rows"] != options.job_rows:
                sys.exit(f"error: the job ended with {job}")
            with urllib.request.urlopen(f"{URL}{job['result']}") as reply:
                num_lines = sum(part.count(b"\n") for part in iter(partial(reply.read, 1 << 20), b""))
            memory += [memory_mib(process), memory_mib(process, "VmHWM")]
            seconds = time.perf_counter() - began
    figures = [
        ["rows with a verdict; lines of the scored table", f"{job['rows']:,}; {num_lines:,}"],
        ["resident MiB of the service: at the start, at the end, peak", ", ".join(f"{one:.0f}" for one in memory)],
        ["seconds from the upload to the end of the download", f"{seconds:,.0f}"],
    ]
    about = "A critic of two layers of 32 with random weights, rows of 20 words of context; the job is a process."
    write_results("HTTP service: a job", about, table(["figure", "value"], figures), quick=options.quick)


if __name__ == "__main__":
    main()
