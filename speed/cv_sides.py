"""Trains both sides of the cross-validation: LettuceDetect over a grid of settings, and our tagger by recipes."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from faithkit.files.jsonl import read_predictions
from speed.cv_folds import Fold, Predictions
from speed.cv_recipes import Part
from speed.peer import LETTUCE, SCRIPTS, environment, write_rows


def prompts_of(data: str) -> dict[str, str]:
    """Reads the official prompts by source id, which LettuceDetect's own preparation of the corpus takes."""
    lines = (Path(data) / "source_info.jsonl").read_text(encoding="utf-8").splitlines()
    sources = [json.loads(line) for line in lines if line.strip()]
    return {str(row["source_id"]): row.get("prompt") or str(row["source_info"]) for row in sources}


def peer_grid(
    folds: Sequence[Fold], prompts: Mapping[str, str], options: argparse.Namespace
) -> tuple[dict[str, Predictions], dict[str, Predictions]]:
    """Trains LettuceDetect on every fold and rate.

    Returns:
        The pooled predictions of each rate and epoch, and those of each rate at the epoch that its own rule chooses.
    """
    from faithkit.weights.resolve import resolve

    grid: dict[str, Predictions] = {}
    chosen: dict[str, Predictions] = {}
    for lr in options.lr:
        name = f"LettuceDetect, lr {lr:g}"
        for fold in folds:
            folder = options.out / f"lettuce-{options.folds}-folds-lr{lr:g}" / f"fold-{fold.number}"
            folder.mkdir(parents=True, exist_ok=True)
            for part, examples in (("train", fold.train), ("test", fold.test)):
                write_rows(examples, folder / f"{part}.jsonl", [prompts[e.group] for e in examples])
            summary = train_peer(folder, lr, resolve(options.weights), options)
            epochs = {
                one["epoch"]: read_predictions(folder / f"epoch-{one['epoch']}.jsonl") for one in summary["epochs"]
            }
            chosen.setdefault(f"{name}, its own choice of epoch", {}).update(epochs[summary["chosen"]])
            for epoch, predictions in epochs.items():
                grid.setdefault(f"{name}, {epoch} epochs", {}).update(predictions)
    return grid, chosen


def train_peer(folder: Path, lr: float, weights: str, options: argparse.Namespace) -> dict:
    """Trains the peer on the rows in a folder, unless that is done already, and returns its summary."""
    file = folder / "summary.json"
    if file.exists() and len(json.loads(file.read_text())["epochs"]) >= options.epochs:
        return json.loads(file.read_text())
    print(f"LettuceDetect trains in {folder}", file=sys.stderr, flush=True)
    settings = {"weights": weights, "train": folder / "train.jsonl", "test": folder / "test.jsonl", "out": folder}
    settings |= {"lr": lr, "epochs": options.epochs, "max-length": options.max_length}
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    with (folder / "log").open("w") as log:
        command = [LETTUCE.python(), str(SCRIPTS / "lettuce_quality.py"), *words]
        done = subprocess.run(command, stdout=log, stderr=log, env=environment())
    if done.returncode:
        sys.exit(f"LettuceDetect's training ended with {done.returncode}: see {folder / 'log'}")
    return json.loads(file.read_text())


def run_folder(fold: Fold, name: str, options: argparse.Namespace) -> Path:
    """Returns the folder of our run on a fold."""
    return options.out / f"ours-{options.folds}-folds" / name.strip().replace(" ", "-") / f"fold-{fold.number}"


def read_parts(folds: Sequence[Fold], own: Predictions, name: str, options: argparse.Namespace) -> list[Part]:
    """Reads each fold's test part with the fold's tagger: what the readings of `speed.cv_recipes` start from."""
    from critic.tagger.predictor import Tagger

    taggers = [Tagger.load(str(run_folder(fold, name, options)), device="cpu") for fold in folds]
    return [
        Part(fold.test, tagger.answers(fold.test), {example.id: own[example.id] for example in fold.test})
        for tagger, fold in zip(taggers, folds, strict=True)
    ]


def train_ours(fold: Fold, *, name: str, overrides: str, options: argparse.Namespace) -> Predictions:
    """Trains our tagger on a fold with train.py, unless that is done already, and reads its test predictions."""
    run = run_folder(fold, name, options)
    command = [sys.executable, "train.py", "model=tagger", f"data.path={options.data}", "trainer=cpu"]
    if not any(word.startswith(("data=", "experiment=")) for word in overrides.split()):
        command.append("data=ragtruth")
    command += ["data.official_split=false", f"data.fold={fold.number}", f"data.num_folds={options.folds}"]
    command += [f"model.weights={options.weights}", f"model.max_length={options.max_length}", *overrides.split()]
    command += [f"run_dir={run}", "callbacks.progress_bar=false"]
    command_file = run.parent / f"fold-{fold.number}.json"
    if (run / "metrics.json").exists():
        if json.loads(command_file.read_text()) != command[1:]:
            sys.exit(f"{run} was made with other overrides: give the recipe another name, or remove it")
    else:
        run.parent.mkdir(parents=True, exist_ok=True)
        command_file.write_text(json.dumps(command[1:]))
        shutil.rmtree(run, ignore_errors=True)  # left by an interrupted training
        root = Path(__file__).resolve().parent.parent
        subprocess.run(command, cwd=root, check=True, stdout=sys.stderr, env=os.environ | {"OMP_NUM_THREADS": "1"})
    predictions = read_predictions(run / "predictions" / "ragtruth.jsonl")
    others = {e.id for e in fold.test} ^ predictions.keys()
    assert not others, f"train.py tested other examples than this fold's: {sorted(others)[:5]}"
    return predictions
