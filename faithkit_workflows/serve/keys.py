"""API keys: a file of hashes, and a limit of rows for each key.

python -m faithkit_workflows.serve.keys keys.txt alice      adds a key to the file, and prints it once

A line of the file is `NAME SHA256`. Keys are random and long, so a plain hash cannot be searched. The server reads the
file at the start and at SIGHUP; deleting a line takes the key back.
"""

import hashlib
import hmac
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from faithkit.cli import run_command
from faithkit.errors import UserError
from faithkit_workflows.serve.schemas import Problem

PREFIX, NUM_BYTES = "fk_", 32
LINE = re.compile(r"(\S+)\s+([0-9a-f]{64})")


def hash_key(key: str) -> str:
    """Hashes a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: str | Path) -> dict[str, str]:
    """Reads the hash of each name.

    Raises:
        UserError: A line is not a name and a hash, or a name is there twice.
    """
    keys: dict[str, str] = {}
    for number, line in enumerate(Path(path).expanduser().read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.fullmatch(line.strip())
        if found is None or found[1] in keys:
            problem = "a line is not NAME SHA256" if found is None else f"the name {found[1]} is there twice"
            hint = f"python -m faithkit_workflows.serve.keys {path} NAME adds a key"
            raise UserError(problem, place=f"{path}, line {number}", hint=hint)
        keys[found[1]] = found[2]
    if not keys:
        raise UserError("no key", place=str(path), hint=f"python -m faithkit_workflows.serve.keys {path} NAME")
    return keys


def find_name(keys: Mapping[str, str], key: str) -> str | None:
    """Finds the name of a key; every hash is compared, in constant time."""
    hashed, found = hash_key(key), None
    for name, expected in keys.items():
        if hmac.compare_digest(hashed, expected):
            found = name
    return found


class RateLimiter:
    """Limits the rows of each client by a token bucket, which holds the rows of one minute.

    Args:
        rows_per_minute: None for no limit.
    """

    def __init__(self, rows_per_minute: int | None, clock: Callable[[], float] = time.monotonic):
        self._rows_per_minute, self._clock = rows_per_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, rows: int) -> None:
        """Takes rows from a client's bucket.

        Raises:
            Problem: There are not enough.
        """
        if self._rows_per_minute is None:
            return
        size, now = float(self._rows_per_minute), self._clock()
        if rows > size:
            help_ = f"send at most {self._rows_per_minute} rows at once"
            raise Problem("rate_limited", f"{rows} rows are more than the limit of a minute", help_)
        left, since = self._buckets.pop(client, (size, now))
        left = min(size, left + (now - since) * size / 60)
        is_over = rows > left
        self._buckets[client] = (left if is_over else left - rows, now)
        while len(self._buckets) > 10_000:
            self._buckets.popitem(last=False)
        if is_over:
            help_ = f"at most {self._rows_per_minute} rows a minute; try again after the seconds in Retry-After"
            wait = (rows - left) * 60 / size
            raise Problem("rate_limited", "too many rows in this minute", help_, retry_seconds=wait)


def main(arguments: Sequence[str]) -> None:
    """Adds a key to the file, and prints it."""
    if len(arguments) != 2:
        raise UserError("a file and a name are needed", hint="python -m faithkit_workflows.serve.keys keys.txt NAME")
    path, name = Path(arguments[0]).expanduser(), arguments[1]
    if not re.fullmatch(r"[\w.-]+", name):
        raise UserError(f"{name!r} is no name", hint="use letters, digits, . _ and -")
    if path.exists() and name in read_keys(path):
        raise UserError(f"the name {name} has a key", place=str(path), hint="use another name, or delete its line")
    key = PREFIX + secrets.token_urlsafe(NUM_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(f"{name} {hash_key(key)}\n")
    print(key)


if __name__ == "__main__":
    run_command(main, __doc__)
