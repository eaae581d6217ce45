"""Compares reading all windows of long knowledge with reading those that share most words with the response.

Each row's knowledge is put among that of other rows, at a place drawn by a seed, until it has so many words: what a
user has who retrieves many passages. Speed is taken in turns on the first rows; the change in scores on all, paired.

python -m speed.window_speed --critic RUN --dataset begin --path FILE [--words 2000] [--windows 1 2 4 8]
"""

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from faithkit.records import Example
from speed.detections import SHOWN, difference, levels, predict, scores, tell
from speed.measure import Ratio, alternate, report, table

SEED = 0


def main() -> None:
    """Takes the figures of one detector and writes its section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--critic", help="a run or hf/ folder")
    kinds.add_argument("--tagger", help="a run or hf/ folder")
    parser.add_argument("--dataset", default="embedded")
    parser.add_argument("--path", default="embedded")
    parser.add_argument("--words", type=int, default=2000, help="of the knowledge")
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--timed", type=int, default=40, help="rows of a round")
    parser.add_argument("--judged", type=int, default=300, help="rows")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    import torch

    from critic import Critic, Tagger
    from data_modules.build import read_benchmark

    torch.set_num_threads(1)
    kind = "critic" if options.critic else "tagger"
    load: Any = Critic.load if options.critic else Tagger.load
    block = {"name": options.dataset, "path": options.path, "split": None, "on_bad_row": "skip", "options": {}}
    rows = list(read_benchmark({**block, "num_rows": None}).examples)
    judged = list(lengthened(rows, options.judged, options.words))
    few: dict[str, int | None] = {f"{number} windows": number for number in options.windows}
    sides = {"all windows": None, **few}
    detectors = {name: load(getattr(options, kind), device="cpu", max_windows=most) for name, most in sides.items()}
    timed = judged[: options.timed]
    clocked: dict[str, Callable[[], object]] = {name: partial(predict, one, timed) for name, one in detectors.items()}
    taken = alternate(clocked, options.rounds)
    found = {name: predict(detector, judged) for name, detector in detectors.items()}
    first = next(iter(sides))
    lines = []
    for name, seconds in taken.items():
        moved = np.abs(scores(found[name], judged) - scores(found[first], judged))
        changes = difference(kind, judged, found[name], found[first])
        turned = np.mean([found[name][one.id].label != found[first][one.id].label for one in judged])
        lines.append(
            [
                name,
                f"{len(timed) / np.median(seconds):.2f}",
                Ratio.of(taken[first], seconds),
                *(tell(changes[metric]) if name != first else "" for metric in SHOWN[kind]),
                f"{moved.mean():.4f}, {moved.max():.3f}",
                f"{turned:.1%}",
            ]
        )
    header = ["read", "responses a CPU-second", "against all", *(f"change in {metric}" for metric in SHOWN[kind])]
    header += ["change of P(hallucinated): mean, most", "labels that turn"]
    body = (
        f"{options.dataset}: {len(judged)} rows, each knowledge among others of the same set up to {options.words:,} "
        f"words; {len(timed)} of them timed. All windows: {levels(kind, judged, found[first])}. Differences from it in "
        f"points, with 95% intervals.\n\n{table(header, lines)}"
    )
    report(f"Long knowledge: {kind}, {options.words:,} words, {options.dataset}", body)


def lengthened(rows: Sequence[Example], number: int, num_words: int) -> Iterator[Example]:
    """Gives a random part of the rows, each knowledge among others that are drawn from other groups."""
    generator = random.Random(SEED)
    for example in generator.sample(list(rows), min(number, len(rows))):
        before: list[str] = []
        after: list[str] = []
        size = len(example.knowledge.split())
        while size < num_words:
            other = generator.choice(rows)
            if other.knowledge == example.knowledge or other.group == example.group:
                continue
            (before if generator.random() < 0.5 else after).append(other.knowledge)
            size += len(other.knowledge.split())
        yield replace(example, knowledge=" ".join([*before, example.knowledge, *after]))


if __name__ == "__main__":
    main()
