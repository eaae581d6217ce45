"""Measures what it takes to begin in the middle of a Parquet shard, against reading and dropping what stands before.

No model. A row of a training is an example of a record, not encoded yet.

python -m speed.shard_middle --rows 200000 --rounds 5
"""

import argparse
import os
import statistics
import tempfile
from functools import partial
from itertools import islice
from pathlib import Path

from data_modules.datasets.pairs import Pairs
from data_modules.embedded.corpus import Embedded
from data_modules.reading.rows import ReadReport
from data_modules.shards.pinned import PinnedShard, pin_shards
from speed.measure import Ratio, alternate, report, table

TAKEN = 1_000  # rows, from the place on
PLACES = (0.1, 0.5, 0.9)


def main() -> None:
    """Writes a shard with groups of several sizes, and reads from several places of it both ways in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--groups", type=int, nargs="+", default=[1_000, 1_000_000], help="rows of a group")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FAITHKIT_HOME"] = str(Path(folder, "home"))
        for group in options.groups:
            source = Pairs(path=str(write_shard(Path(folder, f"{group}.parquet"), options.rows, group)))
            (shard,) = pin_shards(source, "all", ReadReport())
            for place in PLACES:
                first = int(options.rows * place)
                sides = {"dropped": partial(drop, source, shard, first), "found": partial(find, source, shard, first)}
                assert drop(source, shard, first) == find(source, shard, first), "the same rows"
                taken = alternate(sides, options.rounds, warm_up=True)
                seconds = [f"{statistics.median(taken[side]):.3f}" for side in sides]
                shown = min(group, options.rows)
                lines.append([f"{shown:,}", f"{first:,}", *seconds, Ratio.of(taken["dropped"], taken["found"])])
    body = f"A shard of {options.rows:,} rows, of which {TAKEN:,} are read from a place on. CPU-seconds of one thread, "
    body += f"{options.rounds} rounds in turn, the median.\n\n"
    header = ["rows of a group", "first row", "read and dropped", "found by the groups", "ratio"]
    report("Beginning in the middle of a shard", body + table(header, lines))


def write_shard(path: Path, num_rows: int, group: int) -> Path:
    """Writes the embedded corpus as one shard."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    examples = islice(Embedded(num_train=num_rows).generate("train"), num_rows)
    rows = [{"knowledge": e.knowledge, "response": e.response, "label": e.label, "group": e.group} for e in examples]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


def drop(source: Pairs, shard: PinnedShard, first: int) -> list[str]:
    """Reads what stands before as well."""
    records = source.read_file(shard.file, "all", ReadReport())
    return [example.id for example, _ in islice(records, first, first + TAKEN)]


def find(source: Pairs, shard: PinnedShard, first: int) -> list[str]:
    """Begins where the shard says."""
    start, passed_over = shard.place_of(first)
    records = source.read_file(shard.file, "all", ReadReport(), start)
    return [example.id for example, _ in islice(records, passed_over, passed_over + TAKEN)]


if __name__ == "__main__":
    main()
