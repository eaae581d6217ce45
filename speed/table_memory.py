"""Measures memory and speed of reading a table of one's own as `data=pairs` and `faithkit score` do, and of writing it
back with verdicts; no model.

python -m speed.table_memory --rows 1000000
python -m speed.table_memory --rows 10000000 --words 8
"""

import argparse
import csv
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from faithkit.records import Example, Prediction
from speed.measure import anonymous_mib, report, table

NUM_READINGS = 10
WORDS = "the river is long and old, and it flows through ten countries before it ends".split()


def main() -> None:
    """Writes tables of each size, reads them and takes the memory on the way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--words", type=int, default=80, help="of the knowledge of a row")
    options = parser.parse_args()
    lines = []
    with TemporaryDirectory() as folder:
        for num_rows in options.rows:
            path = write(Path(folder) / "rows.csv", num_rows, options.words)
            for name, reader in READERS.items():
                readings, seconds = reader(path, num_rows)
                size = path.stat().st_size / 2**20
                lines.append(
                    [name, f"{num_rows:,}", f"{size:,.0f}", f"{readings[0]:.0f}", f"{readings[-1]:.0f}",
                     f"{max(readings):.0f}", f"{num_rows / seconds:,.0f}"]
                )  # fmt: skip
                print(f"  {name}, {num_rows:,} rows: {max(readings):.0f} MiB", flush=True)
    header = ["reader", "rows", "MiB of the file", "MiB before", "at the end", "most", "rows a CPU-second"]
    body = (
        f"A CSV of knowledge (about {options.words} words), response, label and model; every row becomes an example "
        "with its label, its group and its further columns. `faithkit score` reads it four times in a run: to check, "
        "to judge, to name the rows by a hash, and to write. The verdicts that are written back are no model's.\n\n"
        f"{table(header, lines)}"
    )
    which = "" if options.words == 80 else f", rows of {options.words} words"
    report(f"Reading tables of one's own{which}", body)


def write(path: Path, num_rows: int, num_words: int) -> Path:
    """Writes a table with ten responses to a knowledge."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["context", "answer", "hallucinated", "model"])
        known = " ".join((WORDS * 5)[:num_words])
        said = [" ".join(WORDS[place:][:num_words]) for place in range(len(WORDS))]
        for number in range(num_rows):
            answer = f"{number} {said[number % len(WORDS)]}"
            writer.writerow([f"{number // 10}: {known}", answer, number % 2, number % 7])
    return path


def read_pairs(path: Path, num_rows: int) -> tuple[list[float], float]:
    """Reads labelled pairs as a training that streams does; memory at each tenth, and CPU-seconds."""
    from data_modules.datasets.pairs import Pairs
    from data_modules.reading.rows import ReadReport

    return _read((example for example, _ in Pairs(path=str(path)).read_split("all", ReadReport())), num_rows)


def read_to_score(path: Path, num_rows: int) -> tuple[list[float], float]:
    """Reads rows to judge, and counts them by a column as verdicts are counted."""
    from faithkit_workflows.tables.shares import ShareCounter
    from faithkit_workflows.tables.user_table import UserTable

    rows, shares = UserTable(path=str(path), columns={}, join=" ".join, by=["model"]), ShareCounter(["model"])

    def counted() -> Iterator[Example]:
        for values, example in rows:
            assert example is not None
            shares.add(values, example, Prediction(id=example.id, label="faithful"))
            yield example

    return _read(counted(), num_rows)


def write_back(path: Path, num_rows: int) -> tuple[list[float], float]:
    """Checks a table and writes it back with verdicts."""
    from faithkit_workflows.tables.scored_rows import write_scored
    from faithkit_workflows.tables.user_table import open_user_table

    readings, begin, output = [anonymous_mib()], time.process_time(), path.with_name("scored.csv")
    rows = open_user_table(str(path), {}, join=" ".join)

    def verdicts() -> Iterator[Prediction]:
        for count, example in enumerate(rows.examples, start=1):
            if count * NUM_READINGS >= num_rows * len(readings):
                readings.append(anonymous_mib())
            yield Prediction(id=example.id, label="faithful", score=0.25)

    write_scored(output, rows, verdicts())
    assert rows.num_examples == num_rows, "no row is lost"
    output.unlink()
    return readings, time.process_time() - begin


def _read(examples: Iterable[Example], num_rows: int) -> tuple[list[float], float]:
    readings, count, begin = [anonymous_mib()], 0, time.process_time()
    for count, _ in enumerate(examples, start=1):
        if count * NUM_READINGS >= num_rows * len(readings):
            readings.append(anonymous_mib())
    assert count == num_rows, "no row is lost"
    return readings, time.process_time() - begin


READERS = {"data=pairs": read_pairs, "faithkit score": read_to_score, "checked and written back": write_back}

if __name__ == "__main__":
    main()
