"""Compares encoding turns with the tokenizer called pair by pair, and times the Arrow cache.

There are as many turns as FaithDial's training split has, written in its layout; both ways must give the same ids.

Needs: the tokenizer of `minilm` (fetched once).

python -m speed.encode_speed
"""

import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.datasets.faithdial import FaithDial
from data_modules.embedded.layouts import WRITERS
from data_modules.encoding.encoding_cache import load_encoded
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.weights.resolve import resolve
from speed.measure import BenchmarkParser, alternate, rates, table, write_results


def main() -> None:
    """Times both ways to encode in turns, compares their ids, then times the cache."""
    options = BenchmarkParser(__doc__, turns=18_357).parse()
    encoder = PairEncoder(tokenizer=load_tokenizer(resolve("minilm")), max_length=256)
    found: dict[str, Any] = {}

    def encode_each() -> None:
        limits: dict[str, Any] = {"truncation": "only_first", "max_length": encoder.max_length}
        found["one by one"] = [encoder.tokenizer(e.knowledge, e.response, **limits)["input_ids"] for e in turns]

    def encode_all() -> None:
        found["ours"] = encoder.collate(encoder.encode(turns, Counter()))

    with tempfile.TemporaryDirectory() as folder:
        WRITERS["faithdial"](Path(folder), {"train": options.turns})
        source = FaithDial(path=folder)
        turns = list(read_examples(source, "train", ReadReport()))
        taken = alternate({"one pair at a time": encode_each, "ours: PairEncoder": encode_all}, options.rounds)
        os.environ["FAITHKIT_HOME"] = f"{folder}/home"  # an empty cache
        seconds = []
        for _ in range(4):
            begin = time.perf_counter()
            load_encoded(source, "train", encoder)
            seconds.append(time.perf_counter() - begin)
    ids, mask = found["ours"]["input_ids"], found["ours"]["attention_mask"] > 0
    assert found["one by one"] == [row[inside].tolist() for row, inside in zip(ids, mask, strict=True)], "equal ids"
    lines = (
        f"{len(turns):,} turns of the embedded corpus in FaithDial's layout; knowledge and response, equal ids.",
        table(["way", "turns a CPU-second", "faster"], rates(taken, len(turns), digits=0)),
        f"Reading the files and writing the Arrow cache: {seconds[0]:.2f} s; reading the cache: "
        f"{np.median(seconds[1:]):.3f} s (wall-clock).",
    )
    write_results("Preparing", *lines, quick=options.quick)


if __name__ == "__main__":
    main()
