"""Measures what a command with engine=ray spends on shards by their number: listing them, and reading their accounts.

python -m speed.shard_accounts
python -m speed.shard_accounts --shards 1000 10000 100000
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from data_modules.reading.shards import Shard, check_outputs, find_shards
from faithkit_workflows.ray.out_folder import OWN, Entry, OutFolder
from faithkit_workflows.ray.summary import Summary
from speed.measure import anonymous_mib, report, table

ROWS, MODELS = 100_000, 7


def main() -> None:
    """Writes shards that are empty and finished, in growing number, and does what a launch does before its workers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shards", type=int, nargs="+", default=[1_000, 10_000])
    lines = []
    with TemporaryDirectory() as folder:
        data, out = Path(folder, "data"), Path(folder, "out")
        for number in sorted(parser.parse_args().shards):
            write(data, out, number)
            before, begin = anonymous_mib(), time.process_time()
            shards, _ = find_shards(str(data))
            check_outputs(shards, str(data))
            listed = time.process_time()
            summary, names = Summary(), set()
            for entry in OutFolder(out).finished(shards, str(data)):
                names.add(entry.shard)
                summary.add(entry)
            read = time.process_time()
            assert summary.num_rows == ROWS * number and len(names) == number, "every account counts"
            grown = anonymous_mib() - before
            cells = [f"{listed - begin:.2f}", f"{read - listed:.2f}", f"{before:.0f}", f"{grown:.0f}"]
            lines.append([f"{number:,}", *cells])
            print(*lines[-1], flush=True)
    body = (
        f"Shards that say of themselves that they have {ROWS:,} rows, told by {MODELS} models, all finished: what the "
        "command spends on them when it goes on, beside Ray. CPU-seconds, and MiB that are not mapped from files.\n\n"
        f"{table(['shards', 'listing them', 'reading the accounts', 'MiB before', 'more at the end'], lines)}"
    )
    report("Accounts of shards", body)


def write(data: Path, out: Path, number: int) -> None:
    """Writes shards, what was made of them, and their accounts, where they are missing."""
    accounts = out / OWN / "shards"
    accounts.mkdir(parents=True, exist_ok=True)
    data.mkdir(exist_ok=True)
    for place in range(len(list(data.iterdir())), number):
        (data / f"part-{place:06}.parquet").touch()
    for shard in find_shards(str(data))[0]:
        if not (path := accounts / f"{shard.name}.json").exists():
            (out / shard.output).touch()
            path.write_text(account(shard).model_dump_json())


def account(shard: Shard) -> Entry:
    """Gives the account of a shard of single rows and pairs, with a column of several values."""
    counts = {model: [[1, 0, 10_000], [1, 1, 4_000], [2, 1, 142]] for model in "abcdefg"[:MODELS]}
    return Entry(
        job="0" * 32,
        shard=shard.name,
        bytes=shard.size,
        stamp=shard.stamp,
        sha256="0" * 64,
        output_bytes=0,
        rows=ROWS,
        rejected=0,
        unsure=0,
        grouped_by="group",
        kinds={"": {"": [[1, 0, 70_000], [1, 1, 29_000], [2, 1, 500]]}, "model": counts},
        device="cpu",
        cpu_seconds=1.0,
    )


if __name__ == "__main__":
    main()
