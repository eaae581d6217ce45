"""Compares our preparation of dialogue turns for training with the usual loop, cold and from the Arrow cache.

18,357 turns, as many as in FaithDial's training split: the embedded corpus is written in FaithDial's layout and read by
its loader. Each turn's knowledge, history and response become token ids in one sequence. The usual loop gives each text
to the tokenizer on its own and adds up the lists.

Needs: nothing more than faithkit, and the tokenizer of `minilm` (fetched once).

python -m speed.prepare_speed
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.encoding.ragged import Ragged, constant_rows, join_rows, offsets_of
from faithkit.records import Example
from speed.measure import Ratio, alternate, report, table

NUM_TURNS = 18_357  # in FaithDial's training split


def main() -> None:
    """Times both ways in turns, compares their ids, then times the cache."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", default="minilm", help="whose tokenizer")
    parser.add_argument("--turns", type=int, default=NUM_TURNS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    from data_modules.datasets.faithdial import FaithDial
    from data_modules.embedded.layouts import WRITERS
    from data_modules.encoding.pairs import PairEncoder
    from data_modules.encoding.tokens import load_tokenizer
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport
    from faithkit.weights.resolve import resolve

    tokenizer = load_tokenizer(resolve(options.weights))
    encoder = PairEncoder(tokenizer=tokenizer, max_length=256)
    with tempfile.TemporaryDirectory() as folder:
        WRITERS["faithdial"](Path(folder), {"train": options.turns})
        source = FaithDial(path=folder)
        turns = list(read_examples(source, "train", ReadReport()))
        taken = alternate(
            {
                "one string at a time": lambda: one_by_one(tokenizer, turns),
                "ours: segments": lambda: segments(tokenizer, turns),
                "one pair at a time": lambda: pair_by_pair(tokenizer, turns),
                "ours: PairEncoder": lambda: pairs(encoder, turns),
            },
            options.rounds,
        )
        expected, found = one_by_one(tokenizer, turns), segments(tokenizer, turns)
        assert all(found.row(i).tolist() == ids for i, ids in enumerate(expected)), "both ways give the same ids"
        both = zip(pair_by_pair(tokenizer, turns), _rows(pairs(encoder, turns)), strict=True)
        assert all(a == b for a, b in both), "both ways give the same pairs"
        cold, warm = cache_seconds(source, encoder)

    ratios = {
        "ours: segments": Ratio.of(taken["one string at a time"], taken["ours: segments"]),
        "ours: PairEncoder": Ratio.of(taken["one pair at a time"], taken["ours: PairEncoder"]),
    }
    rows = [
        [name, f"{np.median(seconds):.2f}", f"{len(turns) / np.median(seconds):,.0f}", ratios.get(name, "")]
        for name, seconds in taken.items()
    ]
    header = ["way", "CPU-seconds", "turns a CPU-second", "faster"]
    lengths = [len(ids) for ids in expected]
    lines = [
        f"{len(turns):,} turns of the embedded corpus in FaithDial's layout; {np.mean(lengths):.0f} tokens a turn with "
        "all of its history; equal ids on both ways. `segments`: knowledge, history and response; `PairEncoder`: "
        "knowledge and response, as the critic trains on.",
        table(header, rows),
        f"A launch, reading files and writing the Arrow cache: {cold:.2f} s; the next launch, from the cache: "
        f"{warm:.3f} s (wall-clock; the aim is below 0.3).",
    ]
    report("Preparing", "\n\n".join(lines))


def texts_of(example: Example) -> list[str]:
    return [example.knowledge, *(turn.text for turn in example.history), example.response]


def one_by_one(tokenizer: Any, turns: list[Example]) -> list[list[int]]:
    """Encodes as the usual loop does, with special tokens between the texts."""
    encoded = []
    for example in turns:
        ids = [tokenizer.cls_token_id]
        for text in texts_of(example):
            ids += [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.sep_token_id]
        encoded.append(ids)
    return encoded


def segments(tokenizer: Any, turns: list[Example]) -> Ragged:
    """Tokenises all texts at once with `data_modules.encoding.tokens`, then puts them together."""
    from data_modules.encoding.tokens import tokenize

    texts = [texts_of(example) for example in turns]
    counts = np.array([len(one) for one in texts])
    flat = tokenize(tokenizer, [text for one in texts for text in one])
    ended = join_rows([flat, constant_rows([tokenizer.sep_token_id], len(flat))])
    whole = Ragged(ended.values, ended.offsets[offsets_of(counts)])
    return join_rows([constant_rows([tokenizer.cls_token_id], len(turns)), whole])


def pair_by_pair(tokenizer: Any, turns: list[Example]) -> list[list[int]]:
    """Encodes each pair with the tokenizer's own pair encoding."""
    return [tokenizer(e.knowledge, e.response, truncation="only_first", max_length=256)["input_ids"] for e in turns]


def pairs(encoder: Any, turns: list[Example]) -> Ragged:
    """Encodes all pairs with the critic's encoder."""
    from collections import Counter

    batch = encoder.collate(encoder.encode(turns, Counter()))
    inside = batch["attention_mask"] > 0
    return Ragged(batch["input_ids"][inside].astype(np.int32), offsets_of(inside.sum(1)))


def _rows(ragged: Ragged) -> list[list[int]]:
    return [ragged.row(i).tolist() for i in range(len(ragged))]


def cache_seconds(source: Any, encoder: Any) -> tuple[float, float]:
    """Times `load_encoded` of a first and of later launches, in a cache of their own."""
    import os

    from data_modules.encoding.cache import load_encoded

    before = os.environ.get("FAITHKIT_HOME")
    seconds = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["FAITHKIT_HOME"] = home
        for _ in range(4):
            begin = time.perf_counter()
            load_encoded(source, "train", encoder)
            seconds.append(time.perf_counter() - begin)
    if before is None:
        del os.environ["FAITHKIT_HOME"]
    else:
        os.environ["FAITHKIT_HOME"] = before
    return seconds[0], float(np.median(seconds[1:]))


if __name__ == "__main__":
    main()
