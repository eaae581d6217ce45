"""Compares the HTTP service with `score` and with Python calls, and with LettuceDetect's server.

Rows are everyday answers; a tenth have a context of about 500 words, a twentieth one of about 2,000. The clients run on
the same cores. Each side runs once a round, in turns.

Needs: the `serve` and `openai` extras. LettuceDetect's server is skipped without FAITHKIT_LETTUCE_PYTHON
(peers/README.md), an environment that also has fastapi, uvicorn and pydantic-settings.

python -m speed.serve_speed --seconds 60
python -m speed.serve_speed --job-rows 1000000   only the memory of a service that runs a job
"""

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speed.measure import ROOT, BenchmarkParser, Ratio, require, run_process, table, write_results

ANSWERS = ROOT / "tests/everyday_answers/development.jsonl"
CLIENT = Path(__file__).with_name("serve_client.py")
VARIABLE = "FAITHKIT_LETTUCE_PYTHON"
NUM_SINGLE = 60  # requests and calls one after the other
LETTUCE_CLIENTS = (1, 16, 64)
LETTUCE = """import sys, uvicorn
import lettucedetect_api.server as server
server.settings.lettucedetect_model = sys.argv[1]
uvicorn.run(server.app, port=int(sys.argv[2]), log_level="warning")"""


def main() -> None:
    """Measures the service, then the servers."""
    parser = BenchmarkParser(__doc__, rounds=3, seconds=60, clients=200)
    parser.add_argument("--job-rows", type=int, help="rows of the table of a job")
    options = parser.parse()
    require("fastapi", "uvicorn", "aiohttp", hint="pip install -e '.[serve,openai]'")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.job_rows:
            measure_job(folder, options.job_rows)
            return
        compare_with_score(folder, make_rows(), options)
        if VARIABLE in os.environ:
            compare_with_lettucedetect(folder, options)


def make_rows(num_rows: int = 400) -> list[dict[str, Any]]:
    """Makes rows of mixed lengths, in a random order."""
    source = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
    chosen, draw = random.Random(0).sample(source, num_rows), random.Random(1)
    rows = []
    for number, row in enumerate(chosen):
        others = {20: 19, 10: 4}.get(next((step for step in (20, 10) if number % step == 0), 0), 0)
        parts = [row["knowledge"], *(one["knowledge"] for one in draw.sample(source, others))]
        body = {"knowledge": parts, "response": row["response"], "question": row["question"] or None}
        rows.append({"body": body, "words": sum(len(part.split()) for part in parts)})
    return rows


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


def measure_job(folder: Path, num_rows: int) -> None:
    """Measures the service's memory before and after a job with a random critic, including the download."""
    from speed.growth_speed import write_rows

    critic, sent = str(folder / "critic"), folder / "rows.csv"
    run_process([sys.executable, "-c", f"from speed.samples import write_critic; write_critic({critic!r})"])
    write_rows(sent, num_rows, 20)
    url = "http://127.0.0.1:8475"
    command = [sys.executable, "-m", "faithkit", "serve", "port=8475", f"checkpoint={critic}"]
    with run_server([*command, f"jobs_dir={folder / 'jobs'}"], folder / "log") as process:
        wait_for(f"{url}/health/ready", process)
        memory, began = [memory_mib(process)], time.perf_counter()
        with sent.open("rb") as file:
            headers = {"Content-Type": "text/csv", "Content-Length": str(sent.stat().st_size)}
            added = urllib.request.urlopen(urllib.request.Request(f"{url}/v1/jobs", data=file, headers=headers))
        job = json.load(added)
        while job["state"] in ("queued", "running"):
            time.sleep(5)
            job = json.load(urllib.request.urlopen(f"{url}/v1/jobs/{job['id']}"))
        if job["state"] != "done" or job["rows"] != num_rows:
            sys.exit(f"error: the job ended with {job}")
        with urllib.request.urlopen(f"{url}{job['result']}") as reply:
            lines = sum(part.count(b"\n") for part in iter(lambda: reply.read(1 << 20), b""))
        memory += [memory_mib(process), memory_mib(process, "VmHWM")]
        seconds = time.perf_counter() - began
    figures = [
        ["rows with a verdict; lines of the scored table", f"{job['rows']:,}; {lines:,}"],
        ["resident MiB of the service: at the start, at the end, peak", ", ".join(f"{one:.0f}" for one in memory)],
        ["seconds from the upload to the end of the download", f"{seconds:,.0f}"],
    ]
    about = "A critic of two layers of 32 with random weights, rows of 20 words of context; the job is a process."
    write_results("HTTP service: a job", about, table(["figure", "value"], figures))


def compare_with_score(folder: Path, rows: list[dict[str, Any]], options: Any) -> None:
    """Compares the service with `predict_examples` on the same rows, and single requests with single calls."""
    import torch

    from faithkit_workflows.detectors.loading import load_checkpoint
    from faithkit_workflows.serve.schemas import Row

    detector: Any = load_checkpoint({"checkpoint": "default", "precision": "32-true"}).detector
    examples = [Row(**row["body"]).to_example(str(place), " ".join) for place, row in enumerate(rows)]
    short = [place for place, row in enumerate(rows) if row["words"] <= 200]
    (path := folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    singles = [json.dumps({"body": rows[place]["body"], "words": 1}) for place in short[:NUM_SINGLE]]
    (single := folder / "single.jsonl").write_text("\n".join(singles))
    rates, calls, requests, figures = [], [], [], []
    command = [sys.executable, "-m", "faithkit", "serve", "port=8471"]
    with run_server(command, folder / "log") as process:
        wait_for(f"{(url := 'http://127.0.0.1:8471')}/health/ready", process)
        memory = [memory_mib(process)]
        for _ in range(options.rounds):
            torch.set_num_threads(os.cpu_count() or 1)
            list(detector.predict_examples(examples))  # the service keeps contexts as well, and rows come again there
            began = time.perf_counter()
            list(detector.predict_examples(examples))
            score = len(examples) / (time.perf_counter() - began)
            found = send(f"{url}/v1/check", path, options.clients, options.seconds)
            figures.append(found)
            rates.append(found["rate"] / score)
            torch.set_num_threads(1)
            taken = []
            for place in short[:NUM_SINGLE]:
                began = time.perf_counter()
                list(detector.predict_examples([examples[place]]))
                taken.append(time.perf_counter() - began)
            calls.append(1000 * statistics.median(taken))
            requests.append(send(f"{url}/v1/check", single, 1, sum(taken) + 2)["quantiles"]["short"][0])
            memory.append(memory_mib(process))
    statuses = {
        status: sum(one["statuses"].get(status, 0) for one in figures) for one in figures for status in one["statuses"]
    }
    last = figures[-1]["quantiles"]
    lines = [
        ["requests a second, all rounds", ", ".join(f"{one['rate']:.1f}" for one in figures)],
        ["against `score` on the same rows, all rounds", ", ".join(f"{rate:.2f}x" for rate in rates)],
        ["statuses", ", ".join(f"{status}: {number:,}" for status, number in statuses.items())],
        *(
            [f"{name} rows, last round: p50, p99 (requests)", f"{a:,.0f} ms, {b:,.0f} ms ({n:,})"]
            for name, (a, b, n) in sorted(last.items())
        ),
        [
            "a short row alone, p50: request / Python call",
            ", ".join(f"{a:.1f} / {b:.1f} ms" for a, b in zip(requests, calls, strict=True)),
        ],
        ["resident MiB: at the start, after each round", ", ".join(f"{one:.0f}" for one in memory)],
    ]
    about = f"{options.clients} clients for {options.seconds} seconds, {len(rows)} rows of mixed lengths, `default`."
    write_results("HTTP service", about, table(["figure", "value"], lines), quick=options.quick)


def compare_with_lettucedetect(folder: Path, options: Any) -> None:
    """Compares requests a second of both servers: the same random tagger, the same rows."""
    from data_modules.encoding.tokens import load_tokenizer
    from speed.lettuce import write_random_tagger
    from speed.samples import make_tagged, write_modernbert

    weights = write_modernbert(folder / "encoder", hidden_size=256, num_layers=6)
    examples = make_tagged(load_tokenizer(weights), 96)
    model = write_random_tagger(weights, examples, folder / "tagger")
    (path := folder / "lettuce.jsonl").write_text(
        "".join(
            json.dumps({"body": {"contexts": [one.knowledge], "question": "", "answer": one.response}, "words": 1})
            + "\n"
            for one in examples
        )
    )
    ours = [sys.executable, "-m", "faithkit", "serve", f"checkpoint='lettucedetect-base:{model}'", "port=8472"]
    theirs = [os.environ[VARIABLE], "-c", LETTUCE, model, "8473"]
    reduced = [*ours[:-1], "port=8474", "precision=bf16"]
    route, lines = "/v1/lettucedetect/spans", []
    with (
        run_server(ours, folder / "ours") as first,
        run_server(theirs, folder / "theirs") as second,
        run_server(reduced, folder / "reduced") as third,
    ):
        wait_for("http://127.0.0.1:8472/health/ready", first)
        wait_for("http://127.0.0.1:8473/openapi.json", second)
        wait_for("http://127.0.0.1:8474/health/ready", third)
        for clients in LETTUCE_CLIENTS:
            rates: dict[int, list[float]] = {8473: [], 8472: [], 8474: []}
            for number in range(options.rounds):
                for port in list(rates) if number % 2 else list(rates)[::-1]:
                    found = send(f"http://127.0.0.1:{port}{route}", path, clients, options.seconds / 4)
                    if set(found["statuses"]) != {"200"}:
                        sys.exit(f"error: {port} answered {found['statuses']}")
                    rates[port].append(found["rate"])
            middle = [f"{statistics.median(rates[port]):.1f}" for port in rates]
            ratios = [str(Ratio.of(rates[port], rates[8473])) for port in (8472, 8474)]
            lines.append([clients, *middle, *ratios])
    about = "Requests a second; a random ModernBERT, 6 layers of 256; each server with all cores, one at a time. "
    about += "LettuceDetect's runs in fp32."
    head = ["clients", "LettuceDetect", "faithkit, fp32", "faithkit, bf16", "fp32 against it", "bf16 against it"]
    write_results("HTTP service against LettuceDetect's", about, table(head, lines), quick=options.quick)


if __name__ == "__main__":
    main()
