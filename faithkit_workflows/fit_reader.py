"""Fits the detector `thorough`: trains its language model, and joins it with `default`.

python -m faithkit_workflows.fit_reader train --out runs/left --without fitting --easier snli=DIR
python -m faithkit_workflows.fit_reader train --out runs/all --easier snli=DIR
python -m faithkit_workflows.fit_reader join --left runs/left --all runs/all --out critic/reader

`train` takes about 80 CPU-minutes; the same command goes on after an interruption. It reads sentences of the everyday
answers' contexts, as they are and with one changed place, then the datasets of --easier in turn, without their test
splits, then the everyday answers, without one author if you name one: `curve.png` shows how well that author's answers
are ranked after each epoch. `join` fits the weights and thresholds on that author's answers, which
`runs/left` has not seen, and writes `thorough.json` and `thorough.safetensors`.
"""

import argparse
import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_modules.datasets.everyday import FOLDER
from faithkit.cli import run_command
from faithkit.errors import UserError
from faithkit.packages import require
from faithkit.records import FAITHFUL, HALLUCINATED, Span
from faithkit_workflows.fit_support import AUTHORS, ENCODER, LICENCE, calibrate, read_rows

if TYPE_CHECKING:
    from critic.reader.training import Lesson
    from faithkit.records import Example

ADAPTERS, STATE, ABOUT = "adapters.safetensors", "state.pt", "about.json"
LOG, CURVE = "losses.jsonl", "curve.png"
SEED = 2
CHANGED = 110  # contexts with changed sentences
PREMISES = 900  # contexts of each easier dataset
ANSWERS_AT_ONCE = 24  # of the easier datasets, in one step
WATCHED = 24  # contexts of the author left out, whose answers are ranked after each epoch
SENTENCES = 5  # of a context
EASY_RATE, RATE, EPOCHS = 5e-4, 4e-4, 3


def train_reader(out: Path, without: str | None, easier: Mapping[str, str], device: str) -> None:
    """Trains the adapters, and writes them with a description of their data.

    Args:
        without: The author left out of the training.
        easier: Datasets that are read before the everyday answers, in this order: name and folder.
    """
    from critic.reader.training import Stage, TrainedReader, make_lessons, train
    from data_modules.encoding.encoder import question_text

    authors = [author for author in AUTHORS if author != without]
    examples = read_rows([str(FOLDER / f"{author}.jsonl") for author in authors])
    about: dict[str, Any] = {"without": without, "rows": {}, "seed": SEED}
    for example in examples:
        about["rows"][example.source] = about["rows"].get(example.source, 0) + 1
    reader = TrainedReader(seed=SEED, device=device)
    changed = change_sentences(list(dict.fromkeys(example.knowledge for example in examples)))
    copies = make_lessons(reader.packer, changed, [""] * len(changed))
    stages = [Stage("changed sentences", copies, 1, 1, EASY_RATE, False)]
    for name, folder in easier.items():
        rows = read_easier(name, folder)
        lessons = make_lessons(reader.packer, rows, [""] * len(rows))
        about["rows"][name] = len(rows)
        at_once = max(1, round(ANSWERS_AT_ONCE * len(lessons) / len(rows)))
        stages.append(Stage(name, lessons, at_once, 1, EASY_RATE, False))
    everyday = make_lessons(reader.packer, examples, [*map(question_text, examples)])
    stages.append(Stage("everyday", everyday, 1, EPOCHS, RATE, True))
    watched: list[Lesson] = []
    if without is not None:
        left = read_rows([str(FOLDER / f"{without}.jsonl")])
        left = sample_contexts(left, WATCHED)
        watched = make_lessons(reader.packer, left, [*map(question_text, left)])
    out.mkdir(parents=True, exist_ok=True)
    if (out / ABOUT).is_file() and json.loads((out / ABOUT).read_text()) != about:
        raise UserError("this folder has a training on other rows", place=str(out), hint="name another --out")
    (out / ABOUT).write_text(json.dumps(about))
    for stage, epoch, loss in train(stages, reader, out / STATE, seed=SEED):
        entry = {"stage": stage, "epoch": epoch, "loss": round(loss, 4)}
        if watched:
            entry["auroc"] = round(reader.auroc(watched), 4)
        with (out / LOG).open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(", ".join(f"{key} {value}" for key, value in entry.items()), flush=True)
    reader.write(out / ADAPTERS)
    print(f"adapters: {out / ADAPTERS}")
    if watched:
        print(f"curve: {plot_stages(out / LOG, out / CURVE)}")


def sample_contexts(examples: Sequence["Example"], count: int) -> list["Example"]:
    """Returns the rows of some contexts, the same ones each time."""
    contexts = list(dict.fromkeys(example.knowledge for example in examples))
    chosen = set(random.Random(SEED).sample(contexts, min(count, len(contexts))))
    return [example for example in examples if example.knowledge in chosen]


def plot_stages(log: Path, image: Path) -> Path:
    """Draws loss and AUROC after each epoch of each stage."""
    from faithkit.pages.plotting import new_figure, save_figure

    entries = [json.loads(line) for line in log.read_text().splitlines()]
    figure, losses = new_figure(6, 4, rows=2)
    names = [entry["stage"] + (f", {entry['epoch']}" if entry["stage"] == "everyday" else "") for entry in entries]
    ranks = figure.axes[1]
    for axes, key, title in (
        (losses, "loss", "Mean loss: verdicts, and marked tokens and pairs where rows have them"),
        (ranks, "auroc", "AUROC on contexts of the author left out"),
    ):
        axes.plot(names, [entry[key] for entry in entries], marker="o")
        axes.set_title(title)
    ranks.axhline(0.5, linestyle=":", color="#888888")
    return save_figure(figure, image)


def change_sentences(contexts: Sequence[str]) -> list["Example"]:
    """Makes answers out of the sentences of contexts: as they are, and with a number, name or word changed."""
    from data_modules.weak.synthetic_pairs import Pool, distort, swap_name, swap_number, swap_words
    from faithkit.records import Example
    from faithkit.words import sentences

    rng = random.Random(SEED)
    documents = [[one.strip() for one in sentences(context) if one.strip()] for context in contexts]
    pool, made = Pool.of(documents, ()), list[Example]()
    for number, document in enumerate(rng.sample(documents, min(CHANGED, len(documents)))):
        here, context = Pool.of([document], ()), " ".join(document)
        for sentence in rng.sample(document, min(SENTENCES, len(document))):
            edits = [(swap_number, here), (swap_name, here), (swap_words, pool), (distort, pool)]
            rng.shuffle(edits)
            changed = next((text for edit, words in edits if (text := edit(sentence, words, rng)) is not None), None)
            if changed is None or changed in context:
                continue
            same = len(common_start(sentence, changed))
            end = len(changed) - len(common_start(sentence[same:][::-1], changed[same:][::-1]))
            span = Span(start=same, end=max(end, same + 1), text=changed[same : max(end, same + 1)], label="changed")
            right = Example(
                id=f"{len(made)}",
                source="changed",
                split="train",
                group=str(number),
                knowledge=context,
                history=(),
                response=sentence,
                label=FAITHFUL,
                spans=(),
            )
            made += [right, replace(right, id=f"{len(made) + 1}", response=changed, label=HALLUCINATED, spans=(span,))]
    return made


def common_start(one: str, other: str) -> str:
    """Returns the characters with which both texts begin."""
    size = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:size]


def read_easier(name: str, folder: str) -> list["Example"]:
    """Reads labelled answers of a dataset, about at most `PREMISES` contexts and none of its test split."""
    from data_modules.build import build_source
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport

    source = build_source(name, folder)
    splits = [split for split in source.split_names() if split != "test"]
    if not splits:
        raise UserError(
            "only a test split is here, which stays out of training", place=folder, hint="name another dataset"
        )
    rows = [
        replace(example, spans=None)
        for split in splits
        for example in read_examples(source, split, ReadReport())
        if example.label in (FAITHFUL, HALLUCINATED)
    ]
    return sample_contexts(rows, PREMISES)


def join_with_default(left: Path, complete: Path, out: Path) -> dict[str, Any]:
    """Fits the weights and thresholds on the author that a training left out, and writes the detector's files.

    Returns:
        The figures on that author's rows.
    """
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    from critic.reader import detector
    from critic.reader.detector import BASE, Reader
    from critic.support.detector import FILE as DEFAULT_FILE
    from critic.support.detector import load_encoder
    from critic.support.word_model import VALUE, WordModel, fit, label_words, write_fitted
    from critic.support.word_states import encode_and_align
    from data_modules.encoding.encoder import question_text
    from faithkit.calibration import sigmoid
    from faithkit.files.atomic import hash_file
    from faithkit.provenance.used_model import DATASETS
    from faithkit.weights.resolve import hash_weights, resolve

    author = json.loads((left / ABOUT).read_text())["without"]
    if author not in AUTHORS or json.loads((complete / ABOUT).read_text())["without"] is not None:
        raise UserError("--left needs a training without one author, and --all one with every author", place=str(left))
    examples = read_rows([str(FOLDER / f"{name}.jsonl") for name in AUTHORS])
    encoder = load_encoder(ENCODER, "cpu")
    rows = label_words(encoder, examples)
    held = [number for number, example in enumerate(examples) if example.source == author]
    # The raw log-odds of a fit without this author, on the scale of the shipped file.
    shipped, complete_fit = WordModel.read(DEFAULT_FILE), fit(rows)
    without = fit([row for row in rows if row.dataset != author])
    slope = shipped.pooling[3] / complete_fit.pooling[3]
    bias = shipped.pooling[-1] - slope * complete_fit.pooling[-1]
    words = [without.word_logits(rows[n].features) for n in held]
    odds = np.array([without.response_logit(w, rows[n].features) for w, n in zip(words, held, strict=True)])
    odds = slope * odds + bias
    base = hash_weights(resolve(BASE)) or ""
    reader = Reader.load(left / ADAPTERS, base=BASE, base_sha256=base, device="cpu")
    texts = [(examples[n].knowledge, question_text(examples[n]), examples[n].response) for n in held]
    readings = reader.read(texts)
    of_words = [
        detector.word_odds(alignment, reading.tokens, reading.offsets)
        for alignment, reading in zip(encode_and_align(encoder, texts), readings, strict=True)
    ]
    gold = np.array([rows[n].label for n in held])
    columns = np.stack([odds, [reading.verdict for reading in readings]], 1)
    of_responses = LogisticRegression(C=np.inf).fit(columns, gold)
    labels = np.concatenate([rows[n].word_labels for n in held])
    known = ~np.isnan(labels)
    both = np.stack([np.concatenate(words), np.concatenate(of_words)], 1)
    of_word = LogisticRegression(C=np.inf).fit(both[known], labels[known])
    ends = np.cumsum([len(one) for one in words])[:-1]
    joined = np.split(of_word.decision_function(both), ends)
    found = of_responses.decision_function(columns)
    model = calibrate(
        complete_fit,
        [(examples[n], rows[n], one) for n, one in zip(held, joined, strict=True)],
        found,
        by_author=False,
    )
    about = json.loads((complete / ABOUT).read_text())
    # Of `default` too, a value that the context does not have sets the least probability.
    has_value = np.array([rows[n].features[:, VALUE].any() for n in held])
    of_default = np.where(has_value, np.maximum(sigmoid(odds), shipped.value_probability), sigmoid(odds))
    figures = model.description | {
        "author": author,
        "default_auroc": round(float(roc_auc_score(gold, of_default)), 3),
        "reader_auroc": round(float(roc_auc_score(gold, columns[:, 1])), 3),
    }
    description = {
        "fitted_on": [
            {"name": name, "rows": count, "licence": DATASETS.get(name, {}).get("licence", LICENCE)}
            for name, count in about["rows"].items()
        ],
        "threshold": f"best macro-F1 with at most 15% false alarms, on the author {author} left out",
        "cross_validation": figures,
    }
    out.mkdir(parents=True, exist_ok=True)
    names = ("threshold", "unsure_from", "aims", "value_probability", "span_threshold")
    shutil.copyfile(complete / ADAPTERS, out / detector.ADAPTERS)
    stored = {
        "base": BASE,
        "base_sha256": base,
        "adapters_sha256": hash_file(out / detector.ADAPTERS),
        "default_sha256": hash_file(DEFAULT_FILE),
        "response": [round(float(v), 4) for v in (*of_responses.coef_[0], of_responses.intercept_[0])],
        "word": [round(float(v), 4) for v in (*of_word.coef_[0], of_word.intercept_[0])],
        "model": {name: getattr(model, name) for name in names} | {"description": description},
    }
    write_fitted(out / detector.FILE, detector.FORMAT, stored)
    return figures


def main(arguments: Sequence[str]) -> None:
    """Trains the language model, or joins it with `default`."""
    parser = argparse.ArgumentParser(prog="python -m faithkit_workflows.fit_reader", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--out", type=Path, required=True, metavar="DIR")
    training.add_argument("--without", choices=AUTHORS, default=None)
    training.add_argument("--easier", action="append", default=[], metavar="DATASET=DIR")
    training.add_argument("--device", default="cpu")
    joining = commands.add_parser("join")
    for name in ("--left", "--all", "--out"):
        joining.add_argument(name, type=Path, required=True, metavar="DIR")
    options = parser.parse_args(list(arguments))
    require("fitting a detector")
    if options.command == "train":
        easier = dict(one.partition("=")[::2] for one in options.easier)
        train_reader(options.out, options.without, easier, options.device)
        return
    figures = join_with_default(options.left, options.all, options.out)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    run_command(main, __doc__)
