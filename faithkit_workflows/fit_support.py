"""Fits the detector `default` to labelled tables, in minutes on a CPU.

python -m faithkit_workflows.fit_support FILE [FILE ...] --out detector.json
faithkit score answers.csv checkpoint=default:detector.json

A table has the columns of docs/own_data.md: context, question, answer, label, and spans where they are known.
Threshold, calibration and figures come from cross-validation: rows of a group (a document, a dialogue) are in the same
fold. This command fitted the detector that comes with faithkit:

cd tests/everyday_answers
python -m faithkit_workflows.fit_support development.jsonl fitting.jsonl fitting_2.jsonl other_forms.jsonl \\
    --out ../../critic/support/default.json
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.cli import run_command
from faithkit.errors import UserError
from faithkit.packages import require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from critic.support.fit_model import LabelledWords
    from critic.support.word_model import WordModel
    from faithkit.records import Example

ENCODER = "minilm"
FOLDS, SEED = 5, 0
MIN_GROUPS = 2 * FOLDS
MAX_FALSE_ALARMS = 0.15
VERSION = "2"
CUTS = [number / 20 for number in range(2, 19)]  # span thresholds that are tried
LICENCE = "Apache-2.0"  # of the rows that come with faithkit


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m faithkit_workflows.fit_support", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--out", required=True, metavar="FILE")
    parser.add_argument("--licence", default=LICENCE, help="of the rows, for the description in the file")
    return parser.parse_args(list(arguments))


def fit_detector(files: Sequence[str], licence: str) -> "WordModel":
    """Fits a detector to the rows of labelled tables.

    Raises:
        UserError: There are too few groups for cross-validation, or one class only.
    """
    import numpy as np

    from critic.logistic import fit_line
    from critic.support.detector import hash_weights, load_encoder
    from critic.support.fit_model import fit, label_words
    from critic.support.normal_forms import STOP, read_words
    from critic.support.word_model import WordModel
    from data_modules.datasets.pairs import read_pairs
    from faithkit.weights.resolve import resolve

    examples = [
        replace(example, source=Path(file).stem)
        for file in files
        for example in read_pairs(file)
        if any(word.kind != STOP for word in read_words(example.response))
    ]
    groups = np.unique([example.group for example in examples], return_inverse=True)[1]
    if groups.max() + 1 < MIN_GROUPS or len({example.label for example in examples}) < 2:
        problem = f"{len(examples):,} rows of {groups.max() + 1} groups: {MIN_GROUPS} and both labels are needed"
        raise UserError(problem, place=", ".join(files), hint="label more rows, about more documents")
    print(f"reading {len(examples):,} rows with {ENCODER}", flush=True)
    rows = label_words(load_encoder(ENCODER, "cpu"), examples)
    labels, names = np.array([row.label for row in rows]), [row.dataset for row in rows]
    odds, word_odds = _cross_validate(rows, groups)
    (slope,), bias, _ = fit_line(odds[:, None], labels)
    scores = slope * odds + bias
    threshold = _choose_threshold(scores, labels)
    fitted = fit(rows)
    pooling = slope * fitted.pooling
    pooling[-1] += bias
    return WordModel(
        version=VERSION,
        encoder=ENCODER,
        encoder_sha256=hash_weights(resolve(ENCODER)),
        **asdict(replace(fitted, pooling=pooling)),
        threshold=_probability(threshold),
        span_threshold=_choose_span_threshold(rows, word_odds, scores >= threshold),
        description={
            "fitted_on": [
                {
                    "name": Path(file).name,
                    "rows": names.count(Path(file).stem),
                    "licence": licence,
                }
                for file in files
            ],
            "threshold": f"at most {MAX_FALSE_ALARMS:.0%} false alarms in cross-validation",
            "cross_validation": _figures(scores, labels, threshold, examples),
        },
    )


def _cross_validate(
    rows: Sequence["LabelledWords"], groups: "NDArray[Any]"
) -> tuple["NDArray[np.float64]", list["NDArray[np.float64]"]]:
    """Computes the log-odds of each row, and of its words, by a model that was fitted on other groups."""
    import numpy as np

    from critic.support.fit_model import fit
    from critic.support.word_model import Weights

    fold = np.random.default_rng(SEED).permutation(groups.max() + 1)[groups] % FOLDS
    odds, words = np.zeros(len(rows)), [np.zeros(0)] * len(rows)
    for number in range(FOLDS):
        print(f"cross-validation, part {number + 1} of {FOLDS}", flush=True)
        model: Weights = fit([row for row, part in zip(rows, fold, strict=True) if part != number])
        for place in np.flatnonzero(fold == number).tolist():
            words[place] = model.word_logits(rows[place].features)
            odds[place] = model.response_logit(words[place], rows[place].features)
    return odds, words


def _choose_threshold(scores: "NDArray[Any]", labels: "NDArray[Any]") -> float:
    """Chooses the score with the highest balanced accuracy among those with few enough false alarms."""
    import numpy as np
    from sklearn.metrics import roc_curve

    false_alarms, recall, cuts = roc_curve(labels, scores, drop_intermediate=False)
    allowed = false_alarms <= MAX_FALSE_ALARMS
    return float(cuts[allowed][np.argmax((recall - false_alarms)[allowed])])


def _choose_span_threshold(rows: Sequence["LabelledWords"], odds: Sequence["NDArray[Any]"], marked: Any) -> float:
    """Chooses the probability from which a word is marked, by the F1 of words in rows with known spans."""
    import numpy as np
    from sklearn.metrics import f1_score

    chosen = [n for n, row in enumerate(rows) if marked[n] and not np.isnan(row.word_labels).any()]
    if not chosen:
        return 0.5
    gold = np.concatenate([rows[n].word_labels for n in chosen])
    found = [np.concatenate([odds[n] >= min(np.log(cut / (1 - cut)), odds[n].max()) for n in chosen]) for cut in CUTS]
    return CUTS[int(np.argmax([f1_score(gold, words) for words in found]))]


def _figures(
    scores: "NDArray[Any]", labels: "NDArray[Any]", threshold: float, examples: Sequence["Example"]
) -> dict[str, Any]:
    """Computes AUROC, accuracy and false alarms; and the recall of each kind of error that the table names."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    found, kinds = scores >= threshold, np.array([str(example.meta.get("error")) for example in examples])
    recalls = {kind: found[(kinds == kind) & (labels == 1)] for kind in np.unique(kinds[labels == 1]).tolist()}
    return {
        "auroc": round(float(roc_auc_score(labels, scores)), 3),
        "accuracy": round(float((found == labels).mean()), 3),
        "false_alarms": round(float(found[labels == 0].mean()), 3),
        "recall": {kind: round(float(hits.mean()), 3) for kind, hits in recalls.items() if kind != "None"},
        "rows": len(labels),
    }


def _probability(odds: float) -> float:
    from critic.logistic import sigmoid

    return float(sigmoid(odds))


def main(arguments: Sequence[str]) -> None:
    """Fits a detector, writes it, and prints its figures."""
    options = read_options(arguments)
    require("fitting a detector")
    model = fit_detector(options.files, options.licence)
    model.write(Path(options.out))
    figures = model.description["cross_validation"]
    print(
        f"cross-validated on {figures['rows']:,} rows: AUROC {100 * figures['auroc']:.1f}, at the threshold "
        f"{100 * figures['accuracy']:.1f}% right, {100 * figures['false_alarms']:.1f}% false alarms"
    )
    print(f"recall: {', '.join(f'{kind} {100 * share:.0f}%' for kind, share in figures['recall'].items())}")
    print(f"fitted detector: {options.out}; use it as checkpoint=default:{options.out}")


def run() -> None:
    """Runs the command line."""
    run_command(main, __doc__)


if __name__ == "__main__":
    run()
