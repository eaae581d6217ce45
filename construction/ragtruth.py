"""Writes responses and their sources in RAGTruth's official layout, as `data_modules.datasets.ragtruth` reads it."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from construction.chain.chain_rows import KEY, Row
from construction.chain.divide import Division
from data_modules.datasets.ragtruth import RESPONSES, SOURCES
from faithkit.files.jsonl import write_jsonl

GOOD, REFUSED, TRUNCATED = "good", "incorrect_refusal", "truncated"  # values of `quality`


def write_ragtruth(
    folder: Path, sources: Iterator[Row], responses: Iterator[Row], division: Division, prompt: Callable[[Row], str]
) -> Counter[str]:
    """Writes `source_info.jsonl` and `response.jsonl`; counts the responses by split.

    Nobody has marked the responses yet: their `labels` are empty, which a reader takes for faithful.

    Args:
        prompt: Gives what was asked about a source.
    """
    counts: Counter[str] = Counter()

    def infos() -> Iterator[Row]:
        for row in sources:
            asked = {"source_info": row["source_info"], "prompt": prompt(row)}
            yield {"source_id": row[KEY], "task_type": row["task"], "source": row["corpus"], **asked}

    def rows() -> Iterator[Row]:
        for row in responses:
            split = division.split_of(row["source_id"])
            counts[split] += 1
            yield {
                "id": row[KEY],
                "source_id": row["source_id"],
                "model": row["model"],
                "temperature": row["temperature"],
                "labels": row.get("labels", []),
                "split": split,
                "quality": row["quality"],
                "response": row["response"],
                "null_mentions": row["null_mentions"],
            }

    write_jsonl(folder / SOURCES, infos())
    write_jsonl(folder / RESPONSES, rows())
    return counts
