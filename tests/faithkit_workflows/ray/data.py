"""Shards to score, and a launch that calls its one worker in this process."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from faithkit_workflows.ray.run_shards import work_on_shards
from faithkit_workflows.ray.shard_worker import Answering, Scoring
from tests.data_modules.official_rows import write
from tests.running import plain_config

WORDS = "river city long old dog plays red great north tower seven twelve winter music".split()


def rows(number: int, seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)

    def words(least: int, most: int) -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(least, most)))

    return [{"knowledge": words(5, 40), "response": words(2, 12), "model": "ab"[row % 2]} for row in range(number)]


def write_shards(folder: Path, number: int = 3, num_rows: int = 12) -> Path:
    """Writes shards of JSON lines, the last but one of them of Parquet."""
    for shard in range(number):
        made = rows(num_rows, shard)
        if shard == number - 2:
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(made), folder / f"part-{shard:02}.parquet")
        else:
            write(folder / f"part-{shard:02}.jsonl", made)
    return folder


def in_process(worker: type, argument: Any, rows: Sequence[Mapping[str, Any]], _: Any) -> Iterator[Any]:
    """Calls one worker of this process for all rows."""
    return map(worker(argument), rows)


def untouched(worker: type, argument: Any, rows: Any, options: Any) -> Iterator[Any]:
    """A launch in which no shard may be left."""
    raise AssertionError(f"done again: {rows}")


def score(data: Path | str, out: Path, checkpoint: Path, *overrides: str, run: Any = in_process) -> None:
    """`faithkit score DATA engine=ray` with a worker of this process."""
    given = [f"path='{data}'", f"out={out}", f"checkpoint={checkpoint}", "num_resamples=20", *overrides]
    work_on_shards(Scoring(plain_config("score", "engine=ray", *given)), run)


def answer(data: Path | str, out: Path, checkpoint: Path, *overrides: str, run: Any = in_process) -> None:
    """`python generate.py data=pairs data.path=DATA engine=ray` with a worker of this process."""
    given = ["data=pairs", f"data.path='{data}'", f"out={out}", f"checkpoint={checkpoint}", "decoding.max_new_tokens=6"]
    work_on_shards(Answering(plain_config("generate", "engine=ray", *given, *overrides)), run)


def scored(out: Path) -> dict[str, bytes]:
    """Reads all scored shards by their names."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.parquet"))}
