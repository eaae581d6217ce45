"""Compares reading all of a long context with reading the parts that share words with the response.

Speed: one response and contexts of 200, 2,000 and 20,000 words of the embedded corpus, one thread. Quality: rows of a
dataset, each context among those of other groups. Without --critic and --tagger the demo's critic is trained first.

python -m speed.long_speed --critic RUN --tagger RUN [--dataset ragtruth --path FOLDER --judged 100 --words 1500]
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from critic.support.detector import SupportDetector
from data_modules.build import read_benchmark
from data_modules.embedded.corpus import generate
from faithkit.metrics.classification import evaluate_labels, join_outcomes
from faithkit.metrics.span_metrics import evaluate_spans, join_spans
from faithkit.records import Example
from speed.measure import Ratio, alternate, table, write_results
from speed.score_speed import CLASSES, DetectorParser, Predictions, predict

SIZES = (200, 2_000, 20_000)  # words
RESPONSE = "The museum opens at nine and closes at five in the evening on Sundays."
MOVED = 0.1  # change of P(hallucinated)


def main() -> None:
    """Measures each detector, and writes one section."""
    parser = DetectorParser(__doc__, judged=100, words=1500)
    parser.add_argument("--dataset", help="adds rows of quality: ragtruth or begin")
    parser.add_argument("--path", help="its folder")
    options = parser.parse()
    loads = {kind: partial(CLASSES[kind].load, path, device="cpu") for kind, path in options.checkpoints.items()}
    sides = {(kind, most): load(max_windows=most) for kind, load in loads.items() for most in ("all", 1)}
    rows = [row for size in SIZES for row in time_size(sides, size, options.rounds)]
    conditions = "CPU-milliseconds of one response, one thread; `default` always reads parts of what exceeds 768 tokens"
    parts = [conditions, table(["detector", "words", "all windows, ms", "one window, ms", "faster"], rows)]
    if options.dataset:
        block: dict[str, Any] = {"name": options.dataset, "path": options.path, "split": None, "num_rows": None}
        stored = read_benchmark({**block, "on_bad_row": "skip", "options": {}}).examples
        judged = lengthen([example for example in stored if example.label], options.judged, options.words)
        changes = [compare(kind, sides[kind, "all"], sides[kind, 1], judged) for kind in loads]
        parts += [
            f"{options.dataset}: {len(judged)} rows, each context among others up to {options.words:,} words. Points "
            "of one window less all windows, at stored thresholds, with 95% intervals.",
            table(["detector", "AUROC", "macro-F1", "character F1", f"moved by more than {MOVED}"], changes),
        ]
    write_results("Long contexts" + (f": {options.dataset}" if options.dataset else ""), *parts, quick=options.quick)


def time_size(sides: dict[tuple[str, int | str], Any], size: int, num_rounds: int) -> list[list[str]]:
    """Times one response with a context of so many words, and the detector `default` too, which reads parts always."""
    sentences = [text for example in generate("train", 4000) for text in example.knowledge.split(". ")]
    random.Random(0).shuffle(sentences)
    context = " ".join(". ".join(sentences).split()[:size])
    default = SupportDetector.load(device="cpu")
    default.encoder.cache = None
    jobs = {f"{kind} {mode}": partial(one.predict, context, RESPONSE) for (kind, mode), one in sides.items()}
    taken = alternate(jobs | {"default": partial(default.predict, context, RESPONSE)}, num_rounds, warm_up=True)
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in sides):
        slow, fast = taken[f"{kind} all"], taken[f"{kind} 1"]
        rows.append([kind, f"{size:,}", _milliseconds(slow), _milliseconds(fast), str(Ratio.of(slow, fast))])
    return [*rows, ["default", f"{size:,}", "", _milliseconds(taken["default"]), ""]]


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{1000 * statistics.median(seconds):.0f}"


def lengthen(rows: Sequence[Example], number: int, num_words: int) -> list[Example]:
    """Draws rows, and puts each context among those of other groups until it has so many words."""
    generator, found = random.Random(0), []
    for example in generator.sample(list(rows), min(number, len(rows))):
        texts = [example.knowledge]
        while sum(len(text.split()) for text in texts) < num_words:
            other = generator.choice(rows)
            if other.group != example.group and other.knowledge != example.knowledge:
                texts.insert(generator.choice((0, len(texts))), other.knowledge)
        found.append(replace(example, knowledge=" ".join(texts)))
    return found


def compare(kind: str, every: Any, few: Any, rows: Sequence[Example]) -> list[str]:
    """Compares the predictions of both ways, paired."""
    sides: list[Predictions] = [predict(one, rows) for one in (few, every)]
    first, second = (evaluate_labels(join_outcomes(rows, side)) for side in sides)
    found = first.subtract(second)
    scores = [np.array([side[e.id].score for e in rows], np.float64) for side in sides]
    values = [found["auroc"], found["macro_f1"]]
    if kind == "tagger" and rows[0].spans is not None:
        first, second = (evaluate_spans(join_spans(rows, side)) for side in sides)
        values.append(first.subtract(second)["char_f1"])
    shown = [f"{100 * v.value:+.1f} [{100 * v.low:.1f}, {100 * v.high:.1f}]" for v in values]
    return [kind, *shown, *[""] * (3 - len(shown)), f"{np.mean(np.abs(scores[0] - scores[1]) > MOVED):.0%}"]


if __name__ == "__main__":
    main()
