"""The paper's transfer table in one command: trains the critics that are missing, tests each on every test set."""

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from critic.scorer import Critic
from data_modules.build import Benchmark, read_benchmark
from data_modules.reading.files import EMBEDDED
from faithkit.errors import UserError
from faithkit.evaluation.classification import classification_metrics
from faithkit.evaluation.results import Results, full_names, write_results
from faithkit.evaluation.tables import show
from faithkit.evaluation.transfer import Transfer, transfer_table, transfers_of
from faithkit.files.jsonl import write_jsonl
from faithkit.files.run_folder import RUN_DIR_VARIABLE, RunFolder, environment

log = logging.getLogger("faithkit")
ROOT = Path(__file__).resolve().parent.parent


def run_transfer(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Fills the table and prints it beside the paper's; the run's path comes last.

    The metrics of the critic trained on A and tested on B are named `test/B/A_accuracy` and so on.
    """
    block = config["benchmark"]
    tests = [read_benchmark({"name": name, **options}) for name, options in block["test"].items()]
    cells: list[Transfer] = []
    metrics: dict[str, Any] = {}
    for trained_on, options in block["train"].items():
        checkpoint = options["checkpoint"] or _train(run, trained_on, options["path"], config)
        critic = Critic.load(checkpoint, precision=config["precision"], batch_tokens=config["batch_tokens"])
        found: dict[str, Any] = {}
        for benchmark in tests:
            scored = _score(run, critic, trained_on, benchmark, config["num_resamples"])
            found |= full_names("test", benchmark.name, scored)
            metrics |= full_names("test", benchmark.name, {f"{trained_on}_{n}": m for n, m in scored.items()})
        cells += transfers_of(trained_on, Results(metrics=found))
        write_results(run.metrics, metrics, {"config": config, "environment": environment()})
    sources = {name: _describe(options["path"]) for name, options in {**block["train"], **block["test"]}.items()}
    show(transfer_table(cells, sources=sources))
    print(run.path)


def _score(run: RunFolder, critic: Critic, trained_on: str, benchmark: Benchmark, num_resamples: int) -> dict[str, Any]:
    log.info("critic trained on %s, tested on %s", trained_on, benchmark.name)
    predictions = {
        prediction.id: prediction for prediction in critic.predict_examples(benchmark.examples, progress=True)
    }
    path = run.predictions / f"{benchmark.name}-by-{trained_on}.jsonl"
    write_jsonl(path, (prediction.to_dict() for prediction in predictions.values()))
    return classification_metrics(benchmark.examples, predictions, num_resamples=num_resamples).metrics


def _train(run: RunFolder, dataset: str, path: str, config: Mapping[str, Any]) -> str:
    """Trains in a process of its own; a training that was interrupted goes on, one that has ended is used."""
    folder = RunFolder(run.path / f"trained-on-{dataset}")
    if folder.metrics.exists():
        return str(folder.path)
    if folder.config.exists():
        arguments = [f"resume={folder.path}"]
    else:
        arguments = ["model=critic", f"data={dataset}", f"scale={config['scale']['name']}", f"run_dir={folder.path}"]
        arguments += [f"data.path='{path}'", f"seed={config['seed']}", *config["benchmark"]["overrides"]]
    log.info("training on %s: python train.py %s", dataset, " ".join(arguments))
    environ = {name: value for name, value in os.environ.items() if name != RUN_DIR_VARIABLE}
    # A checkout that is not installed is found by its path.
    environ["PYTHONPATH"] = os.pathsep.join(path for path in (environ.get("PYTHONPATH"), str(ROOT)) if path)
    done = subprocess.run([sys.executable, "-m", "workflows.train", *arguments], env=environ)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode:
        hint = f"correct it, then go on with resume={run.path}"
        raise UserError(f"training on {dataset} failed with exit code {done.returncode}", hint=hint)
    return str(folder.path)


def _describe(path: str) -> str:
    return "the embedded corpus in its layout" if path == EMBEDDED else Path(path).name
