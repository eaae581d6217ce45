"""Measures the memory of a service that scores a table in a job, from the upload to the end of the download.

Needs: the `serve` extra.

python -m speed.serve_memory --rows 1000000
"""

import json
import sys
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path

from speed.growth_speed import write_rows
from speed.measure import BenchmarkParser, require, run_process, table, write_results
from speed.servers import SERVE, memory_mib, run_server, wait_for

URL = "http://127.0.0.1:8475"


def main() -> None:
    """Measures the service."""
    options = BenchmarkParser(__doc__, rows=100_000).parse()
    require("fastapi", "uvicorn", hint="pip install -e '.[serve]'")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        critic, sent = str(folder / "critic"), folder / "rows.csv"
        run_process([sys.executable, "-c", f"from speed.samples import write_critic; write_critic({critic!r})"])
        write_rows(sent, options.rows, 20)
        command = [*SERVE, "port=8475", f"checkpoint={critic}", f"jobs_dir={folder / 'jobs'}"]
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
            if job["state"] != "done" or job["rows"] != options.rows:
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
