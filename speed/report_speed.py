"""Times `report.py` on many runs, two of them with many predictions, as a process, and its page in a browser.

Needs: the `report` extra, and the program chromium for the page. The rows are of the embedded corpus; the two detectors
are right about a share of them, and mark spans. The browser opens the page from disk; a reader can act when its script
has run.

python -m speed.report_speed --runs 200 --rows 20000
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.embedded.corpus import Embedded
from faithkit import runs
from faithkit.files.atomic import write_text
from faithkit.files.jsonl import write_jsonl
from faithkit.files.saved_config import write_config
from faithkit.metrics.results import write_results
from faithkit.provenance.predicted_rows import to_line
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction, Span
from faithkit.statistics.metric import Metric
from speed.measure import report, require, table
from tests.browser import PROGRAM, Browser, chromium

ROOT = Path(__file__).resolve().parent.parent
NUM_METRICS, NUM_STEPS = 60, 100
ACTIONS = {
    "all rows shown": "form.elements.between.value = ''; form.elements.between.dispatchEvent(EVENT)",
    "rows sorted": "form.elements.sort.value = 'high'; form.elements.sort.dispatchEvent(EVENT)",
    "first search": "change({ q: 'river' })",
    "next search": "change({ q: 'city' })",
    "200 runs sorted": "document.querySelector('#runs-table thead button').click()",
}


def main() -> None:
    """Writes the runs, compares them, and opens the page."""
    require("matplotlib", "statsmodels", hint="pip install -e '.[report]'")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_runs(Path(folder), given.runs, given.rows)
        page = Path(folder) / "report.html"
        taken = [compare(folder, page) for _ in range(given.rounds)]
        size = page.stat().st_size / 1e6
        looked = [look(page) for _ in range(given.rounds)] if PROGRAM else []
    rows = [[name, *told([one[name] for one in taken])] for name in taken[0]]
    rows += [[name, *told([one[name] for one in looked])] for name in (looked[0] if looked else ())]
    rows.append(["page, MB", f"{size:.1f}", "", ""])
    about = (
        f"{given.runs} runs of {NUM_METRICS} metrics and {NUM_STEPS} logged steps; two with {given.rows:,} predictions"
    )
    load = f"Load average at the end: {os.getloadavg()[0]:.0f}; seconds that are no CPU-seconds have waiting in them."
    body = f"{about} each, on the same rows. {load}\n\n{table(['what', 'median', 'lowest', 'highest'], rows)}"
    report("Comparing runs", body)


def told(values: Sequence[float]) -> list[str]:
    """Gives median, lowest and highest."""
    return [f"{value:,.2f}" for value in (float(np.median(values)), min(values), max(values))]


def write_runs(folder: Path, num_runs: int, num_rows: int) -> None:
    """Writes the folders of trainings; the last two have predictions."""
    generator = np.random.default_rng(0)
    source = Embedded(num_test=num_rows)
    examples = list(islice(source.generate("test"), num_rows))
    for place in range(num_runs):
        run = folder / "runs" / f"run-{place:03}"
        config: dict[str, Any] = {
            "seed": place % 5,
            "data": {"name": "embedded"},
            "callbacks": {"monitor": "validation/embedded/macro_f1"},
            "model": {"name": "critic", "max_length": (64, 128, 256)[place % 3]},
            "optimizer": {"lr": (1e-4, 2e-4, 5e-4)[place % 3], "warmup": 0.1},
        }
        metrics = {
            f"test/embedded/{name}": Metric(value=value, low=value - 0.05, high=value + 0.05, n=num_rows)
            for name, value in zip(_names(), generator.uniform(0.3, 0.9, NUM_METRICS).tolist(), strict=True)
        }
        (run / "csv").mkdir(parents=True)
        write_config(run / "config.yaml", config)
        write_results(run / "metrics.json", metrics, {"config": config})
        losses = np.exp(-np.arange(NUM_STEPS) / 30) + generator.uniform(0, 0.1, NUM_STEPS)
        lines = [f"{10 * step},{loss:.5f},{1 - loss / 2:.5f}\n" for step, loss in enumerate(losses)]
        write_text(run / "csv" / "metrics.csv", "".join(["step,train/loss,validation/embedded/macro_f1\n", *lines]))
        if place >= num_runs - 2:
            said = judged(examples, 0.75 + 0.05 * (place % 2), generator)
            written = (to_line(one, example) for one, example in zip(said, examples, strict=True))
            write_jsonl(run / "predictions" / "embedded.jsonl", written)


def _names() -> list[str]:
    return ["macro_f1", "f1", "accuracy", "auroc", *(f"task/t{n}/macro_f1" for n in range(NUM_METRICS - 4))]


def judged(examples: Sequence[Example], right: float, generator: np.random.Generator) -> Iterator[Prediction]:
    """Judges as a detector that is right about a share of the rows, and marks some words where it finds fault."""
    for example in examples:
        luck, sure, begin = generator.random(3).tolist()
        is_wrong = (example.label == HALLUCINATED) == (luck < right)
        start = int(begin * len(example.response) / 2)
        span = Span(
            start=start, end=min(start + 12, len(example.response)), label="contradiction", score=round(sure, 4)
        )
        said = Prediction(id=example.id, label=FAITHFUL, score=sure / 2)
        yield replace(said, label=HALLUCINATED, score=0.5 + sure / 2, spans=(span,)) if is_wrong else said


def compare(folder: str, page: Path) -> dict[str, float]:
    """Compares and lists the runs in processes, and reads them as data frames in this one."""
    compared = in_process(f"runs={folder}/runs/*", f"html={page}")
    listed = in_process(folder=folder)
    found = {f"report.py, {name}": value for name, value in compared.items()}
    found |= {f"the list of runs, {name}": value for name, value in listed.items()}
    for name, read in (("to_pandas", runs.to_pandas), ("predictions_to_pandas", runs.predictions_to_pandas)):
        begin = time.process_time()
        read(f"{folder}/runs/*")
        found[f"{name}, CPU-seconds"] = time.process_time() - begin
    return found


def in_process(*arguments: str, folder: str | Path = ROOT) -> dict[str, float]:
    """Runs report.py in a process of its own."""
    begin, environment = time.monotonic(), {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "report.py"), *arguments]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, "report.py failed"
    return {
        "CPU-seconds": usage.ru_utime + usage.ru_stime,
        "seconds": time.monotonic() - begin,
        "peak MiB": usage.ru_maxrss / 1024,
    }


def look(page: Path) -> dict[str, float]:
    """Opens the page and acts on it as a reader does: CPU-seconds of its thread, and seconds until it has drawn."""
    found = {}
    with chromium() as browser:
        browser.window(1280, 900)
        browser.send("Performance.enable", timeDomain="threadTicks")
        begin = _busy(browser)
        found["page opened until a reader can act, seconds"] = browser.open(f"file://{page}")
        found["page opened, CPU-seconds"] = _busy(browser) - begin
        assert browser.ask("document.body.dataset.ready") == "true"
        for name, action in ACTIONS.items():
            script = action.replace("EVENT", "new Event('change', { bubbles: true })")
            drawn = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
            busy, begin = _busy(browser), time.perf_counter()
            browser.ask(f"(async () => {{ {script}; await {drawn}; }})()")
            found[f"{name}, seconds"] = time.perf_counter() - begin
            found[f"{name}, CPU-seconds"] = _busy(browser) - busy
        assert not browser.complaints, browser.complaints
    return found


def _busy(browser: Browser) -> float:
    """Tells the CPU-seconds that the page's main thread has worked: scripts, layout, parsing."""
    metrics = browser.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


if __name__ == "__main__":
    main()
