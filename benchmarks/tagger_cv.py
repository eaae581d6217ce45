"""Cross-validation on RAGTruth, grouped by source: our tagger, LettuceDetect's trainer and trivial detectors alike.

Every source is in the test part of one fold; the predictions of all folds are pooled and scored together, with
intervals that resample sources. LettuceDetect is trained by its own recipe over a grid of learning rates and, since its
rate is constant, of epochs. The best line of its grid is found by its result on the test parts: that favours it.

python -m benchmarks.tagger_cv --data FOLDER --out FOLDER                         everything; hours on one core
python -m benchmarks.tagger_cv --data FOLDER --out FOLDER --sides baselines peer  part of it
python -m benchmarks.tagger_cv ... --folds-only 0                                 the first fold alone

What is done already is not done again: an interrupted run goes on, and sides may be added later.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measure import report, table
from benchmarks.peer import SCRIPTS, environment, peer_python, peer_versions, write_rows
from common.jsonl import read_predictions
from common.records import FAITHFUL, HALLUCINATED, Example, Prediction, Span
from common.span_types import UNTYPED
from data_modules.cache import group_hash
from data_modules.division import fold_of
from evaluation.baselines import mismatch_predictions, unsupported_share, whole_predictions
from evaluation.span_metrics import compare_spans, span_metrics

SHOWN = ("response_f1", "response_precision", "response_recall", "char_f1", "char_precision", "char_recall")
EVERYTHING, OVERLAP, MISMATCH, OURS = "everything", "sentences of unknown words", "unknown words", "ours"
CROSS_FITTED = "read as fits the other folds"
Said = dict[str, Prediction]


@dataclass(frozen=True)
class Fold:
    """One part of the sources for testing, the others for training."""

    number: int
    train: list[Example]
    test: list[Example]


def main() -> None:
    """Predicts out of fold with every side that is asked for, then scores all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="the folder of RAGTruth's two files")
    parser.add_argument("--out", required=True, type=Path, help="where runs and predictions are kept")
    parser.add_argument(
        "--sides", nargs="+", choices=("baselines", "peer", "ours"), default=["baselines", "peer", "ours"]
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--folds-only", type=int, nargs="+", help="run these folds alone, and score their sources")
    parser.add_argument("--weights", default="minilm")
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--lr", type=float, nargs="+", default=[1e-4, 3e-4], help="of the peer's grid")
    parser.add_argument("--epochs", type=int, default=6, help="of the peer; every number up to it is in its grid")
    parser.add_argument(
        "--ours",
        action="append",
        help="a recipe, once or often: a name and overrides of train.py, 'long: model.num_epochs=8 optimizer.lr=1e-4'",
    )
    parser.add_argument("--no-report", action="store_true", help="print, and leave RESULTS.md as it is")
    options = parser.parse_args()

    examples = read(options.data)
    every = divide(examples, options.folds)
    folds = [every[i] for i in options.folds_only or range(options.folds)]
    tested = [example for fold in folds for example in fold.test]
    found: dict[str, Said] = {}
    notes = []
    if "baselines" in options.sides:
        found |= {EVERYTHING: whole_predictions(tested), OVERLAP: pooled(folds, overlap)}
        found[MISMATCH] = pooled(folds, lambda fold: mismatch_predictions(fold.test, fold.train))
    if "peer" in options.sides:
        grid, chosen = peer_grid(folds, prompts_of(options.data), options)
        best = max(grid, key=lambda name: span_metrics(tested, grid[name]).metrics["char_f1"].value)
        found |= chosen | {f"{best}: best of its grid": grid[best]}
        notes.append(f"LettuceDetect ran in {peer_versions()}.")
        notes.append("Its whole grid, response F1 and character F1: " + "; ".join(grid_lines(tested, grid)) + ".")
    if "ours" in options.sides:
        for recipe in options.ours or ["default:"]:
            name, _, overrides = recipe.partition(":")
            found[f"{OURS}, {name.strip()}"] = pooled(
                folds, partial(ours, name=name, overrides=overrides, options=options)
            )
            if len(folds) > 1:
                runs = [run_folder(fold, name, options) for fold in folds]
                found[f"{OURS}, {name.strip()}, {CROSS_FITTED}"] = cross_fitted(folds, runs)
    body = [
        f"{len(tested)} answers to {len({e.group for e in tested})} sources, {options.folds} folds by source"
        + (f" (of which {len(folds)} ran)" if len(folds) < len(every) else "")
        + f"; {sum(bool(e.spans) for e in tested)} answers have spans. Everyone starts from "
        f"`{Path(options.weights).name}` with {options.max_length} tokens. Intervals: 95%, over sources.",
        table(["side", *SHOWN], [[name, *row(tested, said)] for name, said in found.items()]),
        *differences(tested, found),
        *notes,
    ]
    if options.no_report:
        print("\n\n".join(body))
    else:
        sys.argv[1:] = [without_folders(argument) for argument in sys.argv[1:]]  # the command stands below the figures
        report("Tagger: cross-validation on RAGTruth", "\n\n".join(body))


def without_folders(argument: str) -> str:
    """The argument with the last part alone of each path from the root: figures name no machine's folders."""
    return re.sub(r"(?:(?<=^)|(?<=[=\s]))[~/]\S*/", "", argument)


def read(data: str) -> list[Example]:
    """All answers of good quality, whatever their official split."""
    from data_modules.ragtruth import RagTruth
    from data_modules.rows import ReadReport
    from data_modules.source import read_examples

    return list(read_examples(RagTruth(path=data, official_split=False), "all", ReadReport()))


def divide(examples: Sequence[Example], num_folds: int) -> list[Fold]:
    """Folds by source, the same that train.py's data.fold and data.num_folds make."""
    hashes = np.array([group_hash(example.group) for example in examples], np.uint64)
    number = fold_of(hashes, num_folds)
    folds = []
    for i in range(num_folds):
        train, test = (
            [examples[row] for row in np.flatnonzero((number == i) == held).tolist()] for held in (False, True)
        )
        folds.append(Fold(i, train, test))
    return folds


def pooled(folds: Sequence[Fold], predict: Callable[[Fold], Said]) -> Said:
    """The predictions of all folds for their test parts."""
    return {id_: prediction for fold in folds for id_, prediction in predict(fold).items()}


def overlap(fold: Fold) -> Said:
    """The sentences marked in which too many words are not in the context: the training part says how many."""
    shares = {e.id: sentence_shares(e) for e in fold.train + fold.test}

    def at(threshold: float, examples: Sequence[Example]) -> Said:
        return {e.id: marked(e, [place for place, share in shares[e.id] if share >= threshold]) for e in examples}

    def quality(threshold: float) -> float:
        metrics = span_metrics(fold.train, at(threshold, fold.train), num_resamples=2).metrics
        return metrics["char_f1"].value + metrics["response_f1"].value

    return at(float(max(np.arange(0.05, 1.0, 0.05), key=quality)), fold.test)


def sentence_shares(example: Example) -> list[tuple[tuple[int, int], float]]:
    """Where each sentence of the response lies, and the share of its words that the context does not hold."""
    question = " ".join(turn.text for turn in example.history)
    places = [match.span() for match in re.finditer(r"\S[^.!?\n]*[.!?]*", example.response)]
    known = f"{question} {example.knowledge}"
    return [(place, unsupported_share(known, example.response[slice(*place)])) for place in places]


def marked(example: Example, places: Sequence[tuple[int, int]]) -> Prediction:
    """A prediction with these stretches as its spans."""
    spans = tuple(Span(start=start, end=end, label=UNTYPED) for start, end in places)
    return Prediction(id=example.id, label=HALLUCINATED if spans else FAITHFUL, spans=spans)


def prompts_of(data: str) -> dict[str, str]:
    """The official prompt by source id: what LettuceDetect's own preparation of the corpus takes."""
    lines = (Path(data) / "source_info.jsonl").read_text(encoding="utf-8").splitlines()
    sources = [json.loads(line) for line in lines if line.strip()]
    return {str(row["source_id"]): row.get("prompt") or str(row["source_info"]) for row in sources}


def peer_grid(
    folds: Sequence[Fold], prompts: Mapping[str, str], options: argparse.Namespace
) -> tuple[dict[str, Said], dict[str, Said]]:
    """The pooled predictions of each rate and epoch, and those of each rate where its own rule chooses the epoch."""
    from common.weights import resolve

    grid: dict[str, Said] = {}
    chosen: dict[str, Said] = {}
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
            for epoch, said in epochs.items():
                grid.setdefault(f"{name}, {epoch} epochs", {}).update(said)
    return grid, chosen


def train_peer(folder: Path, lr: float, weights: str, options: argparse.Namespace) -> dict:
    """The summary of the peer's training in a folder, which holds the rows; trained if it is not there yet."""
    file = folder / "summary.json"
    if file.exists() and len(json.loads(file.read_text())["epochs"]) >= options.epochs:
        return json.loads(file.read_text())
    print(f"LettuceDetect trains in {folder}", file=sys.stderr, flush=True)
    given = {"weights": weights, "train": folder / "train.jsonl", "test": folder / "test.jsonl", "out": folder}
    given |= {"lr": lr, "epochs": options.epochs, "max-length": options.max_length}
    words = [str(word) for name, value in given.items() for word in (f"--{name}", value)]
    with (folder / "log").open("w") as log:
        command = [peer_python(), str(SCRIPTS / "lettuce_quality.py"), *words]
        done = subprocess.run(command, stdout=log, stderr=log, env=environment())
    if done.returncode:
        sys.exit(f"LettuceDetect's training ended with {done.returncode}: see {folder / 'log'}")
    return json.loads(file.read_text())


def run_folder(fold: Fold, name: str, options: argparse.Namespace) -> Path:
    return options.out / f"ours-{options.folds}-folds" / name.strip().replace(" ", "-") / f"fold-{fold.number}"


def cross_fitted(folds: Sequence[Fold], runs: Sequence[Path]) -> Said:
    """Predictions of each run for its test part, read as fits the test parts of the other runs.

    A run's own validation part holds a dozen hallucinated answers: too few to choose thresholds on. The other runs have
    tested all sources but this fold's, each without having seen them in training.
    """
    from critic.tagger.predictor import Tagger
    from critic.tagger.tuning import Answers, fit_reading

    taggers = [Tagger.load(str(run), device="cpu") for run in runs]
    answers = [tagger.answers(fold.test) for tagger, fold in zip(taggers, folds, strict=True)]
    said: Said = {}
    for held, fold in enumerate(folds):
        others = [place for place in range(len(folds)) if place != held]
        joined = Answers.join([answers[i] for i in others], [len(folds[i].test) for i in others])
        taggers[held].reading, _ = fit_reading(joined, [e for i in others for e in folds[i].test], "f1")
        said |= {prediction.id: prediction for prediction in taggers[held].predict_examples(fold.test)}
    return said


def ours(fold: Fold, *, name: str, overrides: str, options: argparse.Namespace) -> Said:
    """What train.py predicts for the test part of a fold."""
    run = run_folder(fold, name, options)
    command = [sys.executable, "train.py", "model=tagger", "data=ragtruth", f"data.path={options.data}", "trainer=cpu"]
    command += ["data.official_split=false", f"data.fold={fold.number}", f"data.num_folds={options.folds}"]
    command += [f"model.weights={options.weights}", f"model.max_length={options.max_length}", *overrides.split()]
    command += [f"run_dir={run}", "callbacks.progress_bar=false"]
    asked = run.parent / f"fold-{fold.number}.json"
    if (run / "metrics.json").exists():
        if json.loads(asked.read_text()) != command[1:]:
            sys.exit(f"{run} was made with other overrides: give the recipe another name, or remove it")
    else:
        run.parent.mkdir(parents=True, exist_ok=True)
        asked.write_text(json.dumps(command[1:]))
        shutil.rmtree(run, ignore_errors=True)  # of a training that was broken off
        root = Path(__file__).resolve().parent.parent
        subprocess.run(command, cwd=root, check=True, stdout=sys.stderr, env=os.environ | {"OMP_NUM_THREADS": "1"})
    said = read_predictions(run / "predictions" / "ragtruth.jsonl")
    others = {e.id for e in fold.test} ^ said.keys()
    assert not others, f"train.py tested other examples than this fold's: {sorted(others)[:5]}"
    return said


def row(tested: Sequence[Example], said: Said) -> list[str]:
    """The shown metrics in hundredths, with intervals."""
    metrics = span_metrics(tested, said).metrics
    shown = [metrics[name] for name in SHOWN]
    return [f"{100 * m.value:.1f} ({100 * (m.low or 0):.1f} to {100 * (m.high or 0):.1f})" for m in shown]


def grid_lines(tested: Sequence[Example], grid: Mapping[str, Said]) -> list[str]:
    """Each line of the peer's grid in a few words."""
    lines = []
    for name, said in grid.items():
        metrics = span_metrics(tested, said, num_resamples=2).metrics
        values = " and ".join(f"{100 * metrics[key].value:.1f}" for key in ("response_f1", "char_f1"))
        lines.append(f"{name.removeprefix('LettuceDetect, ')}: {values}")
    return lines


def differences(tested: Sequence[Example], found: Mapping[str, Said]) -> list[str]:
    """Each recipe of ours less every other side, on the same resamples of sources."""
    lines = []
    for own, said in found.items():
        for name, other in found.items():
            if own.startswith(OURS) and name != own:
                by_name = compare_spans(tested, said, other)
                parts = [
                    f"{key} {100 * d.value:+.1f} ({100 * d.low:+.1f} to {100 * d.high:+.1f}, p {d.p_value:.3f})"
                    for key in ("response_f1", "char_f1")
                    if (d := by_name.get(key))
                ]
                lines.append(f"{own.capitalize()} less {name}: {'; '.join(parts)}.")
    return lines


if __name__ == "__main__":
    main()
