"""Measures streamed Parquet shards: memory from the first batch to the last, and rows a CPU-second against the cache.

No model. Needs: Linux (it reads /proc), and the tokenizer of `minilm` (fetched once).

python -m speed.shard_stream --rows 100000 1000000 --compared 50000 --rounds 3
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from speed.measure import alternate, anonymous_mib, report, table

NUM_READINGS, PER_SHARD, BATCH = 10, 10_000, 32


def main() -> None:
    """Streams each size once and reads the memory on the way; then times both ways in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 100_000])
    parser.add_argument("--compared", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weights", default="minilm", help="whose tokenizer")
    options = parser.parse_args()
    encoder = build_encoder(options.weights)
    readings, body = [], ""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FAITHKIT_HOME"] = str(Path(folder, "home"))  # the weights are found; nobody needs these encodings
        for num_rows in options.rows:
            path = write_shards(Path(folder, str(num_rows)), num_rows)
            readings.append(measure_memory(path, num_rows, encoder))
            shutil.rmtree(path)
        header = ["rows", "MiB before", "after a tenth", "after half", "at the end", "most", "rows a CPU-second"]
        body += (
            f"Shards of {PER_SHARD:,} rows, 8 readers, a buffer of 16,384 rows, batches of {BATCH}, one process.\n\n"
        )
        body += table(header, readings)
        path = write_shards(Path(folder, "compared"), options.compared)
        body += "\n\n" + compare(path, options.compared, encoder, options.rounds)
    report(f"Streamed shards: {max(options.rows):,} rows", body)


def build_encoder(weights: str) -> Any:
    """Makes the encoder of a critic."""
    from data_modules.encoding.pairs import PairEncoder
    from data_modules.encoding.tokens import load_tokenizer
    from faithkit.weights.resolve import resolve

    return PairEncoder(tokenizer=load_tokenizer(resolve(weights)), max_length=256)


def write_shards(folder: Path, num_rows: int) -> Path:
    """Writes the embedded corpus as shards, with a small one for validation and test."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from data_modules.embedded.corpus import Embedded

    folder.mkdir()
    examples = Embedded(num_train=num_rows + 128).generate("train")
    names = [(f"train-{n:05}", min(PER_SHARD, num_rows - n * PER_SHARD)) for n in range(-(-num_rows // PER_SHARD))]
    for name, size in (*names, ("validation", 64), ("test", 64)):
        rows = [
            {"knowledge": e.knowledge, "response": e.response, "label": e.label, "group": e.group}
            for e in islice(examples, size)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet", row_group_size=1_000)
    return folder


def build(path: Path, encoder: Any, *, streaming: bool) -> Any:
    """Sets up the data of a training."""
    from data_modules.data_module import DataModule
    from data_modules.datasets.pairs import Pairs

    data = DataModule([(Pairs(path=str(path)), 1.0)], encoder, batch_size=BATCH, streaming=streaming)
    data.setup()
    return data


def measure_memory(path: Path, num_rows: int, encoder: Any) -> list[str]:
    """Streams an epoch; gives the size, the memory on the way and the rows a CPU-second."""
    data = build(path, encoder, streaming=True)
    readings, count, begin = [anonymous_mib()], 0, time.process_time()
    for batch in data.train_dataloader():
        count += len(batch["index"])
        if count * NUM_READINGS >= num_rows * len(readings):
            readings.append(anonymous_mib())
            print(f"  {count:,} rows: {readings[-1]:.0f} MiB", flush=True)
    assert count == num_rows, "no row is lost"
    rate = count / (time.process_time() - begin)
    shown = (readings[0], readings[1], readings[len(readings) // 2], readings[-1], max(readings))
    return [f"{count:,}", *(f"{reading:.0f}" for reading in shown), f"{rate:,.0f}"]


def compare(path: Path, num_rows: int, encoder: Any, num_rounds: int) -> str:
    """Times an epoch of streamed batches, one out of the cache, and what each does once before."""
    cached = build(path, encoder, streaming=False)
    streamed = build(path, encoder, streaming=True)
    home = tempfile.TemporaryDirectory()
    names = ("streamed: an epoch", "cache: an epoch", "streamed: counting the rows once", "cache: encoding once")
    sides = {
        names[0]: partial(epoch, streamed, num_rows),
        names[1]: partial(epoch, cached, num_rows),
        names[2]: partial(first_time, path, encoder, home.name, streaming=True),
        names[3]: partial(first_time, path, encoder, home.name, streaming=False),
    }
    with home:
        taken = alternate(sides, num_rounds, warm_up=True)
    rows = []
    for name in names:
        seconds = statistics.median(taken[name])
        low, high = min(taken[name]), max(taken[name])
        rows.append([name, f"{num_rows / seconds:,.0f}", f"{seconds:.2f} ({low:.2f} to {high:.2f})"])
    header = ["side", "rows a CPU-second", "CPU-seconds"]
    return f"{num_rows:,} rows, one thread, {num_rounds} rounds in turn, the median.\n\n{table(header, rows)}"


def epoch(data: Any, num_rows: int) -> None:
    """Goes through the batches of an epoch."""
    assert sum(len(batch["index"]) for batch in data.train_dataloader()) == num_rows, "no row is lost"


def first_time(path: Path, encoder: Any, home: str, *, streaming: bool) -> None:
    """Sets up with an empty cache."""
    before = os.environ["FAITHKIT_HOME"]
    with tempfile.TemporaryDirectory(dir=home) as empty:
        os.environ["FAITHKIT_HOME"] = empty
        build(path, encoder, streaming=streaming)
    os.environ["FAITHKIT_HOME"] = before


if __name__ == "__main__":
    main()
