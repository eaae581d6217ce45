"""Counts how often the held halves of domains were looked at, in a file of the cache that every run adds to."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from faithkit.files.home import cache_dir
from faithkit.files.jsonl import JsonlAppender, read_jsonl


def looks_file() -> Path:
    """Gives the file: one line a look, at one domain's held rows."""
    return cache_dir("domains") / "looks.jsonl"


def record_looks(domains: Iterable[str], by: str) -> None:
    """Notes that the held rows of these domains are scored.

    Args:
        by: Whose predictions they are.
    """
    with JsonlAppender(looks_file()) as file:
        for name in domains:
            file.append({"domain": name, "by": by, "at": datetime.now(UTC).isoformat(timespec="seconds")})


def count_looks() -> Counter[str]:
    """Counts the looks at each domain so far."""
    path = looks_file()
    return Counter(str(row["domain"]) for row in read_jsonl(path)) if path.exists() else Counter()
