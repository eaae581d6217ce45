"""Measures memory and time of reading a table of pairs, of streaming a corpus, and of encoding.

Encoding takes as many turns as FaithDial's training split has, written in its layout, and is compared with the
tokenizer called pair by pair: both ways must give the same ids.

Needs: Linux (it reads /proc), and the tokenizer of `minilm` (fetched once).

python -m speed.data_speed [--streamed 10000000] [--table-rows 1000000]
"""

import argparse
import csv
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.data_module import DataModule, load_encoded
from data_modules.data_options import DataOptions
from data_modules.datasets.faithdial import FaithDial
from data_modules.datasets.pairs import Pairs
from data_modules.embedded.corpus import Embedded
from data_modules.embedded.layouts import WRITERS
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from data_modules.splits import MixPart
from faithkit.records import Prediction
from faithkit.weights.resolve import resolve
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import UserTable
from speed.measure import BenchmarkParser, alternate, rates, table, write_results

TEXT = "the river is long and old, and it flows through ten countries before it ends".split()
NUM_READINGS = 10  # of the memory
MEMORY = ["rows", "MiB before", "after a tenth", "after half", "at the end", "most", "rows a CPU-second"]


def main() -> None:
    """Measures reading a table in two ways, streaming, and encoding."""
    options = BenchmarkParser(__doc__, streamed=500_000, table_rows=100_000, turns=18_357).parse()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["context", "answer", "hallucinated", "model"])
            knowledge = " ".join(TEXT * 5)  # of ten responses
            responses = [" ".join(TEXT[place:]) for place in range(len(TEXT))]
            for number in range(options.table_rows):
                response = f"{number} {responses[number % len(TEXT)]}"
                writer.writerow([f"{number // 10}: {knowledge}", response, number % 2, number % 7])
        # Labelled pairs as a streaming training reads them.
        pairs = (1 for _ in Pairs(path=str(path)).read_split("all", ReadReport()))
        rows = [["data=pairs", *measure_memory(options.table_rows, pairs)]]
        rows.append(["faithkit score", *measure_memory(options.table_rows, read_to_score(path))])
        about = (
            f"A CSV of {path.stat().st_size / 2**20:,.0f} MiB: knowledge (75 words), response, label and model. "
            "`faithkit score` reads it four times in a run: to check, to judge, to hash the ids, and to write."
        )
    write_results("Reading a table of pairs", about, table(["reader", *MEMORY], rows), quick=options.quick)
    encoder = PairEncoder(tokenizer=load_tokenizer(resolve("minilm")), max_length=256)
    about = "Anonymous memory of the process while the corpus is generated, encoded in windows and batched by 32."
    corpus = Embedded(num_train=options.streamed, num_validation=64, num_test=64)
    data = DataModule([MixPart(corpus)], encoder, DataOptions(batch_size=32, streaming=True))
    data.setup()
    rows = [measure_memory(options.streamed, (len(batch["index"]) for batch in data.train_dataloader()))]
    write_results(f"Memory of streaming: {options.streamed:,} rows", about, table(MEMORY, rows), quick=options.quick)
    time_encoding(options)  # last: what it leaves in memory counts above


def measure_memory(num_rows: int, counts: Iterator[int]) -> list[str]:
    """Consumes the counts of rows that a reader yields; makes a row of a table of the memory at each tenth."""
    readings, done, begin = [anonymous_mib()], 0, time.process_time()
    for count in counts:
        done += count
        if done * NUM_READINGS >= num_rows * len(readings):
            readings.append(anonymous_mib())
    seconds = time.process_time() - begin
    assert done == num_rows, f"{done} of {num_rows} rows were read"
    shown = [readings[0], readings[1], readings[NUM_READINGS // 2], readings[-1], max(readings)]
    return [f"{num_rows:,}", *(f"{mib:.0f}" for mib in shown), f"{num_rows / seconds:,.0f}"]


def anonymous_mib() -> float:
    """Returns the MiB of this process that are not mapped from files."""
    found = re.search(r"^Anonymous:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None, "smaps_rollup always has the line"
    return int(found[1]) / 1024


def read_to_score(path: Path) -> Iterator[int]:
    """Reads rows to judge, and counts their labels by a column."""
    shares = ShareCounter(["model"])
    for values, example in UserTable(path=str(path), columns={}, join=" ".join, by=["model"]):
        assert example is not None
        shares.add(values, example, Prediction(id=example.id, label="faithful"))
        yield 1


def time_encoding(options: argparse.Namespace) -> None:
    """Times both ways to encode in turns, compares their ids, then times the cache."""
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
