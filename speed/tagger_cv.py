"""Compares our tagger with LettuceDetect and trivial detectors by cross-validation on RAGTruth, grouped by source.

Every source is in the test part of one fold; the predictions of all folds are pooled, kept in OUT/predictions and
scored together, with intervals that resample sources. LettuceDetect is trained by its own recipe over a grid of
learning rates and, since its rate is constant, of epochs. The best line of its grid is found by its result on the test
parts: that favours it. Our models are read in several ways (speed/cv_recipes.py); which one is chosen inside too.

python -m speed.tagger_cv --data FOLDER --out FOLDER                         everything; hours on one core
python -m speed.tagger_cv --data FOLDER --out FOLDER --sides baselines peer  part of it
python -m speed.tagger_cv ... --folds-only 0                                 the first fold alone

Finished parts are kept: an interrupted run goes on, and sides may be added later.

Needs: RAGTruth's two files; for `peer`, LettuceDetect in an environment of its own (peers/README.md).
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from faithkit.baselines.word_overlap import mismatch_predictions, whole_predictions
from faithkit.files.jsonl import write_jsonl
from faithkit.metrics.span_metrics import compare_spans, span_metrics
from faithkit.records import Example
from speed.cv_folds import Predictions, make_folds, overlap_baseline, pool_predictions, read_answers
from speed.cv_recipes import OWN_PART, READINGS, choose_inside, read_all
from speed.cv_sides import peer_grid, prompts_of, read_parts, train_ours
from speed.measure import report, table
from speed.peer import LETTUCE

SHOWN = ("response_f1", "response_precision", "response_recall", "char_f1", "char_precision", "char_recall")
EVERYTHING, OVERLAP, MISMATCH, OURS = "everything", "sentences of unknown words", "unknown words", "ours"
CHOSEN_INSIDE = "reading chosen inside"


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

    if "peer" in options.sides:
        LETTUCE.python()  # before any work
    examples = read_answers(options.data)
    every = make_folds(examples, options.folds)
    folds = [every[i] for i in options.folds_only or range(options.folds)]
    tested = [example for fold in folds for example in fold.test]
    found: dict[str, Predictions] = {}
    notes = []
    if "baselines" in options.sides:
        found |= {EVERYTHING: whole_predictions(tested), OVERLAP: pool_predictions(folds, overlap_baseline)}
        found[MISMATCH] = pool_predictions(folds, lambda fold: mismatch_predictions(fold.test, fold.train))
    if "peer" in options.sides:
        grid, chosen = peer_grid(folds, prompts_of(options.data), options)
        best = max(grid, key=lambda name: span_metrics(tested, grid[name]).metrics["char_f1"].value)
        found |= chosen | {f"{best}: best of its grid": grid[best]}
        notes.append(f"LettuceDetect ran in {LETTUCE.versions()}.")
        notes.append("Its whole grid, response F1 and character F1: " + "; ".join(grid_lines(tested, grid)) + ".")
    if "ours" in options.sides:
        for recipe in options.ours or ["default:"]:
            name, _, overrides = recipe.partition(":")
            own = f"{OURS}, {name.strip()}"
            found[own] = pool_predictions(folds, partial(train_ours, name=name, overrides=overrides, options=options))
            if len(folds) > 2:
                parts = read_parts(folds, found[own], name, options)
                shared = {reading: read_all(parts, READINGS[reading]) for reading in READINGS if reading != OWN_PART}
                found |= {f"{own}, {reading}": predictions for reading, predictions in shared.items()}
                found[f"{own}, {CHOSEN_INSIDE}"], by_fold = choose_inside(parts)
                notes.append(f"{own.capitalize()}, chosen inside, fold by fold: {'; '.join(by_fold)}.")
    for name, predictions in found.items():
        rows = (predictions[example.id].to_dict() for example in tested)
        write_jsonl(options.out / "predictions" / f"{re.sub(r'[^a-z0-9.]+', '-', name.lower())}.jsonl", rows)
    body = [
        f"{len(tested)} answers to {len({e.group for e in tested})} sources, {options.folds} folds by source"
        + (f" (of which {len(folds)} ran)" if len(folds) < len(every) else "")
        + f"; {sum(bool(e.spans) for e in tested)} answers have spans. Everyone starts from "
        f"`{Path(options.weights).name}` with {options.max_length} tokens. Intervals: 95%, over sources.",
        table(["side", *SHOWN], [[name, *row(tested, predictions)] for name, predictions in found.items()]),
        *differences(tested, found),
        *notes,
    ]
    if options.no_report:
        print("\n\n".join(body))
    else:
        sys.argv[1:] = [without_folders(argument) for argument in sys.argv[1:]]  # the command stands below the figures
        report("Tagger: cross-validation on RAGTruth", "\n\n".join(body))


def without_folders(argument: str) -> str:
    """Keeps only the last part of each absolute path, so that RESULTS.md names no machine's folders."""
    return re.sub(r"(?:(?<=^)|(?<=[=\s]))[~/]\S*/", "", argument)


def row(tested: Sequence[Example], predictions: Predictions) -> list[str]:
    """Formats the shown metrics in hundredths, with intervals."""
    metrics = span_metrics(tested, predictions).metrics
    shown = [metrics[name] for name in SHOWN]
    return [f"{100 * m.value:.1f} ({100 * (m.low or 0):.1f} to {100 * (m.high or 0):.1f})" for m in shown]


def grid_lines(tested: Sequence[Example], grid: Mapping[str, Predictions]) -> list[str]:
    """Summarises each line of the peer's grid."""
    lines = []
    for name, predictions in grid.items():
        metrics = span_metrics(tested, predictions, num_resamples=2).metrics
        values = " and ".join(f"{100 * metrics[key].value:.1f}" for key in ("response_f1", "char_f1"))
        lines.append(f"{name.removeprefix('LettuceDetect, ')}: {values}")
    return lines


def differences(tested: Sequence[Example], found: Mapping[str, Predictions]) -> list[str]:
    """Compares each recipe of ours with every other side, on the same resamples of sources."""
    lines = []
    for own, predictions in found.items():
        for name, other in found.items():
            if own.startswith(OURS) and name != own:
                by_name = compare_spans(tested, predictions, other)
                parts = [
                    f"{key} {100 * d.value:+.1f} ({100 * d.low:+.1f} to {100 * d.high:+.1f}, p {d.p_value:.3f})"
                    for key in ("response_f1", "char_f1")
                    if (d := by_name.get(key))
                ]
                lines.append(f"{own.capitalize()} less {name}: {'; '.join(parts)}.")
    return lines


if __name__ == "__main__":
    main()
