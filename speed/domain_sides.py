"""The sides of the leave-one-domain-out harness, one fold at a time: cheap baselines, and critics that train.py trains.

What is finished is kept below OUT as JSON with the settings that it was made by, so an interrupted run goes on.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from faithkit.baselines.simple_detectors import Baseline
from faithkit.files.atomic import write_json
from faithkit.files.jsonl import read_predictions, write_jsonl
from faithkit.provenance.seen_rows import find_leaks
from faithkit.records import Prediction
from faithkit_workflows.domains.baselines import DomainBaselines
from faithkit_workflows.domains.rows import DomainRows, Rows

TARGET = "speed.domain_rows.DomainRows"
NLI = "nli"  # of --weights: the NLI model that has not seen the fold's domain
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Fold:
    """One fold: a domain that is left out, and what may be learnt from in its place.

    Args:
        tested: Its rows of the part that is looked at.
        train: The rows of each domain that shares nothing with it.
        nli: An NLI model of its own, where the usual one was trained on it.
    """

    name: str
    tested: Rows
    train: Mapping[str, Rows]
    nli: str | None = None

    @property
    def training(self) -> str:
        """Names its training by what is learnt from: kin that are tested by turns have one training."""
        return "on-" + "+".join(sorted(self.train))


def make_folds(domains: Mapping[str, DomainRows], fit_rows: Mapping[str, Rows], part: str) -> list[Fold]:
    """Makes a fold of each domain, those beside the others too."""
    return [
        Fold(name, own.part(part), rows_without(domains, fit_rows, [name]), own.domain.nli)
        for name, own in domains.items()
    ]


def rows_without(
    domains: Mapping[str, DomainRows], fit_rows: Mapping[str, Rows], left_out: Sequence[str]
) -> dict[str, Rows]:
    """Chooses the rows of those domains that share nothing with any that is left out."""
    return {name: rows for name, rows in fit_rows.items() if not domains[name].domain.kin & set(left_out)}


def predict_baselines(fold: Fold, baselines: DomainBaselines, settings: Mapping[str, Any], out: Path) -> list[Baseline]:
    """Fits and predicts every baseline of a fold, unless that is done already."""
    folder = out / "baselines" / str(settings["part"])
    file = folder / f"{fold.name}.json"
    kept = read_kept(file, settings)
    if kept is not None:
        return [
            Baseline(
                key=key,
                name=one["name"],
                predictions=read_predictions(folder / fold.name / f"{key}.jsonl"),
                fitted_on=one["fitted_on"],
            )
            for key, one in kept["baselines"].items()
        ]
    fitted = baselines.fit(fold.name, fold.tested.shown, str(settings["part"]))
    facts = {}
    for one in fitted:
        own = one.baseline
        write_predictions(folder / fold.name / f"{own.key}.jsonl", own.predictions)
        facts[own.key] = {"name": own.name, "fitted_on": own.fitted_on, **one.fitted.to_dict()}
    write_json(file, {"settings": dict(settings), "baselines": facts})
    return [one.baseline for one in fitted]


def predict_critic(fold: Fold, recipe: str, options: argparse.Namespace) -> dict[str, Prediction]:
    """Trains a critic on a fold with train.py and predicts the tested rows, unless that is done already."""
    name, _, overrides = recipe.partition(":")
    out = options.out / name.strip().replace(" ", "-")
    folder, run = out / fold.name, train_critic(fold, overrides, out / fold.training, options)
    predictions = folder / f"{options.part}.jsonl"
    settings = {"recipe": recipe, "part": options.part, "rows": len(fold.tested), "precision": options.precision}
    if read_kept(folder / f"{options.part}.json", settings) is None:
        from critic.sequence.scorer import Critic
        from faithkit.provenance.seen_rows import read_seen

        seen = read_seen(run / "hf")
        assert seen is not None, "train.py writes what a model has seen"
        leaked = int(find_leaks(fold.tested.shown, seen).rows.sum())
        assert not leaked, f"{leaked} tested rows of {fold.name} were trained on"
        critic = Critic.load(str(run), device="cpu", precision=options.precision)
        write_predictions(predictions, {one.id: one for one in critic.predict_examples(fold.tested.shown)})
        sizes = {other: len(rows.capped(options.max_train_rows)) for other, rows in fold.train.items()}
        facts = {"settings": settings, "trained_on": sizes}
        write_json(folder / f"{options.part}.json", facts)
    return read_predictions(predictions)


def train_critic(fold: Fold, overrides: str, folder: Path, options: argparse.Namespace) -> Path:
    """Trains on the rows of a fold; the checkpoint, its threshold and its calibration come from these rows alone."""
    run, files = folder / "run", {}
    for name, rows in fold.train.items():
        files[name] = folder / "rows" / f"{name}.jsonl"
        write_jsonl(files[name], (row.to_dict() for row in rows.capped(options.max_train_rows).shown))
    command = [sys.executable, "train.py", *train_arguments(files, fold, options), *overrides.split()]
    command += [f"run_dir={run}"]
    done = folder / "command.json"
    if (run / "metrics.json").exists():
        if json.loads(done.read_text()) != command[1:]:
            sys.exit(f"{run} was made with other settings: give the recipe another name, or remove it")
        return run
    shutil.rmtree(run, ignore_errors=True)  # left by an interrupted training
    write_json(done, command[1:])
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return run


def train_arguments(files: Mapping[str, Path], fold: Fold, options: argparse.Namespace) -> list[str]:
    """Writes the mix of a fold as arguments of train.py: every domain gives about as many rows to an epoch."""
    sizes = {name: len(rows.capped(options.max_train_rows)) for name, rows in fold.train.items()}
    weights = fold.nli or options.nli if options.weights == NLI else options.weights
    usual = median(sizes.values())
    parts = [
        f"{{_target_: {TARGET}, path: '{files[name]}', weight: {min(4.0, max(0.25, usual / size)):.2f}}}"
        for name, size in sizes.items()
        if size
    ]
    return [
        "model=critic",
        "data=mix",
        f"data.parts=[{', '.join(parts)}]",
        "data.test_fraction=0",
        "trainer=cpu",
        "callbacks.progress_bar=false",
        f"model.weights={weights}",
    ]


def read_kept(file: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Reads what a fold was kept with; None where it is not finished.

    Exits where it was made with other settings: its figures would be mixed with those of these.
    """
    if not file.exists():
        return None
    kept: dict[str, Any] = json.loads(file.read_text())
    if kept["settings"] != json.loads(json.dumps(dict(settings))):
        sys.exit(f"{file} was made with other settings: choose another --out, or remove it")
    return kept


def write_predictions(path: Path, predictions: Mapping[str, Prediction]) -> None:
    """Writes predictions, a line each."""
    write_jsonl(path, (one.to_dict() for one in predictions.values()))
