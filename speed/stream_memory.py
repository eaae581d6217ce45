"""Measures memory while the embedded corpus is streamed to training, from the first batch to the last; no model.

Needs: Linux (it reads /proc), and the tokenizer of `minilm` (fetched once).

python -m speed.stream_memory --rows 1000000 10000000
"""

import argparse
import time

from speed.measure import anonymous_mib, report, table

NUM_READINGS = 10


def main() -> None:
    """Streams each size through the DataModule and reads the memory ten times on the way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 500_000])
    parser.add_argument("--weights", default="minilm", help="whose tokenizer")
    options = parser.parse_args()
    rows, begin_mib = [], 0.0
    for num_rows in options.rows:
        readings, seconds, count = stream(num_rows, options.weights)
        begin_mib = begin_mib or readings[0]
        later = readings[1:]
        rows.append(
            [f"{count:,}", f"{later[0]:.0f}", f"{later[len(later) // 2]:.0f}", f"{later[-1]:.0f}", f"{max(later):.0f}",
             f"{count / seconds:,.0f}"]
        )  # fmt: skip
    header = ["rows", "MiB after a tenth", "after half", "at the end", "most", "rows a CPU-second"]
    body = (
        f"Anonymous memory of the process while the corpus is generated, encoded in windows of 16,384 and batched by "
        f"32; {begin_mib:.0f} MiB before the first batch.\n\n{table(header, rows)}"
    )
    size = f"{max(options.rows) / 1e6:g} million rows"
    report(f"Memory of streaming: {size}", body)


def stream(num_rows: int, weights: str) -> tuple[list[float], float, int]:
    """Streams a corpus; returns the memory before the first batch and at each tenth, CPU-seconds, and rows."""
    from data_modules.data_module import DataModule
    from data_modules.embedded.corpus import Embedded
    from data_modules.encoding.pairs import PairEncoder
    from data_modules.encoding.tokens import load_tokenizer
    from faithkit.weights.resolve import resolve

    encoder = PairEncoder(tokenizer=load_tokenizer(resolve(weights)), max_length=256)
    corpus = Embedded(num_train=num_rows, num_validation=64, num_test=64)
    data = DataModule([(corpus, 1.0)], encoder, batch_size=32, streaming=True)
    data.setup()
    readings, count, begin = [anonymous_mib()], 0, time.process_time()
    for batch in data.train_dataloader():
        count += len(batch["index"])
        if count * NUM_READINGS >= num_rows * len(readings):
            readings.append(anonymous_mib())
            print(f"  {count:,} rows: {readings[-1]:.0f} MiB", flush=True)
    assert count == num_rows, "no row is lost"
    return readings, time.process_time() - begin, count


if __name__ == "__main__":
    main()
