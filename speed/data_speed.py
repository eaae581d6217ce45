"""Measures memory and time of reading a table of pairs and of streaming a corpus through encoding and batching.

Needs: Linux (it reads /proc), and the tokenizer of `minilm` (fetched once).

python -m speed.data_speed [--streamed 10000000] [--table-rows 1000000]
"""

import csv
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from data_modules.data_module import DataModule
from data_modules.data_options import DataOptions
from data_modules.datasets.pairs import Pairs
from data_modules.embedded.corpus import Embedded
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.rows import ReadReport
from data_modules.splits import MixPart
from faithkit.records import Prediction
from faithkit.weights.resolve import resolve
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import UserTable
from speed.measure import BenchmarkParser, table, write_results

TEXT = "the river is long and old, and it flows through ten countries before it ends".split()
NUM_READINGS = 10  # of the memory
MEMORY = ["rows", "MiB before", "after a tenth", "after half", "at the end", "most", "rows a CPU-second"]


def main() -> None:
    """Measures reading a table in two ways, and streaming."""
    options = BenchmarkParser(__doc__, streamed=500_000, table_rows=100_000).parse()
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


if __name__ == "__main__":
    main()
