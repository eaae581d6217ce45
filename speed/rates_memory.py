"""Measures memory and speed of rates over scored shards: the detector's share alone, and with labels of 500 rows.

python -m speed.rates_memory
python -m speed.rates_memory --rows 1000000 4000000 16000000
"""

import argparse
import csv
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from speed.measure import anonymous_mib, report, table

SHARD_ROWS, NUM_LABELS, TURNS, MODELS = 250_000, 500, 5, 7
EVERY = 0.02  # seconds between readings of the memory


def main() -> None:
    """Writes shards of each size and reads their rates, without labels and with them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    options = parser.parse_args()
    lines = []
    with TemporaryDirectory() as folder:
        data, labels = Path(folder, "scored"), Path(folder, "labels.csv")
        data.mkdir()
        for num_rows in sorted(options.rows):
            write(data, num_rows)
            write_labels(labels, num_rows)
            for name, given in {"detector's share": None, f"with {NUM_LABELS} labels": labels}.items():
                before = anonymous_mib()
                seconds, most = estimate(data, given, num_rows)
                lines.append([name, f"{num_rows:,}", f"{before:.0f}", f"{most:.0f}", f"{num_rows / seconds:,.0f}"])
                print(f"  {name}, {num_rows:,} rows: {most:.0f} MiB, {seconds:.1f} s", flush=True)
    body = (
        f"Shards of {SHARD_ROWS:,} rows: id, dialogue ({TURNS} rows each), model ({MODELS} of them), a text that is "
        "not read, label and probability. Read is the rate of all rows and of each model, with intervals over "
        "dialogues, in one process; with labels the prediction-powered one too, for which each shard is read twice. "
        f"Memory is what is not mapped from files, looked at every {1000 * EVERY:.0f} ms.\n\n"
        f"{table(['rates', 'rows', 'MiB before', 'most', 'rows a CPU-second'], lines)}"
    )
    report("Rates over scored shards", body)


def write(folder: Path, num_rows: int) -> None:
    """Writes the shards that are not there yet."""
    for start in range(0, num_rows, SHARD_ROWS):
        path = folder / f"part-{start // SHARD_ROWS:05}.parquet"
        if path.exists():
            continue
        places = np.arange(start, min(start + SHARD_ROWS, num_rows))
        scores = np.random.default_rng(start).beta(1, 3, len(places))
        columns: dict[str, Any] = {
            "id": pa.array(places).cast(pa.string()),
            "dialogue": places // TURNS,
            "model": pa.array(places % MODELS).cast(pa.string()),
            "response": pa.array(places * 7919).cast(pa.string()),
            "label": np.where(scores > 0.5, "hallucinated", "faithful"),
            "probability": scores,
        }
        pq.write_table(pa.table(columns), path)


def write_labels(path: Path, num_rows: int) -> None:
    """Labels rows from all over the shards."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label"])
        writer.writerows([row, row // 3 % 4 == 0] for row in range(0, num_rows, num_rows // NUM_LABELS))


def estimate(data: Path, labels: Path | None, num_rows: int) -> tuple[float, float]:
    """Reads the rates; gives the CPU-seconds and the most memory on the way."""
    from faithkit_workflows.ray.rates import estimate_shards

    columns = {"id": "id", "label": "label", "score": None, "group": "dialogue"}
    given: dict[str, Any] = {"predictions": str(data), "labels": str(labels) if labels else None, "by": "model"}
    given |= {"columns": columns, "label_columns": {"id": "id", "label": "label"}, "num_resamples": 1000}
    block = {**given, "power": None, "width": None, "label_next": None}
    readings, is_done, begin = [anonymous_mib()], threading.Event(), time.process_time()

    def watch() -> None:
        while not is_done.wait(EVERY):
            readings.append(anonymous_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    found = estimate_shards(block, None)
    rates = found.rates.rates(found.sums)
    is_done.set()
    watcher.join()
    assert rates[0].num_responses == num_rows and len(rates) == 1 + MODELS, "no row is lost"
    assert (rates[0].estimate is None) == (labels is None)
    return time.process_time() - begin, max(readings)


if __name__ == "__main__":
    main()
