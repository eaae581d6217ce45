"""Counts how often the held halves of domains were looked at, in a file of the cache that every run adds to."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from faithkit.embedded_name import EMBEDDED
from faithkit.files.cache import cache_dir
from faithkit.files.jsonl import JsonlAppender, read_jsonl
from faithkit_workflows.domains.rows import DEV


def looks_file() -> Path:
    """Gives the file: one line a look, at one domain's held rows."""
    return cache_dir("domains") / "looks.jsonl"


def record_looks(domains: Iterable[str], by: str, *, part: str, root: str) -> None:
    """Notes that the held rows of these domains are scored, where they are.

    Args:
        by: Whose predictions they are.
        part: The part that is scored; the dev half is there to be looked at.
        root: The folder of the corpora, or `embedded`: a stand-in's rows are kept for nothing.
    """
    if not is_look(part, root):
        return
    with JsonlAppender(looks_file()) as file:
        for name in domains:
            file.append({"domain": name, "by": by, "at": datetime.now(UTC).isoformat(timespec="seconds")})


def is_look(part: str, root: str) -> bool:
    """Tells whether who scores a part looks at rows that are kept for the end."""
    return part != DEV and root != EMBEDDED


def count_looks() -> Counter[str]:
    """Counts the looks at each domain so far."""
    path = looks_file()
    return Counter(str(row["domain"]) for row in read_jsonl(path)) if path.exists() else Counter()
