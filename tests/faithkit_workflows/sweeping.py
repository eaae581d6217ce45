"""Sweeps in this process, with jobs that write finished runs immediately."""

import json
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from faithkit.files.run_folder import write_config
from faithkit.settings.command_line import CommandLine
from faithkit.settings.config_files import CONFIGS
from faithkit_workflows.sweep import TrainJob, sweep
from tests.faithkit.runs.folders import make_run

MONITOR = "validation/embedded/macro_f1"
Score = Callable[[Mapping[str, str]], float]


def line_of(*arguments: str) -> CommandLine:
    """The command line `python train.py -m ...`."""
    return CommandLine(CONFIGS, "train", ["-m", *arguments], "faithkit_workflows.settings.training:TrainSettings")


def write_job(folder: Path, value: float, *, monitor: str = MONITOR, mode: str = "max", test: float = 0.5) -> Path:
    """Writes a finished training of a sweep with this validation value."""
    callbacks = {"monitor": monitor, "mode": mode}
    short = monitor.rpartition("/")[2]
    name = f"test/{monitor.split('/')[1]}/{short}"
    metrics = {name: {"value": test, "low": test - 0.1, "high": test + 0.1, "n": 9}}
    make_run(folder, {"callbacks": callbacks, "seed": 0}, metrics, predictions={})
    meta = {"chosen": {**callbacks, "value": value}}
    (folder / "metrics.json").write_text(json.dumps({"metrics": metrics, "meta": meta}))
    return folder


class Trainings:
    """Stands for `Processes`: its jobs finish immediately.

    Args:
        score: Computes the validation of a job from its settings, or raises Failure.
    """

    def __init__(self, score: Score, monitor: str = MONITOR):
        self.score, self.monitor = score, monitor
        self.started: list[TrainJob] = []
        self.num_stops = 0
        self.lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The folders of the jobs that were started, in order."""
        return [job.folder.name for job in self.started]

    def run(self, job: TrainJob, log: Path) -> int:
        with self.lock:
            self.started.append(job)
        settings = {key.lstrip("+"): value for key, _, value in (text.partition("=") for text in job.arguments)}
        folder = job.folder
        folder.mkdir(exist_ok=True)
        try:
            value = self.score(settings)
        except Failure as failure:
            write_config(folder / "config.yaml", {"callbacks": {"monitor": MONITOR, "mode": "max"}})
            log.write_text(f"some words\n{failure.output}\n")
            return failure.code
        shutil.rmtree(folder)
        write_job(folder, value, monitor=self.monitor)
        return 0

    def stop(self) -> None:
        self.num_stops += 1


class Failure(Exception):
    """A job that ends with this exit code and output."""

    def __init__(self, code: int, output: str = ""):
        self.code, self.output = code, output


def sweep_here(processes: Any, *arguments: str) -> None:
    """`python train.py -m ...` in this process."""
    sweep(line_of(*arguments), processes)
