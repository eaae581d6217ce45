"""Fits the detector `default`, also to your labelled rows, in minutes on a CPU.

python -m faithkit_workflows.fit_support mine.csv --out mine.json      your rows, together with the everyday answers
faithkit score answers.csv checkpoint=default:mine.json
python -m faithkit_workflows.fit_support --out critic/support/default.json     the detector that comes with faithkit

A table has the columns of docs/start/own_data.md: context, question, answer, label, and spans where they are known. The
fitted detector is compared with `default` on your rows, each fold of groups (documents, dialogues) left out of the fit
in turn; if it ranks them worse, no file is written. Thresholds and figures come from these folds; without rows of your
own, each author of the everyday answers is left out in turn.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_modules.datasets.everyday import FOLDER, TRAIN, VALIDATION
from faithkit.cli import run_command
from faithkit.errors import UserError
from faithkit.packages import require
from faithkit.records import HALLUCINATED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from critic.support.word_model import LabelledWords, Weights, WordModel
    from faithkit.records import Example

ENCODER = "minilm"
AUTHORS = (VALIDATION, *TRAIN)  # a set for each author
FOLDS, SEED = 5, 0
MIN_GROUPS = 2 * FOLDS
# The highest rate of false alarms of each aim but recall, and the lowest recall of that one.
MAX_FALSE_ALARMS, MAX_FALSE_ALARMS_PRECISE, MIN_RECALL = 0.15, 0.05, 0.8
VERSION = "6"
CUTS = [number / 20 for number in range(2, 19)]  # span thresholds that are tried
LICENCE = "Apache-2.0"  # of the rows that come with faithkit


def fit_detector(files: Sequence[str], licence: str) -> "WordModel":
    """Fits a detector to the everyday answers and the rows of labelled tables.

    Raises:
        UserError: The tables have too few groups or one class only, or the detector is worse than `default` on them.
    """
    import numpy as np

    from critic.support.detector import load_encoder
    from critic.support.word_model import fit, label_words

    examples = read_rows([*(str(FOLDER / f"{name}.jsonl") for name in AUTHORS), *files])
    if files:  # the groups of the user's rows in folds; -1 for the rows that come with faithkit
        mine = np.array([example.source not in AUTHORS for example in examples])
        groups = np.array([example.group for example in examples])[mine]
        numbers = np.unique(groups, return_inverse=True)[1]
        count = int(numbers.max(initial=-1)) + 1
        if count < MIN_GROUPS or len({one.label for one, own in zip(examples, mine, strict=True) if own}) < 2:
            problem = f"{int(mine.sum()):,} rows of {count} groups: {MIN_GROUPS} and both labels are needed"
            raise UserError(problem, place=", ".join(files), hint="label more rows, about more documents")
        folds = np.full(len(mine), -1)
        folds[mine] = np.random.default_rng(SEED).permutation(count)[numbers] % FOLDS
    else:
        folds = np.array([AUTHORS.index(example.source) for example in examples])
    print(f"reading {len(examples):,} rows with {ENCODER}", flush=True)
    rows = label_words(load_encoder(ENCODER, "cpu"), examples)
    # The log-odds of each row of a fold, and of its words, by a model that was fitted on all other rows.
    odds, words = np.zeros(len(rows)), [np.zeros(0)] * len(rows)
    for number in range(folds.max() + 1):
        print(f"fitting without part {number + 1} of {folds.max() + 1}", flush=True)
        model: Weights = fit([row for row, part in zip(rows, folds, strict=True) if part != number])
        for place in np.flatnonzero(folds == number).tolist():
            words[place] = model.word_logits(rows[place].features)
            odds[place] = model.response_logit(words[place], rows[place].features)
    held = np.flatnonzero(folds >= 0).tolist()
    figures = {"default_auroc": compare_with_default([rows[n] for n in held], odds[held], files)} if files else {}
    fitted = calibrate(fit(rows), [(examples[n], rows[n], words[n]) for n in held], odds[held], by_author=not files)
    names = [example.source for example in examples]
    description = {
        "fitted_on": [
            {"name": name, "rows": names.count(name), "licence": LICENCE if name in AUTHORS else licence}
            for name in dict.fromkeys(names)
        ],
        "threshold": f"best macro-F1 with at most {MAX_FALSE_ALARMS:.0%} false alarms, "
        + ("on folds of your rows" if files else "authors left out"),
        "cross_validation": figures | fitted.description,
    }
    return replace(fitted, description=description)


def calibrate(
    fitted: "Weights",
    held: Sequence[tuple["Example", "LabelledWords", "NDArray[Any]"]],
    odds: "NDArray[Any]",
    *,
    by_author: bool,
) -> "WordModel":
    """Chooses the thresholds of a fitted model on rows that other models judged; its description has their figures.

    Args:
        held: The rows that a model judged which was not fitted on their fold, with the log-odds of their words.
        odds: The log-odds of the rows.
        by_author: Thresholds count the rows of an author together, or else those of a group.
    """
    import numpy as np
    from sklearn.metrics import f1_score, roc_auc_score

    from critic.support.detector import hash_weights
    from critic.support.word_model import BALANCED, RECALL, VALUE, WordModel
    from faithkit.calibration import fit_line, sigmoid
    from faithkit.weights.resolve import resolve

    examples = [example for example, _, _ in held]
    gold = np.array([row.label for _, row, _ in held])
    (slope,), bias, _ = fit_line(odds[:, None], gold)
    scores = sigmoid(slope * odds + bias)
    has_value = np.array([row.features[:, VALUE].any() for _, row, _ in held])
    floor = float(gold[has_value].mean()) if has_value.sum() >= 10 else 0.9
    scores = np.where(has_value, np.maximum(scores, floor), scores)
    aims = choose_thresholds(scores, gold, np.array([one.source if by_author else one.group for one in examples]))
    pooling = slope * fitted.pooling
    pooling[-1] += bias
    threshold = aims[BALANCED]["threshold"]
    found = scores >= threshold
    # The probability from which a word is marked, by the F1 of words in rows with known spans.
    span_threshold = 0.5
    spanned = [(row.word_labels, words) for (_, row, words), marked in zip(held, found, strict=True) if marked]
    if spanned := [(labels, words) for labels, words in spanned if not np.isnan(labels).any()]:
        cells = np.concatenate([labels for labels, _ in spanned])
        f1 = []
        for cut in CUTS:
            log_odds = np.log(cut / (1 - cut))
            called = np.concatenate([words >= min(log_odds, words.max()) for _, words in spanned])
            f1.append(f1_score(cells, called))
        span_threshold = CUTS[int(np.argmax(f1))]
    kinds = np.array([str(example.meta.get("error")) for example in examples])
    recalls = {kind: found[(kinds == kind) & (gold == 1)] for kind in np.unique(kinds[gold == 1]).tolist()}
    return WordModel(
        version=VERSION,
        encoder=ENCODER,
        encoder_sha256=hash_weights(resolve(ENCODER)),
        **asdict(replace(fitted, pooling=pooling)),
        threshold=threshold,
        unsure_from=min(threshold, aims[RECALL]["threshold"]),
        aims=aims,
        value_probability=floor,
        span_threshold=span_threshold,
        description={
            "auroc": round(float(roc_auc_score(gold, scores)), 3),
            "accuracy": round(float((found == gold).mean()), 3),
            "false_alarms": round(float(found[gold == 0].mean()), 3),
            "recall": {kind: round(float(hits.mean()), 3) for kind, hits in recalls.items() if kind != "None"},
            "rows": len(gold),
            "values": count_values(examples, has_value),
        },
    )


def read_rows(files: Sequence[str]) -> list["Example"]:
    """Reads labelled tables; a row without words that could be compared is left out."""
    from critic.support.normal_forms import STOP, read_words
    from data_modules.datasets.pairs import read_pairs

    return [
        replace(example, source=Path(file).stem if Path(file).parent == FOLDER else file)
        for file in files
        for example in read_pairs(file)
        if any(word.kind != STOP for word in read_words(example.response))
    ]


def compare_with_default(rows: Sequence["LabelledWords"], odds: "NDArray[np.float64]", files: Sequence[str]) -> float:
    """Prints the AUROC of both detectors on the user's rows, and returns that of `default`.

    Raises:
        UserError: The fitted detector ranks the rows worse.
    """
    import numpy as np
    from sklearn.metrics import roc_auc_score

    from critic.support.detector import FILE
    from critic.support.word_model import WordModel

    default, labels = WordModel.read(FILE), np.array([row.label for row in rows])
    theirs = [default.response_logit(default.word_logits(row.features), row.features) for row in rows]
    before, after = (float(roc_auc_score(labels, values)) for values in (theirs, odds))
    print(
        f"AUROC on your {len(rows):,} rows: default {100 * before:.1f}, fitted (each fold left out) {100 * after:.1f}"
    )
    if after < before:
        problem = (
            f"the fitted detector is worse than default on rows it was not fitted on: AUROC {after:.3f}, {before:.3f}"
        )
        hint = (
            "no file is written: keep checkpoint=default with a threshold (docs/start/own_data.md), or label more rows"
        )
        raise UserError(problem, place=", ".join(files), hint=hint)
    return round(before, 3)


def choose_thresholds(
    scores: "NDArray[Any]", labels: "NDArray[Any]", groups: "NDArray[Any]"
) -> dict[str, dict[str, Any]]:
    """Chooses the threshold of each aim, with the recall and the false alarms that it has on the rows.

    Balanced: the best macro-F1 with at most 15% false alarms. Precision: the highest recall with at most 5%. Recall:
    the fewest false alarms with a recall of at least 80%, and no less than balanced. Found, missed, false alarms and
    rightly passed are counted by group, so that a share of hallucinated answers can be corrected by them
    (`faithkit.metrics.judge_error`).
    """
    import numpy as np
    from sklearn.metrics import roc_curve

    from critic.support.word_model import BALANCED, PRECISION, RECALL
    from faithkit.metrics.judge_error import JudgeError

    alarms, recall, cuts = roc_curve(labels, scores, drop_intermediate=False)
    wrong, right = labels.sum(), len(labels) - labels.sum()
    f1 = 2 * recall * wrong / (recall * wrong + alarms * right + wrong)
    f1_faithful = 2 * (1 - alarms) * right / ((1 - alarms) * right + (1 - recall) * wrong + right)
    usable = np.isfinite(cuts)
    chosen = {
        BALANCED: np.where(usable & (alarms <= MAX_FALSE_ALARMS), f1 + f1_faithful, -1).argmax(),
        PRECISION: np.where(usable & (alarms <= MAX_FALSE_ALARMS_PRECISE), recall, -1).argmax(),
        RECALL: np.where(usable & (recall >= MIN_RECALL), 1 - alarms, -1).argmax(),
    }
    chosen[RECALL] = max(chosen[BALANCED], chosen[RECALL])  # cuts fall: never less recall than balanced
    found: dict[str, dict[str, Any]] = {}
    for aim, place in chosen.items():
        threshold = float(f"{np.clip(cuts[place], 0, 1) - 5e-5:.4f}")  # so that rounding loses no row
        called = scores >= threshold
        error = JudgeError.of_rows(labels, called, groups.tolist())
        found[aim] = {
            "threshold": threshold,
            "recall": round(float(called[labels == 1].mean()), 3),
            "false_alarms": round(float(called[labels == 0].mean()), 3),
            "counts": [[int(cell) for cell in row] for row in error.table],
        }
    return found


def count_values(examples: Sequence["Example"], marked: "NDArray[Any]") -> dict[str, dict[str, list[int]]]:
    """Counts what the comparison of values alone finds, by file.

    Wrong numbers, units and dates count if the context does not have the words of a wrong value in their order.

    Args:
        marked: Whether a response has an unsupported value [rows].
    """
    from critic.support.normal_forms import read_words
    from critic.support.value_reader import read_values

    def norms(text: str) -> str:
        return f" {' '.join(word.norm for word in read_words(text))} "

    counts: dict[str, dict[str, list[int]]] = {}
    for example, is_marked in zip(examples, marked.tolist(), strict=True):
        of_file = counts.setdefault(example.source, {"found": [0, 0], "false_alarms": [0, 0]})
        counted = of_file["false_alarms"]
        if example.label == HALLUCINATED:
            if example.meta.get("error") not in ("number", "unit", "date"):
                continue
            spans, known = example.spans or (), norms(example.knowledge)
            wrong = [
                v for v in read_values(example.response) if any(v.start < s.end and s.start < v.end for s in spans)
            ]
            if all(norms(value.text) in known for value in wrong):
                continue
            counted = of_file["found"]
        counted[0] += is_marked
        counted[1] += 1
    return counts


def main(arguments: Sequence[str]) -> None:
    """Fits a detector, writes it, and prints its figures."""
    parser = argparse.ArgumentParser(prog="python -m faithkit_workflows.fit_support", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--out", required=True, metavar="FILE")
    parser.add_argument("--licence", default=LICENCE, help="of your rows, for the description in the file")
    options = parser.parse_args(list(arguments))
    require("fitting a detector")
    model = fit_detector(options.files, options.licence)
    model.write(Path(options.out))
    figures = model.description["cross_validation"]
    print(
        f"on {figures['rows']:,} rows that were left out: AUROC {100 * figures['auroc']:.1f}, at the threshold "
        f"{100 * figures['accuracy']:.1f}% right, {100 * figures['false_alarms']:.1f}% false alarms"
    )
    for aim, one in model.aims.items():
        print(f"aim={aim}: {one['threshold']:.3f}, recall {one['recall']:.1%}, false alarms {one['false_alarms']:.1%}")
    print(f"recall: {', '.join(f'{kind} {100 * share:.0f}%' for kind, share in figures['recall'].items())}")
    for name, counts in figures["values"].items():
        (found, wrong), (alarms, faithful) = counts["found"], counts["false_alarms"]
        if wrong:
            shown = f"{found} of {wrong} wrong values found that the context does not have"
            print(f"values alone, {name}: {shown}; {alarms} of {faithful} faithful answers marked")
    print(f"fitted detector: {options.out}; use it as checkpoint=default:{options.out}")


if __name__ == "__main__":
    run_command(main, __doc__)
